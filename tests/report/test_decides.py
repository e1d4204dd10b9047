"""A decision over several conditions, subject to the limit under them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.report import make_context, write_all
from dreamproof.report.data import Group
from dreamproof.report.prose import answer_points
from dreamproof.settings.study import Study
from dreamproof.stats.verdict import Kind
from dreamproof.testing.made_study import Plan, declaration, make_study

JOINT = {"decides": {"conditions": ["id", "mass_x2"]}}


def shifted_gain(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
    """`full` is equal in distribution and better under the genuine shift; `wild` is better everywhere at a cost."""
    gain = {"full": {"mass_x2": 6.0}, "wild": {"id": 6.0, "mass_x2": 6.0}}.get(arm, {}).get(condition, 0.0)
    cost = 30.0 if (arm, condition) == ("wild", "mass_x2") else 0.0
    return {"return": generator.normal(gain, 0.5, 10), "cost": np.full(10, cost)}


def study(root: Path, more: dict[str, Any] | None = None, **changes: Any) -> Path:
    arms = ("baseline", "full", "wild")
    return make_study(
        root, Plan(arms=arms, draw=shifted_gain, curves=False, more=JOINT if more is None else more, **changes)
    )


def test_the_mean_over_the_declared_conditions_decides(tmp_path: Path) -> None:
    alone = make_context(study(tmp_path / "alone", {}), "en").analysis
    joint = make_context(study(tmp_path / "joint"), "en").analysis
    assert alone.verdicts["full"].kind is not Kind.BETTER
    assert joint.verdicts["full"].kind is Kind.BETTER
    value = joint.evidence.values[joint.primary("full")][0]
    parts = [joint.evidence.values[Group("full", name, "return")][0] for name in ("id", "mass_x2")]
    assert value == pytest.approx(np.mean(parts))


def test_an_arm_that_is_not_shown_to_keep_the_limit_everywhere_cannot_win(tmp_path: Path) -> None:
    context = make_context(study(tmp_path / "study"), "en")
    assert context.analysis.verdicts["wild"].kind is Kind.BETTER
    assert context.analysis.constrained["wild"].breaks and context.analysis.constrained["wild"].condition == "mass_x2"
    assert context.analysis.winners == ["full"]
    wins = "By the declared rule `full` wins: better, and shown to keep the limit under id, mass_x2."
    assert answer_points(context)[-1] == wins
    only_id = make_context(
        study(tmp_path / "id", {"decides": {"conditions": ["id", "mass_x2"], "limits": ["id"]}}), "en"
    )
    assert only_id.analysis.winners == ["full", "wild"]


def test_no_arm_wins_if_none_keeps_the_limit(tmp_path: Path) -> None:
    root = study(tmp_path / "study", constraint={"name": "cost", "at_most": 0.0})
    context = make_context(root, "en")
    assert context.analysis.winners == []
    assert answer_points(context)[-1].startswith("By the declared rule no arm wins")


def test_a_condition_that_repeats_another_counts_once(tmp_path: Path) -> None:
    def repeated(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
        names = ("baseline", "full", "wild")
        place = 0 if condition == "id" else 1
        own = np.random.default_rng((seed, names.index(arm), place))
        return {"return": own.normal(3.0 * place, 0.5, 10), "cost": np.zeros(10)}

    plan = Plan(
        arms=("baseline", "full", "wild"),
        draw=repeated,
        curves=False,
        more={"decides": {"conditions": ["id", "hallu2", "mass_x2"]}},
    )
    evidence = make_context(make_study(tmp_path / "study", plan), "en").analysis.evidence
    assert evidence.deciding_conditions == ["id", "hallu2"]


def test_a_missing_evaluation_under_any_declared_condition_blocks(tmp_path: Path) -> None:
    root = study(tmp_path / "study", missing_evals=(("full/1", "mass_x2"),))
    assert make_context(root, "en").analysis.verdicts["full"].kind is Kind.CANNOT_DECIDE


@pytest.mark.parametrize("language", ["en", "zh-Hans", "zh-Hant"])
def test_all_documents_are_written(tmp_path: Path, language: str) -> None:
    root = study(tmp_path / "study")
    write_all(root, language, figures=language == "en")
    text = (root / "reports" / ("" if language == "en" else language) / "decision.md").read_text()
    assert {"en": "the mean of id, mass_x2", "zh-Hans": "mass_x2 的平均", "zh-Hant": "mass_x2 的平均"}[language] in text


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"decides": {"conditions": ["nowhere"]}}, "'nowhere' is not one of the conditions"),
        ({"decides": {"conditions": ["id"], "limits": ["id"]}, "constraint": None}, "needs a constraint"),
    ],
)
def test_a_rule_that_names_nothing_is_refused(more: dict[str, Any], complaint: str) -> None:
    value = declaration(Plan()).model_dump() | more
    with pytest.raises(ValueError, match=complaint):
        Study.model_validate(value)
