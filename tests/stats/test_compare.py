"""Two arms are compared by known answers, in both directions alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dreamproof.stats.compare import compare, hedges_g, holm, improvement_interval, improvement_probability, welch_p
from dreamproof.stats.permutation import permutation_p, sign_flip_p, smallest_p

FIVE = np.array([3.1, 4.7, 5.2, 2.4, 6.9])
OTHER_FIVE = np.array([5.0, 6.1, 7.7, 4.9, 8.3])


def seeds(values: np.ndarray) -> dict[int, float]:
    return dict(enumerate(values.tolist()))


def test_the_probability_of_improvement_equals_frozen_values_of_rliable() -> None:
    # rliable 1.2.0, metrics.probability_of_improvement
    assert improvement_probability(OTHER_FIVE, FIVE) == pytest.approx(0.8)
    ties = improvement_probability(np.array([1.0, 2, 2]), np.array([2.0, 2, 3]))
    assert ties == pytest.approx(0.2222222222222222)


def test_the_interval_of_improvement_does_not_collapse_where_all_seeds_are_separated() -> None:
    interval = improvement_interval(FIVE + 100.0, FIVE)
    assert interval is not None and interval.high == 1.0
    assert interval.low == pytest.approx(0.643, abs=0.001)
    turned = improvement_interval(FIVE + 100.0, FIVE, sign=-1.0)
    assert turned is not None and (turned.low, turned.high) == pytest.approx((0.0, 1 - interval.low))


def test_the_interval_of_improvement_covers_what_it_promises() -> None:
    generator, true = np.random.default_rng(4), float(stats.norm.cdf(2 / np.sqrt(2)))
    drawn = [improvement_interval(2 + generator.standard_normal(5), generator.standard_normal(5)) for _ in range(400)]
    covered = np.mean([interval is not None and not interval.excludes(true) for interval in drawn])
    assert covered >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / 400)


def test_where_lower_is_better_improvement_turns_round() -> None:
    assert improvement_probability(OTHER_FIVE, FIVE, sign=-1.0) == pytest.approx(0.2)


def test_the_exact_test_equals_scipy_on_all_splits() -> None:
    expected = stats.permutation_test(
        (OTHER_FIVE, FIVE), lambda x, y: np.mean(x) - np.mean(y), n_resamples=np.inf, vectorized=False
    ).pvalue
    assert permutation_p(OTHER_FIVE, FIVE) == pytest.approx(expected)


def test_two_or_three_seeds_per_arm_can_never_be_significant() -> None:
    assert [round(smallest_p(count, count), 4) for count in (2, 3, 4, 5)] == [0.3333, 0.1, 0.0286, 0.0079]
    assert permutation_p(np.array([100.0, 101.0]), np.array([1.0, 2.0])) == pytest.approx(1 / 3)
    assert sign_flip_p(np.arange(1.0, 6.0)) == pytest.approx(0.0625)


def test_large_groups_use_a_fixed_sample_of_splits() -> None:
    draws = np.random.default_rng(5).standard_normal((2, 40))
    first = permutation_p(draws[0], draws[1])
    assert first == permutation_p(draws[0], draws[1])
    assert first == pytest.approx(stats.ttest_ind(draws[0], draws[1]).pvalue, abs=0.02)


def test_groups_of_different_size_use_the_studentised_difference() -> None:
    draws = np.random.default_rng(6)
    rejected = [(permutation_p(draws.normal(0, 2, 6), draws.normal(0, 0.5, 10)) or 1.0) <= 0.05 for _ in range(300)]
    assert np.mean(rejected) < 0.10  # the plain difference rejects in about 0.13 of these


def test_welch_equals_scipy() -> None:
    expected = stats.ttest_ind(OTHER_FIVE, FIVE, equal_var=False)
    assert welch_p(OTHER_FIVE, FIVE) == pytest.approx(expected.pvalue)
    found = compare(seeds(OTHER_FIVE), seeds(FIVE))
    assert found is not None and found.interval is not None
    low, high = expected.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high))


def test_deterioration_mirrors_improvement() -> None:
    up, down = compare(seeds(OTHER_FIVE), seeds(FIVE)), compare(seeds(FIVE), seeds(OTHER_FIVE))
    assert up is not None and down is not None
    assert up.difference == -down.difference
    assert (up.permutation_p, up.welch_p) == pytest.approx((down.permutation_p, down.welch_p))
    assert up.effect_size == pytest.approx(-down.effect_size)


def test_pairs_are_only_the_shared_seeds() -> None:
    found = compare({0: 2.0, 1: 3.0, 9: 100.0}, {0: 1.0, 1: 1.0, 5: -50.0}, paired=True)
    assert found is not None and found.paired is not None
    assert (found.paired.pairs, found.paired.difference) == (2, 1.5)


def test_holm_orders_and_never_falls() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None}) == {"a": 0.04, "b": 0.09, "c": 0.09, "d": None}


def test_no_spread_has_no_effect_size() -> None:
    assert hedges_g(np.full(3, 2.0), np.full(3, 1.0)) is None


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.integers(0, 6), numbers), st.dictionaries(st.integers(0, 6), numbers))
def test_no_table_breaks_a_comparison(treatment: dict[int, float], reference: dict[int, float]) -> None:
    found = compare(treatment, reference, paired=True)
    if found is not None and found.permutation_p is not None:
        assert found.smallest_p - 1e-12 <= found.permutation_p <= 1.0
        assert 0.0 <= found.improvement <= 1.0
