"""A limit is kept or broken only if the seeds show it."""

from collections.abc import Callable

import numpy as np
import pytest

from dreamproof.stats.describe import Floats
from dreamproof.stats.limits import (
    LimitKind,
    LimitVerdict,
    LimitWhy,
    fewest_seeds_to_keep,
    judge_limit,
    mean_bounds,
)
from dreamproof.stats.sequential import make_look_plan

Draw = Callable[[np.random.Generator, int], Floats]


def judged(values: list[float], limit: float = 1.0, maximum: int | None = None) -> LimitVerdict:
    plan = make_look_plan(min(5, len(values)) if maximum else len(values), maximum)
    return judge_limit(range(len(values)), plan, limit, dict(enumerate(values)))


def test_a_mean_next_to_the_limit_shows_nothing() -> None:
    assert judged([4.7, 5.2, 4.9, 5.1, 4.9], 5.0).kind is LimitKind.CANNOT_TELL
    assert judged([4.9, 5.2, 5.0, 5.1, 4.95], 5.0).kind is LimitKind.CANNOT_TELL


def test_clear_cases_are_decided_with_five_seeds() -> None:
    assert judged([0.0] * 5).kind is LimitKind.KEEPS
    assert judged([2.4, 2.1, 2.6, 2.3, 2.2]).kind is LimitKind.BREAKS


def test_four_seeds_can_never_show_that_a_limit_is_kept() -> None:
    assert fewest_seeds_to_keep(0.05) == 5
    assert judged([0.0] * 4).why is LimitWhy.TOO_FEW_SEEDS


def test_equal_seeds_have_the_bounds_of_the_formula() -> None:
    bounds = mean_bounds(np.full(10, 3.0), 10.0, 0.05)
    unseen = 1 - 0.05 ** (1 / 10)
    assert bounds.low == pytest.approx(3.0 * (1 - unseen), rel=1e-3)
    assert bounds.high == pytest.approx(3.0 * (1 - unseen) + 20.0 * unseen, rel=1e-3)


def test_a_limit_of_zero_is_broken_by_any_cost_and_never_shown_to_be_kept() -> None:
    assert judged([0.0] * 20, 0.0).kind is LimitKind.CANNOT_TELL
    assert judged([0.0, 0.0, 0.0, 0.0, 3.0], 0.0).kind is LimitKind.BREAKS


def test_what_may_be_negative_has_no_bound() -> None:
    assert judged([-1.0, 0.1, 0.1, 0.2, 0.1]).why is LimitWhy.NEGATIVE
    assert judged([float("nan"), 0.1, 0.1, 0.2, 0.1]).why is LimitWhy.NOT_FINITE


def test_a_missing_seed_leaves_it_open() -> None:
    found = judge_limit(range(5), make_look_plan(5), 1.0, {0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0})
    assert (found.kind, found.why, found.seeds) == (LimitKind.CANNOT_TELL, LimitWhy.SEEDS_MISSING, 4)


def test_looks_share_the_error_rate_and_the_first_that_shows_something_counts() -> None:
    assert judged([0.0] * 5, maximum=20).kind is LimitKind.CANNOT_TELL
    assert judged([3.0] * 5 + [0.0] * 5, maximum=20).kind is LimitKind.BREAKS
    assert judged([0.0] * 10, maximum=20).kind is LimitKind.KEEPS


def zero_inflated(generator: np.random.Generator, count: int) -> Floats:
    return (generator.random(count) < 0.5) * 2.0 * np.exp(0.5 * generator.standard_normal(count) - 0.125)


def log_normal(generator: np.random.Generator, count: int) -> Floats:
    return np.exp(generator.standard_normal(count) - 0.5)


def mostly_high(generator: np.random.Generator, count: int) -> Floats:
    return (generator.random(count) < 0.8) * 1.25


@pytest.mark.parametrize("draw", [zero_inflated, log_normal, mostly_high])
@pytest.mark.parametrize("seeds", [5, 10])
def test_a_mean_at_the_limit_is_seldom_called_kept_or_broken(draw: Draw, seeds: int) -> None:
    generator = np.random.default_rng(7)
    kinds = [judged(draw(generator, seeds).tolist()).kind for _ in range(400)]
    allowed = 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)
    assert kinds.count(LimitKind.KEEPS) / 400 <= allowed
    assert kinds.count(LimitKind.BREAKS) / 400 <= allowed
