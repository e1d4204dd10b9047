"""Every number belongs to the sentence beside it; every next step is allowed by the plan and the limit."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dreamproof.report import make_context, write_all
from dreamproof.report.analysis import analyse
from dreamproof.report.context import ReportContext
from dreamproof.report.documents.decision import verdict_note
from dreamproof.report.documents.defense import _trained
from dreamproof.report.documents.money import in_short
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.documents.summary import summary_table, verdicts_table
from dreamproof.report.headline import headline
from dreamproof.report.numbers import p_text, plain, register
from dreamproof.report.prose import limit_sentences, verdict_sentence
from dreamproof.report.rounding import digits_apart
from dreamproof.report.tables import verdict_records
from dreamproof.stats.verdict import Kind, Why

Study = Callable[..., Path]
CALM = [1.0, 1.2, 0.9, 1.1, 1.05, 0.95, 1.15, 1.02]
LIMIT = "{name: cost, at_most: 5}"


def rows(arms: dict[str, list[float]], metric: str = "score", condition: str = "id") -> str:
    return "".join(
        f"{arm},{seed},{condition},final,{metric},{value}\n"
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    )


def moved(by: float, seeds: int = 8) -> list[float]:
    return [round(value * 1.01 + by, 6) for value in reversed(CALM[:seeds])]


def context_of(imported_study: Study, arms: dict[str, list[float]], more: str = "", **changes: str) -> ReportContext:
    full = {"a": CALM, "c": [round(value + 0.011, 6) for value in CALM], **arms}
    seeds = int(changes.setdefault("seeds", "8"))
    shifted = {arm: values[:seeds] for arm, values in full.items()}
    return make_context(imported_study(rows(full) + rows(shifted, condition="shifted") + more, **changes), "en")


def test_undeclared_seeds_count_nowhere_and_are_named(imported_study: Study) -> None:
    context = context_of(imported_study, {"b": moved(5)}, seeds="5")
    found = context.analysis.comparisons[context.analysis.primary("b")]
    assert (found.treatment_seeds, found.reference_seeds, found.permutation_p) == (5, 5, pytest.approx(2 / 252))
    named = {lint.code: lint.facts for lint in context.analysis.lints}["undeclared_seeds"]["cells"]
    assert "a/5" in str(named) and "b/7" in str(named)


def test_a_verdict_shows_the_numbers_of_its_own_look(imported_study: Study) -> None:
    first = moved(5, 5)
    context = context_of(imported_study, {"b": [*first, -90.0, 80.0, 3.0]}, seeds="8", maximum_seeds="8")
    analysis = context.analysis
    analysis.evidence.declared_before_results = analysis.evidence.study.model_copy(update={"seeds": [0, 1, 2, 3, 4]})
    analysis = analyse(analysis.evidence)
    context = ReportContext(analysis, register(analysis), context.texts)
    assert (analysis.verdicts["b"].kind, analysis.verdicts["b"].seeds) == (Kind.BETTER, 5)
    difference = analysis.difference("b")
    assert difference is not None and difference.mean == pytest.approx(np.mean(first) - np.mean(CALM[:5]))
    assert "5 seeds per arm" in plain(verdict_sentence(context, "b"), context.numbers)
    assert "exact p (Holm) = 0.016" in plain(verdict_sentence(context, "b"), context.numbers)
    assert all("/7@" not in cell for cell in context.numbers.by_key["versus.b.id.difference"].cells)
    assert "planned look (5" in verdict_note(context) and "† Decided at an early look" in verdict_note(context)
    assert verdicts_table(context).rows[0][1] == "**better** †"
    record = verdict_records(analysis)["verdicts"][0]
    assert record["seeds"] == 5 and record["difference_after_stopping"] == analysis.verdicts["b"].adjusted_difference


def test_an_early_verdict_without_spread_says_that_nothing_can_be_corrected(imported_study: Study) -> None:
    flat = {"a": [1.0] * 6, "b": [9.0] * 6, "c": [1.0] * 5 + [1.1]}
    context = context_of(imported_study, flat, seeds="6", maximum_seeds="12")
    text = plain(verdict_sentence(context, "b"), context.numbers)
    assert "Decided at 6 of at most 12 seeds." in text and "cannot be corrected" in text
    assert "†" in verdicts_table(context).rows[0][1] and "or says why there is none" in verdict_note(context)
    record = next(one for one in verdict_records(context.analysis)["verdicts"] if one["arm"] == "b")  # type: ignore[attr-defined]
    assert record["difference_after_stopping"] is None


def test_an_equivalent_arm_that_breaks_the_limit_is_no_choice(imported_study: Study) -> None:
    cost = {"a": [0.5] * 8, "b": [0.5] * 8, "c": [20.0] * 8}
    context = context_of(imported_study, {"b": moved(0)}, rows(cost, "cost"), constraint=LIMIT)
    assert {verdict.kind for verdict in context.analysis.verdicts.values()} == {Kind.EQUIVALENT}
    steps = next_steps(context)
    assert "Choose between `b` and `a` by price or simplicity: they are equivalent." in steps
    assert any("Do not use `c` unchanged" in step for step in steps)
    assert "`c` is **equivalent** to `a`, but shown to **break the limit**" in headline(context)
    assert "not on this p" in verdict_note(context)


def test_an_equivalent_arm_that_alone_keeps_the_limit_is_preferred(imported_study: Study) -> None:
    cost = {"a": [20.0] * 8, "b": [0.5] * 8, "c": [4.9] * 8}
    context = context_of(imported_study, {"b": moved(0)}, rows(cost, "cost"), constraint=LIMIT)
    steps = "\n".join(next_steps(context))
    assert "Prefer `b` to `a`" in steps and "`c`: equivalent to `a` in the deciding metric, but not shown" in steps


def test_two_tests_that_disagree_are_named(imported_study: Study) -> None:
    collapsed = [9.0, 9.2, 9.1, 9.3, 8.9, 9.05, 2.0, 2.2]
    context = context_of(imported_study, {"a": collapsed, "b": [10 + v / 10 for v in CALM], "c": [*collapsed[1:], 9.0]})
    assert context.analysis.verdicts["b"].why is Why.INTERVAL_DISAGREES
    assert "the exact test separates the arms" in verdict_sentence(context, "b")


def test_overlapping_groups_are_not_judged_by_their_mean_even_without_a_difference(imported_study: Study) -> None:
    context = context_of(imported_study, {"b": [9.0, 9.2, 9.1, 9.3, 8.9, 9.0, 1.0, 1.1]})
    assert context.analysis.verdicts["b"].why is Why.SHAPE
    steps = next_steps(context)
    assert any("about `b` by the mean" in step and "at least 20 seeds per arm (40 cells" in step for step in steps)
    assert not any("fresh seeds" in step for step in steps)


def test_no_step_asks_for_seeds_that_the_plan_forbids(imported_study: Study) -> None:
    wide = [float(value) for value in np.random.default_rng(3).normal(1, 1, 8)]
    gap = context_of(imported_study, {"b": wide[:7]})
    assert any("A new study of the" in step for step in next_steps(gap))
    assert not any("more in" in step for step in next_steps(gap))
    apart = {"a": [0.0, 2.0, 4.0, 6.0, 8.0], "b": [1.0, 3.0, 5.0, 7.0, 9.0], "c": [0.5, 2.5, 4.5, 6.5, 9.5]}
    small = context_of(imported_study, apart, seeds="5", maximum_seeds="6")
    assert any("The plan ends at 6 seeds per arm" in step for step in next_steps(small))


def test_a_limit_that_more_seeds_would_show_needs_a_new_study(imported_study: Study) -> None:
    cost = {"a": [0.5] * 8, "b": [3.0, 3.1, 2.9, 3.2, 3.0, 3.1, 2.9, 3.0], "c": [0.5] * 8}
    context = context_of(imported_study, {"b": moved(5)}, rows(cost, "cost"), constraint=LIMIT)
    assert any("keeps the limit: a new study with about" in step for step in next_steps(context))
    assert (
        any("no price declared" in step for step in next_steps(context)) or not context.analysis.spending.price_per_cell
    )


def test_doubtful_values_ask_for_their_cause_not_for_seeds(imported_study: Study) -> None:
    context = context_of(imported_study, {"b": CALM})
    assert not any("fresh seeds" in step or "more in" in step for step in next_steps(context))


def test_several_better_arms_are_not_all_to_be_used(imported_study: Study) -> None:
    steps = next_steps(context_of(imported_study, {"b": moved(5), "c": moved(9)}))
    assert steps == [next(step for step in steps if "were not compared with each other" in step)]


def test_the_mean_over_other_conditions_leaves_the_deciding_one_out(imported_study: Study) -> None:
    root = imported_study(rows(dict.fromkeys("abc", CALM)) + rows({arm: moved(9) for arm in "abc"}, "score", "shifted"))
    text = (root / "study.yaml").read_text()
    (root / "study.yaml").write_text(
        text.replace("{name: id, kind: in_distribution}, {name: shifted, kind: genuine}", "id, shifted")
    )
    context = make_context(root, "en")
    assert context.analysis.other_conditions == ("unknown", ["shifted"])
    assert summary_table(context).header[2] == "score · shifted"


def test_an_explained_peak_is_a_result(imported_study: Study) -> None:
    root = imported_study(rows({"a": CALM, "b": moved(5), "c": moved(1)}, "peak_height"), seeds="8")
    text = (root / "study.yaml").read_text()
    rule = "name: peak_height, checkpoint_rule: the last one"
    (root / "study.yaml").write_text(text.replace("name: score", rule))
    assert summary_table(make_context(root, "en")).header[1] == "peak_height · id"


def test_pairs_are_shown_by_their_own_difference(imported_study: Study) -> None:
    root = imported_study(rows({"a": [*CALM[:7], 90.0], "b": moved(5, 7), "c": CALM}), seeds="8")
    text = (root / "study.yaml").read_text()
    (root / "study.yaml").write_text(text + "paired_seeds: true\n")
    context = make_context(root, "en")
    expected = float(np.mean(moved(5, 7)) - np.mean(CALM[:7]))
    assert plain(verdicts_table(context).rows[0][2], context.numbers).startswith(f"+{expected:.2f}"[:4])
    shown = context.analysis.difference("b")
    assert shown is not None and shown.mean == pytest.approx(expected) and shown.interval is not None
    assert shown.interval.low < expected < shown.interval.high


def test_a_bound_has_the_digits_that_show_on_which_side_of_the_limit_it_lies(imported_study: Study) -> None:
    skewed = [13.0, 14.0, 15.0, 20.0, 26.0, 33.0, 45.0, 124.0]
    cost = {"a": [0.5] * 8, "b": skewed, "c": [0.5] * 8}
    context = context_of(imported_study, {"b": moved(5)}, rows(cost, "cost"), constraint="{name: cost, at_most: 1}")
    low = context.analysis.constrained["b"].verdict.bounds
    assert low is not None
    near = context_of(
        imported_study, {"b": moved(5)}, rows(cost, "cost"), constraint=f"{{name: cost, at_most: {low.low - 0.4:.2f}}}"
    )
    shown = plain(limit_sentences(near)[1], near.numbers.rounded)
    assert f"lower bound {low.low:.2f}" in shown or f"lower bound {low.low:.1f}" in shown


@pytest.mark.parametrize("above", [0.0004, -0.0004])
def test_a_bound_close_to_the_limit_is_never_shown_as_the_limit(imported_study: Study, above: float) -> None:
    skewed = [13.0, 14.0, 15.0, 20.0, 26.0, 33.0, 45.0, 124.0]
    cost = rows({"a": [0.5] * 8, "b": skewed, "c": [0.5] * 8}, "cost")
    first = context_of(imported_study, {"b": moved(5)}, cost, constraint="{name: cost, at_most: 1}")
    bounds = first.analysis.constrained["b"].verdict.bounds
    assert bounds is not None
    limit = bounds.low + above
    near = context_of(imported_study, {"b": moved(5)}, cost, constraint=f"{{name: cost, at_most: {limit:.15g}}}")
    for numbers in (near.numbers, near.numbers.rounded):
        shown = plain(near.numbers.token("limit.b.id.cost_low"), numbers)
        assert (float(shown) > limit) == (above < 0)
    assert f"{limit:.15g}" in plain(limit_sentences(near)[1], near.numbers)


def test_ends_of_an_interval_are_shown_on_their_side_of_what_they_are_compared_with(imported_study: Study) -> None:
    context = context_of(imported_study, {"b": moved(5)})
    found = context.analysis.difference("b")
    assert found is not None and found.interval is not None
    place, metric = context.analysis.evidence.study, context.analysis.evidence.study.metric
    margin = found.interval.low + 0.00004
    context.analysis.evidence.study = place.model_copy(
        update={"metric": metric.model_copy(update={"smallest_difference": margin})}
    )
    numbers = register(context.analysis)
    for shown in (numbers, numbers.rounded):
        assert float(plain(shown.token("versus.b.id_low"), shown)) < margin


@pytest.mark.parametrize(("p", "text"), [(0.0504, "0.0504"), (0.0496, "0.0496"), (0.05, "0.050"), (0.0312, "0.031")])
def test_a_p_is_shown_on_its_side_of_the_level(p: float, text: str) -> None:
    assert p_text(p, 0.05) == text


def test_two_numbers_of_which_one_is_larger_are_not_shown_as_equal() -> None:
    assert (digits_apart(0.0286, 0.02856, 3), digits_apart(0.1, 0.017, 3)) == (5, 3)
    assert (digits_apart(0.00794, 0.00793, 2, "g"), digits_apart(1.0, 1.0, 2)) == (3, 2)


def test_a_proven_cell_without_steps_is_as_long_as_declared(imported_study: Study) -> None:
    cells = "\n".join(f"{arm},{seed},proven," for arm in "abc" for seed in range(8))
    root = imported_study(rows({"a": CALM, "b": moved(5), "c": moved(1)}), cells, seeds="8")
    assert make_context(root, "en").analysis.spending.missing_cells == 0


def test_languages_do_not_overwrite_each_others_tables(imported_study: Study) -> None:
    root = imported_study(rows({"a": CALM, "b": moved(5), "c": moved(1)}), seeds="8")
    for language in ("en", "zh-Hant"):
        write_all(root, language, figures=False)
    tables = root / "tables"
    assert (tables / "main_results.tex").read_text().count("arm &") == 1
    assert "配置 &" in (tables / "zh-Hant" / "main_results.tex").read_text()


def test_verdicts_for_programs_hold_every_condition_of_the_limit(imported_study: Study) -> None:
    cost = {arm: [0.5] * 8 for arm in "abc"}
    more = rows(cost, "cost") + rows(cost, "cost", "shifted")
    root = imported_study(rows({"a": CALM, "b": moved(0), "c": moved(5)}) + more, seeds="8", constraint=LIMIT)
    write_all(root, figures=False)
    found = json.loads((root / "tables" / "verdicts.json").read_text())
    assert {(one["arm"], one["condition"]) for one in found["limits"]} == {
        (a, c) for a in "abc" for c in ("id", "shifted")
    }
    by_arm = {one["arm"]: one for one in found["verdicts"]}
    assert by_arm["b"]["verdict"] == "equivalent" and by_arm["b"]["p_equivalent"] < 0.05 < by_arm["b"]["p"]
    assert by_arm["c"]["p_equivalent"] is None


def test_no_price_is_not_a_price_of_zero(imported_study: Study) -> None:
    context = context_of(imported_study, {"b": moved(5)})
    assert "no price is declared" in plain(in_short(context), context.numbers)
    assert "None of the 24 trained cells" in plain(_trained(context), context.numbers)
