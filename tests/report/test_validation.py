"""Final, area and peak of validations stand beside the results, and no collapse is hidden."""

import csv
import json
from pathlib import Path

import pytest

from dreamproof.report import make_context, write_all
from dreamproof.report.documents.validation import validation_blocks, validation_table
from dreamproof.report.language import LANGUAGES
from dreamproof.report.numbers import plain
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.testing.made_study import Plan, make_study

TWO_ARMS = ("baseline", "full")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def appendix(root: Path, language: str = "en") -> str:
    write_all(root, language, figures=False)
    return (StudyFolder(root).reports_in(language) / "appendix.md").read_text(encoding="utf-8")


def test_the_final_value_comes_first_and_the_peak_is_called_no_result(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(arms=TWO_ARMS)), "en")
    table = validation_table(context)
    assert table is not None
    assert table.header[:3] == ["arm", "seeds", "final"]
    assert table.header[4] == "peak (not a result)"
    shown = [plain(cell, context.numbers) for cell in table.rows[0]]
    assert shown == ["baseline", "5", "10.00 ± 1.58", "8.00 ± 1.58", "14.00 ± 1.58", "0", "0"]


def test_only_trained_cells_count_and_the_table_says_how_many(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS, missing=("full/4",)))
    run = StudyFolder(root).run(Cell("full", 4))
    run.root.mkdir(parents=True)
    other = StudyFolder(root).run(Cell("full", 3)).summary
    run.summary.write_text(json.dumps(json.loads(other.read_text()) | {"final_return": 1e6}))
    context = make_context(root, "en")
    assert context.numbers.by_key["validation.full.seeds"].text == "4"
    assert context.numbers.by_key["validation.full.final"].value == pytest.approx(9.5)
    write_all(root, figures=False)
    unfinished = next(row for row in rows(root / "tables" / "validation.csv") if row["cell"] == "full/4")
    assert (unfinished["state"], unfinished["final_return"]) == ("missing", "1000000")


def test_every_number_leads_to_its_cells(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(arms=TWO_ARMS, seeds=2)), "en")
    known = context.numbers.by_key
    assert known["validation.full.area"].cells == ("full/0", "full/1")
    assert known["validation.full.peak.seed1"].cells == ("full/1",)
    assert "`validation.full`: seeds = 2, final = 8.50" in appendix(tmp_path / "study")


def test_a_value_that_is_no_number_leaves_the_arm_without_a_mean(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS))
    path = StudyFolder(root).run(Cell("full", 1)).summary
    path.write_text(json.dumps(json.loads(path.read_text()) | {"final_return": float("nan")}))
    context = make_context(root, "en")
    assert context.numbers.by_key["validation.full.final"].text == "–"
    assert context.numbers.by_key["validation.full.peak"].text == "14.00"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_collapse_is_named_with_its_cell_and_what_was_done(tmp_path: Path, language: str) -> None:
    plan = Plan(arms=TWO_ARMS, falls={"full/1": ((600, 500), (900, None))})
    text = appendix(make_study(tmp_path / "study", plan), language)
    lines = [line for line in text.splitlines() if line.startswith("- `full/1`")]
    assert len(lines) == 2
    assert all(part in lines[0] for part in ("600", "1.50", "12.00", "500"))
    assert "900" in lines[1]
    if language == "en":
        assert lines[0].endswith("rolled back to the networks of step 500.") and lines[1].endswith("not rolled back.")
        assert "2 sudden falls of the validation return, 1 of them rolled back to earlier networks: full/1 (2)." in text
        assert "| full | 5 | 10.00 ± 1.58 | 8.00 ± 1.58 | 14.00 ± 1.58 | 2 | 1 |" in text


def test_a_collapse_of_a_run_that_never_ended_is_named_too(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS, seeds=2, missing=("full/0", "full/1"), summaries=False))
    run = StudyFolder(root).run(Cell("full", 0))
    run.root.mkdir(parents=True)
    fall = {"agent_steps": 7, "gradient_steps": 1, "validation_return": 1.0, "best_return": 9.0, "best_agent_steps": 5}
    lines = [json.dumps(fall | {"rolled_back_to": None, "reason": "fell"}), json.dumps({"agent_steps": "torn"})]
    run.collapses.write_text("\n".join(lines) + "\n")
    assert "- `full/0` collapsed at step 7: 1.000 after 9.000 at step 5; not rolled back." in appendix(root)
    assert [row["falls"] for row in rows(root / "tables" / "validation.csv")] == ["7: 9 → 1, fell"]


def test_collapses_that_only_the_summary_counts_are_reported(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS, falls={"full/1": ((600, 500),)}))
    StudyFolder(root).run(Cell("full", 1)).collapses.unlink()
    assert "`full/1` counts 1 collapses, 1 of them rolled back; not all are described" in appendix(root)


def test_a_validation_older_than_the_proof_is_reported(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS))
    path = StudyFolder(root).run(Cell("full", 1)).summary
    path.write_text(json.dumps(json.loads(path.read_text()) | {"final_agent_steps": 900}))
    assert "`full/1` was last validated at step 900; its proven checkpoint is of step 1,000." in appendix(root)


def test_a_final_far_below_its_peak_is_a_remark(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS))
    assert "collapsed" not in [lint.code for lint in make_context(root, "en").analysis.lints]
    path = StudyFolder(root).run(Cell("full", 1)).summary
    path.write_text(json.dumps(json.loads(path.read_text()) | {"final_return": 2.0}))
    lint = next(lint for lint in make_context(root, "en").analysis.lints if lint.code == "collapsed")
    assert lint.facts["cells"] == "full/1 (13 → 2)" and lint.cells == ("full/1",)


def test_the_table_for_machines_has_a_row_a_cell_with_its_source(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=TWO_ARMS, seeds=2, falls={"full/1": ((600, 500),)}))
    write_all(root, figures=False)
    found = rows(root / "tables" / "validation.csv")
    assert [row["cell"] for row in found] == ["baseline/0", "baseline/1", "full/0", "full/1"]
    assert found[3]["source"] == "runs/full-seed1/summary.json"
    assert (found[3]["final_return"], found[3]["peak_return_not_a_result"], found[3]["rollbacks"]) == ("9", "13", "1")
    assert found[3]["falls"] == "600: 12 → 1.5, fell" and len(found[3]["parameter_hash"]) == 64


def test_a_study_whose_runs_kept_no_summary_has_no_such_section(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(summaries=False)), "en")
    assert validation_table(context) is None and validation_blocks(context) == []
