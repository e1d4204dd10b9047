"""Seeds still needed, by known answers."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from dreamproof.stats.power import power_of, sd_upper_bound, seeds_needed


def test_seeds_for_textbook_effects() -> None:
    assert [seeds_needed(effect, 1.0) for effect in (0.5, 1.0, 1.5, 2.0, 3.0)] == [64, 17, 9, 6, 4]


def test_two_seeds_of_the_users_table_ask_for_hundreds() -> None:
    spread = np.sqrt((0.151**2 + 1.025**2) / 2)
    assert seeds_needed(2.427 - 2.203, spread) == 169
    assert seeds_needed(2.427 - 2.203, sd_upper_bound(spread, 2)) == 754


def test_the_upper_bound_of_the_spread_shrinks_with_seeds() -> None:
    assert [round(sd_upper_bound(1.0, seeds - 1), 2) for seeds in (2, 3, 5)] == [3.95, 2.12, 1.56]


def test_five_seeds_find_two_standard_deviations() -> None:
    assert power_of(5, 2.02) == pytest.approx(0.8, abs=0.005)
    assert power_of(1, 2.02) == 0.0


def test_power_agrees_with_simulation() -> None:
    draws = np.random.default_rng(8).standard_normal((4000, 2, 9))
    p = stats.ttest_ind(draws[:, 0] + 1.5, draws[:, 1], axis=1).pvalue
    assert np.mean(p <= 0.05) == pytest.approx(power_of(9, 1.5), abs=0.025)


def test_power_agrees_with_the_noncentral_t_of_scipy_where_it_has_a_value() -> None:
    for seeds in (2, 3, 5, 20, 500):
        freedom, scale = 2 * seeds - 2, np.sqrt(seeds / 2)
        edge = stats.t.ppf(0.975, freedom)
        for centre in (0.0, 0.5, 2.0, 3.5, 10.0, 29.0):
            lower = stats.nct.cdf(-edge, freedom, centre)
            assert np.isfinite(lower) or centre > 3.6
            expected = stats.nct.sf(edge, freedom, centre) + (lower if np.isfinite(lower) else 0.0)
            assert power_of(seeds, centre / scale) == pytest.approx(expected, abs=1e-6)


def test_power_is_a_chance_for_every_effect_and_never_falls_with_it() -> None:
    for seeds in (2, 5, 100, 100_000, 1_000_000):
        powers = [power_of(seeds, effect) for effect in (0.0, 1e-9, 1e-3, 0.1, 1.0, 4.0, 30.0, 1e4, 1e150)]
        assert powers[0] == pytest.approx(0.05, abs=1e-6)
        assert all(before <= after + 1e-9 for before, after in pairwise(powers)) and powers[-1] == pytest.approx(1.0)


def test_hopeless_and_degenerate_questions_have_an_answer() -> None:
    assert seeds_needed(1e-9, 1.0) is None
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1.0, float("nan")) is None
    assert seeds_needed(1.0, 0.0) == 2
    assert seeds_needed(1e300, 1e-300) == 2
