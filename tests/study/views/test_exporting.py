"""An export is a set of plain tables that agree with the ledger, whole or not there at all."""

import csv
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.base.files import write_json
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import EvaluatedCheckpoint, EvaluationRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.views.exporting import export_study

STUDY = """\
name: tiny
question: Is b better than a?
metric: {name: return, smallest_difference: 1.0}
task: line
trainer:
  command: [python, train.py, "{run_dir}"]
  evaluate: [python, evaluate.py, "{run_dir}", "{condition}"]
arms:
  a: {}
  b: {rate: 0.1}
seeds: 2
agent_steps: 100
evaluation_episodes: 3
conditions: [id]
"""


@pytest.fixture
def opened(tmp_path: Path) -> OpenStudy:
    """A study in which a/0 is trained and evaluated, and a/1 died."""
    file = tmp_path / "tiny.yaml"
    file.write_text(STUDY)
    opened = open_study(file)
    writer = RunWriter(opened.folder.run(Cell("a", 0)))
    facts: dict[str, Any] = {"gradient_steps": 5, "parameter_hash": "h", "finite": True, "task": "line"}
    saved = writer.save(lambda folder: (folder / "w.npz").write_bytes(b"w") and None, {"agent_steps": 100, **facts})
    made = EvaluatedCheckpoint(agent_steps=100, gradient_steps=5, parameter_hash="h", episodes={"return": [1, 2, 3.5]})
    writer.write_evaluation(
        EvaluationRecord(condition="id", kind="in_distribution", task="line", checkpoints={"final": made})
    )
    proof = {"agent_steps": 100, "gradient_steps": 5, "parameter_hash": "h", "checkpoint": saved.root.name}
    started = {"work": "train", "conditions": [], "command": ["python", "train.py"]}
    ended = {"reached_agent_steps": {"a/1": 50}, "kept_agent_steps": {"a/1": 20}, "wall_seconds": 10.0}
    rows: list[dict[str, Any]] = [
        {"event": "train_proven", "cell": "a/0", **proof},
        {"event": "eval_proven", "cell": "a/0", "condition": "id", "episodes": 3, "parameter_hash": "h"},
        {"event": "attempt_started", "attempt": "a000001", "cells": ["a/1"], "from_agent_steps": {"a/1": 0}, **started},
        {"event": "attempt_ended", "attempt": "a000001", "cause": "killed", "evidence": ["signal 9", "x"], **ended},
    ]
    for number, row in enumerate(rows):
        opened.state.apply({"n": number, "t": 100.0 + number, **row})
    write_json(opened.folder.preflight, {})
    opened.folder.ledger.write_text("{}\n")
    return opened


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_folder_of_tables_says_what_the_ledger_says(opened: OpenStudy, tmp_path: Path) -> None:
    names = export_study(opened, tmp_path / "out", 200.0)
    assert names == [
        "attempts.csv", "cells.csv", "episodes.csv", "evals.csv", "ledger.jsonl",
        "manifests/preflight.json", "money.csv",
        "runs/a-seed0/checkpoints/step-000000000100/record.json", "runs/a-seed0/evaluations/id.json",
    ]  # fmt: skip
    cells = rows_of(tmp_path / "out" / "cells.csv")
    assert [(row["arm"], row["seed"], row["status"]) for row in cells] == [
        ("a", "0", "proven"),
        ("a", "1", "waiting"),
        ("b", "0", "missing"),
        ("b", "1", "missing"),
    ]
    assert [row["value"] for row in rows_of(tmp_path / "out" / "episodes.csv")] == ["1.0", "2.0", "3.5"]
    attempt = rows_of(tmp_path / "out" / "attempts.csv")[0]
    assert (attempt["cause"], attempt["evidence"], attempt["kept_agent_steps"]) == ("killed", "signal 9 | x", "20")
    costs = {row["cell"]: row for row in rows_of(tmp_path / "out" / "money.csv")}
    assert (costs["a/1"]["useful_seconds"], costs["a/1"]["wasted_seconds"]) == ("4.0", "6.0")


