"""Summaries agree with an independent implementation and stay honest about few seeds."""

import numpy as np
import pytest

from dreamproof.stats.describe import (
    BOOTSTRAP_SEED,
    bootstrap_interval,
    falls_into_two_groups,
    finite_values,
    interquartile_mean,
    joint_interval,
    summarise,
    t_interval,
    tail_mean,
    zero_share,
)

FIVE = np.array([3.1, 4.7, 5.2, 2.4, 6.9])
OTHER_FIVE = np.array([5.0, 6.1, 7.7, 4.9, 8.3])
TWO_TASKS = [np.array([1.0, 2, 3, 4, 10]), np.array([10.0, 12, 9, 15, 11])]


def test_the_interquartile_mean_equals_frozen_values_of_rliable() -> None:
    # rliable 1.2.0, metrics.aggregate_iqm
    assert interquartile_mean(FIVE) == pytest.approx(4.333333333333333)
    assert interquartile_mean(OTHER_FIVE) == pytest.approx(6.266666666666667)
    assert interquartile_mean(np.concatenate(TWO_TASKS)) == pytest.approx(7.833333333333333)
    assert interquartile_mean(np.array([1.0, 2, 3, 4, 5, 6, 7, 80])) == pytest.approx(4.5)


def test_stratified_bootstrap_intervals_equal_frozen_values_of_rliable() -> None:
    # rliable 1.2.0, get_interval_estimates with 20,000 draws; ours draws 4,000 with another generator
    for strata, statistic, low, high in [
        ([FIVE], "iqm", 2.633, 6.333),
        ([FIVE], "mean", 3.14, 5.8),
        ([OTHER_FIVE], "iqm", 4.933, 8.1),
        ([OTHER_FIVE], "mean", 5.18, 7.62),
        (TWO_TASKS, "iqm", 6.0, 10.167),
        (TWO_TASKS, "mean", 6.2, 9.5),
    ]:
        interval = bootstrap_interval(strata, statistic)
        assert interval is not None
        assert interval.low == pytest.approx(low, abs=0.15)
        assert interval.high == pytest.approx(high, abs=0.15)


def resampled(values: np.ndarray, statistic: str, draws: int) -> list[float]:
    """The interval by drawing values themselves, as its definition says."""
    generator = np.random.default_rng((BOOTSTRAP_SEED, len(values), draws, 0))
    rows = np.sort(values[generator.integers(0, len(values), size=(draws, len(values)))].reshape(draws, -1), axis=1)
    cut = {"mean": 0, "iqm": rows.shape[1] // 4, "median": (rows.shape[1] - 1) // 2}[statistic]
    found = rows[:, cut : rows.shape[1] - cut].mean(axis=1)
    return [float(end) for end in np.quantile(found, [0.025, 0.975])]


@pytest.mark.parametrize("statistic", ["mean", "iqm", "median"])
@pytest.mark.parametrize("count", [2, 3, 4, 9, 50])
def test_a_bootstrap_interval_is_that_of_resampled_values(statistic: str, count: int) -> None:
    generator = np.random.default_rng(count)
    for values in (generator.normal(1e6, 3.0, count), generator.integers(0, 3, count).astype(float)):
        interval = bootstrap_interval([values], statistic, draws=400)
        assert interval is not None
        assert [interval.low, interval.high] == pytest.approx(resampled(values, statistic, 400), rel=1e-12)


def test_more_values_than_16_bits_count_are_resampled_too() -> None:
    table = np.random.default_rng(1).normal(size=(200, 200))
    interval = joint_interval(table, draws=8)
    assert interval is not None
    assert [interval.low, interval.high] == pytest.approx(resampled(table, "iqm", 8), rel=1e-12)


def test_strata_are_resampled_within_themselves() -> None:
    interval = bootstrap_interval([np.full(5, 1.0), np.full(5, 3.0)], "mean")
    assert interval is not None
    assert (interval.low, interval.high) == (2.0, 2.0)


def test_conditions_that_share_seeds_are_resampled_together() -> None:
    seeds = np.array([1.0, 2.0, 4.0, 7.0, 9.0])
    joint = joint_interval(np.stack([seeds, seeds + 0.1, seeds - 0.1], axis=1))
    alone = bootstrap_interval([seeds, seeds + 0.1, seeds - 0.1])
    assert joint is not None and alone is not None
    assert joint.high - joint.low > 1.5 * (alone.high - alone.low)


def test_the_same_values_give_the_same_digits() -> None:
    assert bootstrap_interval([FIVE]) == bootstrap_interval([FIVE.copy()])


def test_the_t_interval_is_the_textbook_one() -> None:
    interval = t_interval(np.array([1.0, 2.0, 3.0]))
    assert interval is not None
    assert interval.high - 2.0 == pytest.approx(4.30265272991 / np.sqrt(3))


def test_one_seed_has_no_interval_and_no_spread() -> None:
    summary = summarise(np.array([4.0]))
    assert summary is not None
    assert (summary.sd, summary.t_interval, summary.bootstrap_interval) == (None, None, None)


def test_no_number_has_no_summary() -> None:
    assert summarise(np.array([np.nan, np.inf])) is None
    assert len(finite_values([1.0, float("nan"), 2.0])) == 2


def test_collapsed_seeds_are_seen_as_a_second_group() -> None:
    assert falls_into_two_groups(np.array([0.1, 9.8, 10.0, 10.2, 10.1]))
    assert not falls_into_two_groups(np.array([8.0, 9.0, 10.0, 11.0, 12.5]))


def test_two_groups_are_rarely_seen_in_normal_seeds() -> None:
    draws = np.random.default_rng(3).standard_normal((1000, 5))
    assert np.mean([falls_into_two_groups(row) for row in draws]) < 0.08


def test_costs_have_a_zero_share_and_a_tail() -> None:
    costs = np.array([0.0] * 15 + [1.0, 2.0, 3.0, 10.0, 30.0])
    assert zero_share(costs) == 0.75
    assert tail_mean(costs) == 20.0
    assert (zero_share(np.array([])), tail_mean(np.array([]))) == (None, None)
