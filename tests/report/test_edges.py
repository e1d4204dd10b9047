"""Seeds without spread, limits that nothing can show, values of unusual size: no sentence claims more than they do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamproof.base.files import write_json
from dreamproof.report import make_context
from dreamproof.report.context import ReportContext
from dreamproof.report.documents.appendix import appendix
from dreamproof.report.documents.decision import decision
from dreamproof.report.documents.defense import defense
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.headline import headline
from dreamproof.report.lints.lint import NOTE, Lint
from dreamproof.report.markdown import render_markdown
from dreamproof.report.numbers import decimals_for, number_text, plain
from dreamproof.report.prose import answer
from dreamproof.report.tables import verdict_records
from dreamproof.settings.study_file import read_study
from dreamproof.testing.made_study import Plan, make_study

LOW, HIGH = (1.0, 2.0, 3.0, 4.0, 5.0), (9.0, 9.1, 9.3, 9.2, 9.4)
Make = Callable[..., Path]


def rows(condition: str, metric: str, **arms: tuple[float, ...]) -> str:
    return "".join(
        f"{arm},{seed},{condition},final,{metric},{value!r}\n"
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    )


def context_of(root: Path) -> ReportContext:
    return make_context(root, "en", read_study(root / "study.yaml"))


def page(context: ReportContext) -> str:
    return render_markdown(decision(context, []), context.numbers, "figures")


def test_a_limit_that_is_kept_under_another_condition_only_is_not_shown_to_be_kept(imported_study: Make) -> None:
    zeros = (0.0,) * 5
    scores = rows("id", "score", a=LOW, b=HIGH, c=LOW[::-1]) + rows("shifted", "score", a=LOW, b=HIGH, c=LOW[::-1])
    root = imported_study(
        scores + rows("shifted", "cost", a=zeros, b=zeros, c=zeros), constraint="{name: cost, at_most: 5}"
    )
    context = context_of(root)
    assert "`b` is **better** than `a`, but **not shown to keep the limit**" in headline(context)
    assert "cost was not measured under id" in answer(context)
    assert context.analysis.winners == []
    assert not any(step.startswith("Use") for step in next_steps(context))
    assert "limit under shifted" in page(context)


def test_no_number_of_seeds_shows_that_a_limit_of_zero_is_kept(imported_study: Make) -> None:
    zeros = (0.0,) * 5
    costs = rows("id", "cost", a=zeros, b=zeros, c=(0.0, 0.0, 0.0, 0.0, 9.0))
    root = imported_study(
        rows("id", "score", a=LOW, b=HIGH, c=LOW[::-1]) + costs, constraint="{name: cost, at_most: 0}"
    )
    context = context_of(root)
    assert context.analysis.constrained["b"].verdict.bounds is None
    assert context.analysis.constrained["c"].breaks
    assert "no number of seeds can show that a limit of 0 is kept" in answer(context)


def test_seeds_without_spread_have_no_interval(imported_study: Make) -> None:
    root = imported_study(rows("id", "score", a=(0.0,) * 5, b=(5.0,) * 5, c=LOW))
    context = context_of(root)
    text = plain(answer(context), context.numbers)
    assert "+5.000 (no interval: within each arm all seeds are equal, exact p (Holm) = 0.016" in text
    assert "[5.000, 5.000]" not in page(context)
    (record,) = [each for each in verdict_records(context.analysis)["verdicts"] if each["arm"] == "b"]  # type: ignore[attr-defined]
    assert record["interval"] is None


def test_small_values_and_small_differences_of_large_values_are_not_printed_as_zero(imported_study: Make) -> None:
    small = tuple(1e-4 * value for value in LOW), tuple(1e-4 * value for value in HIGH)
    assert "0.00030" in page(context_of(imported_study(rows("id", "score", a=small[0], b=small[1], c=small[0][::-1]))))
    large = tuple(1e6 + 0.01 * value for value in LOW), tuple(1e6 + 0.01 * value for value in HIGH)
    text = page(context_of(imported_study(rows("id", "score", a=large[0], b=large[1], c=large[0][::-1]))))
    assert "1000000.030 ± 0.016" in text and "+0.062 [0.042, 0.082]" in text


@pytest.mark.parametrize(("values", "decimals"), [([25.0], 2), ([0.5], 3), ([0.05], 5), ([3e-4], 7), ([0.0], 3)])
def test_decimals_follow_the_size_of_values(values: list[float], decimals: int) -> None:
    assert decimals_for(values) == decimals
    assert number_text(6.2e-30, 3) == "6.2e−30" and number_text(0.0, 3) == "0.000"


def test_values_too_large_to_compute_with_are_called_so(imported_study: Make) -> None:
    huge = rows("id", "score", a=tuple(1e300 * v for v in LOW), b=tuple(1e300 * v for v in HIGH), c=LOW)
    assert "or too large to compute with" in headline(context_of(imported_study(huge)))


def test_a_study_of_one_arm_has_nothing_to_decide(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(arms=("full",), seeds=3, curves=False)), "en")
    assert next_steps(context) == ["Nothing to decide: the study has one arm."]
    assert not [lint for lint in context.analysis.lints if lint.code in ("never_significant", "hopeless_plan")]


def test_the_page_explains_no_column_that_it_does_not_have(tmp_path: Path) -> None:
    plan = Plan(seeds=2, constraint=None, curves=False)
    text = page(make_context(make_study(tmp_path / "study", plan), "en"))
    assert "Worst tenth" not in text and "worst seed" in text


def test_an_arm_whose_task_has_no_cost_keeps_no_limit(tmp_path: Path) -> None:
    """Its evaluations hold zeros, and say that the task has no cost."""
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), curves=False))
    for path in (root / "runs").glob("full-seed*/evaluations/*.json"):
        record = json.loads(path.read_text())
        for made in record["checkpoints"].values():
            made["episodes"]["cost"] = [0.0] * len(made["episodes"]["cost"])
        write_json(path, record | {"has_cost": False})
    context = make_context(root, "en")
    text = page(context) + render_markdown(defense(context), context.numbers)
    assert text.count("`full` keeps the limit") == text.count("Cannot tell whether `full` keeps the limit")
    assert "Cannot tell whether `full` keeps the limit: cost was not measured under id." in text
    assert "full" not in context.analysis.limits and "baseline" in context.analysis.limits


@pytest.mark.parametrize("count", [0, 2])
def test_the_page_counts_notes_where_it_has_no_warning(tmp_path: Path, count: int) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(curves=False)), "en")
    context.analysis.lints[:] = [Lint("few_seeds", NOTE, {"seeds": 5})] * count
    text = page(context)
    expected = "No warning; notes in the appendix: 2." if count else "No warning."
    assert expected in text and "No lint" not in text
    behind = render_markdown(appendix(context, []), context.numbers)
    assert ("No lint." in behind) == (count == 0)


def test_one_comparison_is_not_several(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), curves=False))
    context = make_context(root, "en")
    text = page(context) + render_markdown(appendix(context, []), context.numbers)
    assert "1 comparisons" not in text and "Holm (comparisons: 1)" in text


def test_one_seed_has_no_p_and_warnings_name_their_place(tmp_path: Path) -> None:
    one = page(make_context(make_study(tmp_path / "one", Plan(seeds=1, curves=False)), "en"))
    assert "1.000 | n = 1 per arm" not in one and "| – | n = 1 per arm" in one
    five = page(make_context(make_study(tmp_path / "five", Plan(curves=False)), "en"))
    assert "proxy, not OOD (hallu2)" in five