def test_archives_hold_the_same_files(opened: OpenStudy, tmp_path: Path) -> None:
    names = export_study(opened, tmp_path / "out.zip", 200.0)
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        inside = [name for name in archive.namelist() if not name.endswith("/")]
    assert sorted(inside) == [f"tiny/{name}" for name in names]
    export_study(opened, tmp_path / "out.tar.gz", 200.0)
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert "tiny/cells.csv" in archive.getnames()
    assert not list(tmp_path.glob(".export-*"))


def test_checkpoints_come_only_when_asked_for(opened: OpenStudy, tmp_path: Path) -> None:
    names = export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True)
    assert "checkpoints/a-seed0/step-000000000100/w.npz" in names


def test_an_export_replaces_nothing(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput, match="already exists"):
        export_study(opened, tmp_path / "out", 200.0)


def test_a_place_that_cannot_be_written_is_named(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        export_study(opened, tmp_path / "file" / "out", 200.0)


def test_a_link_inside_a_checkpoint_is_refused_by_name(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "private_key").write_text("precious")
    folder = opened.folder.run(Cell("a", 0)).checkpoints / "step-000000000100"
    (folder / "extra.bin").symlink_to(tmp_path / "private_key")
    with pytest.raises(BadInput, match=r"extra\.bin: is a symbolic link to .*private_key"):
        export_study(opened, tmp_path / "out.zip", 200.0, with_checkpoints=True)
    assert not (tmp_path / "out.zip").exists()


@pytest.mark.parametrize(
    "place", ["../../../../private", "/{tmp}/private", "..", ".", "../../a-seed0/checkpoints/../.."]
)
def test_a_ledger_cannot_name_a_checkpoint_elsewhere(opened: OpenStudy, tmp_path: Path, place: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("precious")
    _prove_at(opened, place.replace("/{tmp}", str(tmp_path)))
    with pytest.raises(BadInput, match=r"a/0 is recorded as .* not inside its run folder"):
        export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True)


def _prove_at(opened: OpenStudy, checkpoint: str) -> None:
    row = {"event": "train_proven", "cell": "a/0", "agent_steps": 100, "gradient_steps": 5, "parameter_hash": "h"}
    opened.state.apply({"n": 9, "t": 200.0, **row, "checkpoint": checkpoint})


def test_a_run_folder_that_is_a_link_is_taken_only_when_it_is_named(opened: OpenStudy, tmp_path: Path) -> None:
    run = opened.folder.run(Cell("a", 0)).root
    run.rename(tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="outside the study folder") as refused:
        export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True)
    assert "--outside" in str(refused.value)
    names = export_study(opened, tmp_path / "out", 200.0, True, (tmp_path / "elsewhere",))
    assert "checkpoints/a-seed0/step-000000000100/w.npz" in names


@pytest.mark.parametrize("name", ["ledger.jsonl", "study.yaml", "manifests", "reports", "manifests/preflight.json"])
def test_a_link_in_the_study_folder_is_refused(opened: OpenStudy, tmp_path: Path, name: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("precious")
    place = opened.folder.root / name
    if place.is_dir():
        place.rename(tmp_path / "moved")
    place.unlink(missing_ok=True)
    place.symlink_to(tmp_path / "private")
    with pytest.raises(BadInput, match="is a symbolic link to"):
        export_study(opened, tmp_path / "out", 200.0)
    assert not (tmp_path / "out").exists()


def test_a_formula_in_a_quoted_line_is_text_in_the_tables(opened: OpenStudy, tmp_path: Path) -> None:
    run = opened.folder.run(Cell("a", 0))
    made = EvaluatedCheckpoint(
        agent_steps=100, gradient_steps=5, parameter_hash="h", episodes={'=HYPERLINK("http://x")': [1, 2, -3.5]}
    )
    record = EvaluationRecord(condition="id", kind="in_distribution", task="line", checkpoints={"final": made})
    RunWriter(run).write_evaluation(record)
    opened.state.attempts["a000001"].evidence = ["@SUM(A1)", "x"]
    export_study(opened, tmp_path / "out", 200.0)
    episodes = rows_of(tmp_path / "out" / "episodes.csv")
    assert {row["metric"] for row in episodes} == {'\'=HYPERLINK("http://x")'}
    assert episodes[-1]["value"] == "-3.5"
    assert rows_of(tmp_path / "out" / "attempts.csv")[0]["evidence"] == "'@SUM(A1) | x"
