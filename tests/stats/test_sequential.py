"""Looking several times keeps the error rate, and seeds are never added without leave."""

import numpy as np
import pytest

from dreamproof.stats.sequential import BatchQuestion, make_look_plan, next_batch, nominal_levels


def test_looks_follow_from_the_declaration_alone() -> None:
    assert make_look_plan(5).looks == (5,)
    assert make_look_plan(5, 18).looks == (5, 10, 15, 18)
    assert make_look_plan(2, 6).looks == (2, 4, 6)
    assert make_look_plan(20, 10).looks == (20,)


def test_one_look_spends_everything() -> None:
    assert make_look_plan(5).level(0) == 0.05


def test_levels_equal_published_pocock_type_boundaries() -> None:
    # Lan and DeMets 1983, Pocock-type spending, four equal looks, two-sided 0.05: z = 2.368, 2.368, 2.358, 2.350
    assert nominal_levels((0.25, 0.5, 0.75, 1.0), 0.05) == pytest.approx((0.0179, 0.0179, 0.0184, 0.0188), abs=1e-4)


def test_all_looks_together_err_as_often_as_allowed() -> None:
    generator = np.random.default_rng(11)
    steps = generator.standard_normal((200_000, 4))
    scores = np.abs(np.cumsum(steps, axis=1) / np.sqrt(np.arange(1, 5)))
    from scipy import stats

    edges = stats.norm.isf(np.array(make_look_plan(5, 20).plan_levels()) / 2)
    assert (scores >= edges).any(axis=1).mean() == pytest.approx(0.05, abs=0.002)


def question(**changes: object) -> BatchQuestion:
    given: dict[str, object] = {"plan": make_look_plan(5, 15), "seeds_done": 5, "undecided_arms": ("b",)}
    return BatchQuestion(**(given | changes))  # type: ignore[arg-type]


def test_an_undecided_study_gets_its_next_batch() -> None:
    answer = next_batch(question(price_of=lambda seeds: 2.0 * seeds, money_left=50.0))
    assert (answer.add_seeds, answer.seeds_per_arm, answer.price) == (True, 10, 10.0)
    assert answer.seeds([0, 1, 2, 3, 7]) == [0, 1, 2, 3, 7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"undecided_arms": ()}, "decided"),
        ({"missing_cells": 2}, "gap"),
        ({"seeds_done": 15}, "maximum"),
        ({"price_of": lambda seeds: 2.0 * seeds, "money_left": 9.99}, "budget"),
        ({"blocked_by": ("identical_values",)}, "blocked"),
    ],
)
def test_no_seed_is_added_without_leave(changes: dict[str, object], reason: str) -> None:
    answer = next_batch(question(**changes))
    assert (answer.add_seeds, answer.reason, answer.seeds_per_arm) == (False, reason, changes.get("seeds_done", 5))
