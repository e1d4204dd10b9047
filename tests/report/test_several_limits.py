"""Several limits: an arm wins only if it keeps them all, and each is reported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pptx import Presentation

from dreamproof.report import make_context, write_all
from dreamproof.report.context import ReportContext
from dreamproof.report.documents.summary import summary_table
from dreamproof.report.headline import headline
from dreamproof.report.prose import answer_points, limit_sentences
from dreamproof.settings.study import Study
from dreamproof.stats.verdict import Kind
from dreamproof.testing.made_study import Plan, declaration, make_study

TWO = {"constraint": None, "constraints": [{"name": "hazards", "at_most": 5.0}, {"name": "vases", "at_most": 2.0}]}


def two_costs(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
    """All arms but the baseline are better; `rough` breaks vases, `wild` hits hazards, `full` does neither."""
    gain = 0.0 if arm == "baseline" else 6.0
    return {
        "return": generator.normal(gain, 0.5, 10),
        "hazards": generator.poisson(20.0 if arm == "wild" else 1.0, 10).astype(float),
        "vases": generator.poisson(9.0 if arm == "rough" else 0.3, 10).astype(float),
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arms = ("baseline", "full", "rough", "wild")
    place = tmp_path_factory.mktemp("limits") / "study"
    return make_study(place, Plan(arms=arms, draw=two_costs, seeds=8, more=TWO, floors={}))


@pytest.fixture(scope="module")
def context(root: Path) -> ReportContext:
    return make_context(root, "en")


def test_an_arm_wins_only_if_it_keeps_all_limits(context: ReportContext) -> None:
    analysis = context.analysis
    assert all(analysis.verdicts[arm].kind is Kind.BETTER for arm in ("full", "rough", "wild"))
    assert analysis.winners == ["full"]
    broken = {arm: [each.metric for each in found if each.breaks] for arm, found in analysis.limits.items()}
    assert broken == {"baseline": [], "full": [], "rough": ["vases"], "wild": ["hazards"]}
    assert (analysis.constrained["rough"].metric, analysis.constrained["rough"].limit) == ("vases", 2.0)


def test_undecided_arms_that_break_a_limit_are_named_in_the_answer(tmp_path: Path) -> None:
    def same_return(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
        return two_costs(generator, arm, seed, condition) | {"return": generator.normal(0.0, 9.0, 10)}

    arms = ("baseline", "rough")
    place = make_study(tmp_path / "study", Plan(arms=arms, draw=same_return, seeds=8, more=TWO, floors={}))
    context = make_context(place, "en")
    assert context.analysis.undecided("rough")
    first, *more = answer_points(context)
    assert first.startswith("Cannot decide") and len(more) == 1 and "rough" in more[0] and "vases" in more[0]
    assert "Shown to **break a limit**: `rough`." in headline(context)


def test_every_limit_is_reported(root: Path, context: ReportContext) -> None:
    written = write_all(root)
    names = {path.name for path in written}
    assert {"conditions_cost.png", "conditions_cost-2.png", "score_cost-2.png"} <= names
    pages = {path.stem: path.read_text() for path in written if path.suffix == ".md"}
    assert "limit: hazards at most 5; limit: vases at most 2" in pages["decision"]
    assert all(name in pages["decision"] for name in ("hazards · id (limit 5)", "vases · id (limit 2)"))
    assert "against its limit; bounds longer than the axis are clipped · vases" in pages["appendix"]
    assert len([text for text in limit_sentences(context) if "vases" in text and "rough" in text]) > 0
    assert "| arm | condition | metric | mean ± sd |" in pages["appendix"]
    deck = Presentation(str(next(path for path in written if path.suffix == ".pptx")))
    tables = [shape.table for slide in deck.slides for shape in slide.shapes if shape.has_table]
    headings = [" ".join(cell.text.split()) for table in tables for cell in table.rows[0].cells]
    assert all(
        any(text.startswith(f"{cost} ") and "limit" in text for text in headings) for cost in ("hazards", "vases")
    ), " | ".join(headings)
    verdicts = json.loads(next(path for path in written if path.name == "verdicts.json").read_text())
    assert {(one["arm"], one["metric"]) for one in verdicts["limits"] if one["verdict"] == "breaks"} == {
        ("rough", "vases"),
        ("wild", "hazards"),
    }


def test_an_arm_without_a_value_for_one_limit_cannot_win(tmp_path: Path) -> None:
    def one_cost(*given: Any) -> dict[str, Any]:
        drawn = two_costs(*given)
        return {name: values for name, values in drawn.items() if name != "vases" or given[1] != "full"}

    place = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), draw=one_cost, seeds=8, more=TWO, floors={}))
    analysis = make_context(place, "en").analysis
    assert analysis.verdicts["full"].kind is Kind.BETTER
    assert "full" not in analysis.constrained and analysis.winners == []


def test_the_other_limits_are_judged_beside_one_without_values(tmp_path: Path) -> None:
    limits = [*TWO["constraints"], {"name": "misspelt", "at_most": 1.0}]
    more = {"constraint": None, "constraints": limits}
    arms = ("baseline", "full", "rough")
    place = make_study(tmp_path / "study", Plan(arms=arms, draw=two_costs, seeds=8, more=more, floors={}))
    context = make_context(place, "en")
    assert {arm: len(found) for arm, found in context.analysis.limits.items()} == dict.fromkeys(arms, 2)
    assert list(context.analysis.constrained) == ["rough"] and context.analysis.constrained["rough"].breaks
    assert context.analysis.winners == []
    table = summary_table(context)
    assert [any(name in title for title in table.header) for name in ("hazards", "vases", "misspelt")] == [
        True,
        True,
        False,
    ]


def test_the_key_table_counts_other_conditions_for_each_limit(context: ReportContext) -> None:
    table = summary_table(context)
    others = {title: column for column, title in enumerate(table.header) if "other conditions" in title}
    titles = [
        f"{name} limit under {len(context.analysis.evidence.conditions) - 1} other" for name in ("hazards", "vases")
    ]
    assert all(any(title.startswith(start) for title in others) for start in titles), list(others)
    of_vases = next(column for title, column in others.items() if title.startswith("vases"))
    by_arm = {row[0]: row[of_vases] for row in table.rows}
    assert by_arm["rough"].startswith("breaks") and by_arm["wild"].startswith("keeps")


def test_limits_that_contradict_each_other_are_refused() -> None:
    declared = declaration(Plan()).model_dump(mode="json")
    limit = {"name": "cost", "at_most": 5.0}
    with pytest.raises(ValueError, match="'cost' has two limits"):
        Study.model_validate(declared | {"constraint": None, "constraints": [limit, limit]})
    with pytest.raises(ValueError, match="both declared"):
        Study.model_validate(declared | {"constraints": [limit]})
    alone = Study.model_validate(declared | {"constraint": None, "constraints": [limit]})
    assert alone.limits == Study.model_validate(declared).limits
