"""Arms on different tasks are not compared: each is reported by itself, and nothing is decided about them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.report import make_context, next_seeds, plain_answer, write_all
from dreamproof.report.context import ReportContext
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.headline import headline
from dreamproof.report.language import LANGUAGES
from dreamproof.report.lints.lint import NOTE
from dreamproof.report.numbers import plain
from dreamproof.report.tables import verdict_records
from dreamproof.runs.layout import StudyFolder
from dreamproof.testing.made_study import Plan, make_study

APART = {"arms": {"baseline": {}, "full": {"task": "point_button"}}}
MIXED = {"arms": {"baseline": {}, "full": {"risk": 1}, "u_only": {"task": "point_button"}}}
EMPTY = tuple(f"full/{seed}" for seed in range(5))


def made(root: Path, more: dict[str, Any], language: str = "en", **changes: Any) -> ReportContext:
    plan = Plan(more=more, arms=tuple(more["arms"]), **({"constraint": None, "deaths": False} | changes))
    return make_context(make_study(root / "study", plan), language)


def text_of(context: ReportContext) -> str:
    return plain(headline(context), context.numbers)


def documents(context: ReportContext) -> dict[str, str]:
    root = context.analysis.evidence.folder.root
    write_all(root, context.texts.language, figures=False)
    places = StudyFolder(root).reports_in(context.texts.language).glob("*.md")
    return {place.stem: place.read_text(encoding="utf-8") for place in places}


def test_the_answer_is_the_result_of_every_arm(tmp_path: Path) -> None:
    context = made(tmp_path, APART)
    first, second = (context.analysis.summaries[context.analysis.primary(arm)] for arm in ("baseline", "full"))
    assert text_of(context) == (
        f"In return under id, mean ± sd over seeds: `baseline` {first.mean:.2f} ± {first.sd:.2f} (5 seeds); "
        f"`full` {second.mean:.2f} ± {second.sd:.2f} (5 seeds). "
        "The arms have different tasks, so they are not compared."
    )
    assert plain_answer(context.analysis.evidence.folder.root) == text_of(context).replace("`", "")


def test_nothing_is_compared_and_no_lint_forbids_a_verdict(tmp_path: Path) -> None:
    context = made(tmp_path, APART)
    analysis = context.analysis
    assert (analysis.treatments, analysis.verdicts, analysis.comparisons) == ([], {}, {})
    assert {lint.code: lint.level for lint in analysis.lints}["different_tasks"] == NOTE
    assert not [lint for lint in analysis.lints if lint.level == "block"]
    assert not [key for key in context.numbers.by_key if key.startswith(("versus.", "plan."))]
    assert next_steps(context) == ["Nothing to decide: the arms have different tasks and are not compared."]
    assert verdict_records(analysis)["verdicts"] == [] and verdict_records(analysis)["not_compared"] == ["full"]
    assert next_seeds(analysis.evidence.folder.root).reason == "not_compared"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_document_speaks_of_a_comparison(tmp_path: Path, language: str) -> None:
    context = made(tmp_path, APART, language)
    texts, found = context.texts, documents(context)
    for key in ("verdict.cannot_decide", "step.nothing", "defense.q_significant", "summary.difference"):
        assert [name for name, text in found.items() if texts(key) in text] == [], key
    assert f"## {texts('decision.verdicts')}" not in found["decision"]
    assert all("Holm" not in text for text in found.values())
    for name in ("decision", "appendix", "money", "status", "defense", "record"):
        assert texts("answer.not_compared") in found[name], name


def test_an_arm_that_was_not_run_is_named_as_missing(tmp_path: Path) -> None:
    context = made(tmp_path, APART, missing=EMPTY)
    assert "`full` no value yet (0 of 5 seeds)" in text_of(context)
    assert "Partial study." in documents(context)["decision"]
    assert next_steps(context)[0].startswith("Train the 5 missing cells")
    assert not any("seeds per arm are needed" in step for step in next_steps(context))
    assert not any(lint.code == "different_counts" for lint in context.analysis.lints)


def test_seeds_that_are_missing_are_counted(tmp_path: Path) -> None:
    assert "(3 of 5 seeds)" in text_of(made(tmp_path, APART, missing=EMPTY[:2]))


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    assert text_of(made(tmp_path, APART, seeds=1)).startswith("In return under id, one seed per arm: `baseline` ")


def test_many_arms_are_left_to_the_key_table(tmp_path: Path) -> None:
    arms = {f"arm{number}": {"task": f"task{number}"} for number in range(8)}
    context = made(tmp_path, {"arms": arms}, missing=("arm3/0", "arm3/1"), seeds=2)
    assert text_of(context) == (
        "The key table shows return under id for each of the 8 arms. 1 of them have no value yet. "
        "The arms have different tasks, so they are not compared."
    )


def test_arms_of_the_references_task_are_compared_as_before(tmp_path: Path) -> None:
    context = made(tmp_path, MIXED)
    alone = made(tmp_path / "alone", {"arms": {name: MIXED["arms"][name] for name in ("baseline", "full")}})
    assert context.analysis.verdicts == alone.analysis.verdicts and list(context.analysis.verdicts) == ["full"]
    key = "versus.full.id.holm_p"
    assert context.numbers.by_key[key] == alone.numbers.by_key[key]
    assert text_of(context).startswith(text_of(alone).rstrip(".") + ". On other tasks than `baseline` and not compared")
    assert "`u_only`" in text_of(context) and "(5 seeds)" in text_of(context)
    found = documents(context)
    assert "| u_only | **" not in found["decision"] and "compared with it: full. On other tasks" in found["appendix"]


def test_what_is_missing_of_an_uncompared_arm_forbids_no_verdict(tmp_path: Path) -> None:
    levels = {}
    for arm in ("full", "u_only"):
        lints = made(tmp_path / arm, MIXED, missing=(f"{arm}/0",)).analysis.lints
        levels[arm] = {lint.code: lint.level for lint in lints}["incomplete_training"]
    assert levels == {"full": "block", "u_only": "warn"}


def test_equal_values_on_two_tasks_are_no_sign_of_an_inert_setting(tmp_path: Path) -> None:
    full = {"return": np.ones(10), "cost": np.zeros(10)}
    context = made(tmp_path, MIXED, draw=lambda generator, arm, seed, condition: full)
    same = [lint.facts["arms"] for lint in context.analysis.lints if lint.code == "constant_arms"]
    assert same == ["baseline, full"] * 3


def test_an_arm_that_breaks_a_limit_is_named(tmp_path: Path) -> None:
    context = made(tmp_path, APART, constraint={"name": "cost", "at_most": 5.0})
    assert "`baseline` breaks the limit" in text_of(context)
