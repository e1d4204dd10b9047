"""Verdicts of four kinds: only what the seeds support, deterioration like improvement, never from two seeds."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamproof.stats.sequential import make_look_plan
from dreamproof.stats.verdict import Kind, Question, Why, judge, plan_seeds

pytestmark = pytest.mark.long(40)

LOW = [1.0, 1.2, 0.9, 1.1, 1.05]
HIGH = [5.0, 5.2, 4.9, 5.1, 5.05]


def arm(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def question(seeds: int = 5, maximum: int | None = None, margin: float = 1.0, higher: bool = True) -> Question:
    declared = tuple(range(maximum or seeds))
    return Question(declared, make_look_plan(seeds, maximum), margin, higher)


def only(verdicts: dict) -> tuple[Kind, Why]:
    (verdict,) = verdicts.values()
    return verdict.kind, verdict.why


def test_a_clear_difference_is_better_or_worse_by_direction() -> None:
    assert only(judge(question(), arm(LOW), {"b": arm(HIGH)})) == (Kind.BETTER, Why.DECIDED)
    assert only(judge(question(), arm(HIGH), {"b": arm(LOW)})) == (Kind.WORSE, Why.DECIDED)
    assert only(judge(question(higher=False), arm(LOW), {"b": arm(HIGH)})) == (Kind.WORSE, Why.DECIDED)


def test_a_small_spread_around_no_difference_is_equivalent() -> None:
    verdicts = judge(question(), arm(LOW), {"b": arm([1.1, 1.0, 1.05, 0.95, 1.15])})
    assert only(verdicts) == (Kind.EQUIVALENT, Why.DECIDED)


def test_a_real_difference_that_is_too_small_to_matter_is_equivalent() -> None:
    verdicts = judge(question(margin=20.0), arm(LOW), {"b": arm(HIGH)})
    assert only(verdicts) == (Kind.EQUIVALENT, Why.DECIDED)


def test_two_seeds_never_decide_however_far_apart() -> None:
    verdicts = judge(question(seeds=2), arm([1.0, 1.1]), {"b": arm([1e6, 1.1e6])})
    assert only(verdicts) == (Kind.CANNOT_DECIDE, Why.TOO_FEW_SEEDS)
    close = judge(question(seeds=2, margin=100.0), arm([1.0, 1.1]), {"b": arm([1.05, 1.2])})
    assert only(close) == (Kind.CANNOT_DECIDE, Why.TOO_FEW_SEEDS)


def test_a_missing_seed_leaves_the_question_open() -> None:
    treatment = arm(HIGH)
    del treatment[2]
    assert only(judge(question(), arm(LOW), {"b": treatment})) == (Kind.CANNOT_DECIDE, Why.SEEDS_MISSING)


def test_values_that_are_not_numbers_leave_it_open() -> None:
    assert only(judge(question(), arm(LOW), {"b": arm([5.0, float("nan"), 5, 5.1, 5.2])}))[1] == Why.NOT_FINITE
    assert only(judge(question(), arm(LOW), {"b": {}})) == (Kind.CANNOT_DECIDE, Why.NO_VALUES)


def test_an_arm_without_any_spread_is_judged_by_the_exact_test() -> None:
    assert only(judge(question(), arm(LOW), {"b": arm([5.0] * 5)})) == (Kind.BETTER, Why.DECIDED)


def test_two_arms_at_the_ceiling_are_equivalent() -> None:
    assert only(judge(question(), arm([5.0] * 5), {"b": arm([5.0] * 5)})) == (Kind.EQUIVALENT, Why.DECIDED)


def test_no_cost_in_ten_seeds_against_much_cost_in_all_is_decided() -> None:
    costs = [31.0, 62.0, 40.0, 55.0, 33.0, 47.0, 51.0, 38.0, 44.0, 60.0]
    found = judge(question(seeds=10, higher=False), arm(costs), {"b": arm([0.0] * 10)})
    assert only(found) == (Kind.BETTER, Why.DECIDED)


def test_two_groups_that_overlap_the_reference_are_not_decided_by_the_mean() -> None:
    reference = [0.1, 0.4, 0.2, 0.5, 0.3, 0.6, 0.2, 0.4]
    grouped = [9.0, 9.2, 9.1, 9.3, 8.9, 9.0, 9.1, 0.0]
    assert only(judge(question(seeds=8), arm(reference), {"b": arm(grouped)})) == (Kind.CANNOT_DECIDE, Why.SHAPE)
    separated = [*grouped[:7], 2.0]
    assert only(judge(question(seeds=8), arm(reference), {"b": arm(separated)})) == (Kind.BETTER, Why.DECIDED)


def test_very_unequal_spreads_that_overlap_are_not_decided_by_the_mean() -> None:
    steady = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 1.01]
    wild = [9.0, 0.5, 14.0, 12.0, 6.0, 17.0, 11.0, 8.0]
    assert only(judge(question(seeds=8), arm(steady), {"b": arm(wild)})) == (Kind.CANNOT_DECIDE, Why.SHAPE)


def test_equivalence_is_shared_among_all_arms() -> None:
    generator, wrong = np.random.default_rng(11), 0
    for _ in range(400):
        reference = arm(generator.normal(0, 0.5, 8).tolist())
        others = {name: arm(generator.normal(1, 0.5, 8).tolist()) for name in "bcd"}
        wrong += any(found.kind is Kind.EQUIVALENT for found in judge(question(seeds=8), reference, others).values())
    assert wrong / 400 <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)


def test_paired_seeds_are_compared_seed_by_seed() -> None:
    layouts = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    better = [value + 2.0 + 0.1 * place for place, value in enumerate(layouts)]
    alone = question(seeds=7)
    assert only(judge(alone, arm(layouts), {"b": arm(better)})) == (Kind.CANNOT_DECIDE, Why.NOT_SIGNIFICANT)
    assert only(judge(replace(alone, paired=True), arm(layouts), {"b": arm(better)})) == (Kind.BETTER, Why.DECIDED)


def test_five_pairs_can_never_decide() -> None:
    found = judge(replace(question(), paired=True), arm(LOW), {"b": arm(HIGH)})
    assert only(found) == (Kind.CANNOT_DECIDE, Why.TOO_FEW_SEEDS)


def test_holm_is_taken_over_all_declared_arms() -> None:
    shifted = [value + 1.4 for value in [1.0, 2.0, 3.0, 2.5, 1.5]]
    alone = judge(question(), arm([1.0, 2.0, 3.0, 2.5, 1.5]), {"b": arm(shifted)})
    many = {f"x{number}": arm([1.0 + number, 2.0, 3.0, 2.5, 1.6]) for number in range(6)}
    together = judge(question(), arm([1.0, 2.0, 3.0, 2.5, 1.5]), {"b": arm(shifted)} | many)
    assert alone["b"].level > together["b"].level


def test_the_first_look_that_decides_counts() -> None:
    reference = arm(LOW + [100.0] * 5)
    treatment = arm(HIGH + [-100.0] * 5)
    verdicts = judge(question(5, 10), reference, {"b": treatment})
    assert verdicts["b"].kind is Kind.BETTER
    assert verdicts["b"].seeds == 5


@pytest.mark.parametrize("values", [[1.0] * 6, [0.01, 0.02, 0.03, 0.04, 0.05, 20.0]])
def test_an_early_stop_without_spread_has_no_corrected_difference(values: list[float]) -> None:
    (verdict,) = judge(question(6, 20, margin=0.1), arm([0.0] * 6), {"b": arm(values)}).values()
    assert verdict.kind is Kind.BETTER and verdict.stopped_early and verdict.adjusted_difference is None


def test_an_early_stop_beside_an_arm_without_spread_is_corrected_where_the_interval_shows_it() -> None:
    (verdict,) = judge(question(6, 20), arm([0.0] * 6), {"b": arm([4.0, 5.0, 6.0, 4.5, 5.5, 4.8])}).values()
    assert verdict.adjusted_difference is not None and 4.0 < verdict.adjusted_difference < 5.0


def test_seeds_between_two_looks_are_not_used() -> None:
    generator = np.random.default_rng(2)
    reference, treatment = arm(list(generator.normal(0, 1, 7))), arm(list(generator.normal(0, 1, 7)))
    at_five = judge(question(5, 10), dict(list(reference.items())[:5]), {"b": dict(list(treatment.items())[:5])})
    assert judge(question(5, 10), reference, {"b": treatment}) == at_five


def test_false_verdicts_stay_within_the_error_rate() -> None:
    generator = np.random.default_rng(17)
    fixed = sequential = 0
    studies = 400
    for _ in range(studies):
        reference, treatment = (arm(list(generator.standard_normal(15))) for _ in range(2))
        fixed += judge(question(5, margin=0.1), reference, {"b": treatment})["b"].why is Why.DECIDED
        sequential += judge(question(5, 15, margin=0.1), reference, {"b": treatment})["b"].why is Why.DECIDED
    assert fixed / studies <= 0.075
    assert sequential / studies <= 0.075


def test_seeds_are_planned_with_the_upper_bound_of_the_spread() -> None:
    plan = plan_seeds(1.0, 8, question(), hypotheses=1)
    assert plan is not None
    assert plan.seeds_per_arm_at_sd == 17
    assert plan.seeds_per_arm is not None and plan.seeds_per_arm > 17
    assert plan_seeds(0.0, 8, question(), 1) is None
    assert plan_seeds(None, 0, question(), 1) is None


def test_seeds_are_planned_with_the_level_that_several_looks_leave() -> None:
    asked, generator, studies = question(5, 15, margin=1.25), np.random.default_rng(5), 2000
    plan = plan_seeds(1.0, 10**6, asked, 1)
    assert plan is not None and plan.seeds_per_arm_at_sd is not None
    alone = plan_seeds(1.0, 10**6, question(5, margin=1.25), 1)
    assert alone is not None and (alone.seeds_per_arm_at_sd or 0) < plan.seeds_per_arm_at_sd <= 15
    reference, treatment = generator.standard_normal((studies, 15)), generator.standard_normal((studies, 15)) + 1.25
    found = np.zeros(studies, dtype=bool)
    for number, seeds in enumerate(asked.plan.looks):
        p = scipy.stats.ttest_ind(treatment[:, :seeds], reference[:, :seeds], axis=1, equal_var=False).pvalue
        found |= p <= asked.plan.level(number)
    assert found.mean() >= 0.8


values = st.dictionaries(st.integers(0, 8), st.floats(width=64))


@settings(max_examples=200, deadline=None)
@given(values, st.dictionaries(st.sampled_from("bcd"), values, min_size=1), st.sampled_from([1, 2, 3, 5]))
def test_no_table_yields_an_unsupported_verdict(
    reference: dict[int, float], arms: dict[str, dict[int, float]], seeds: int
) -> None:
    for name, verdict in judge(question(seeds, 8), reference, arms).items():
        if verdict.kind is Kind.CANNOT_DECIDE:
            assert verdict.why is not Why.DECIDED
            continue
        used = range(verdict.seeds)
        numbers = np.array([[reference[seed], arms[name][seed]] for seed in used])
        assert np.isfinite(numbers).all() and len(numbers) >= 3
        assert np.ptp(numbers, axis=0).min() > 0


@pytest.mark.parametrize("seeds", [4, 5])
def test_the_direction_of_a_verdict_is_the_direction_of_the_means(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    for _ in range(100):
        reference, treatment = generator.normal(0, 1, seeds), generator.normal(1.5, 2, seeds)
        verdict = judge(question(seeds), arm(list(reference)), {"b": arm(list(treatment))})["b"]
        if verdict.kind in (Kind.BETTER, Kind.WORSE):
            assert (verdict.kind is Kind.BETTER) == (treatment.mean() > reference.mean())
