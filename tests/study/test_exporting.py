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
from dreamproof.study.exporting import export_study
from dreamproof.study.opening import OpenStudy, open_study

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
        "attempts.csv", "cells.csv", "costs.csv", "episodes.csv", "evals.csv", "ledger.jsonl",
        "manifests/preflight.json",
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
    costs = {row["cell"]: row for row in rows_of(tmp_path / "out" / "costs.csv")}
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
    with pytest.raises(BadInput, match="is there already"):
        export_study(opened, tmp_path / "out", 200.0)


def test_a_place_that_cannot_be_written_is_named(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        export_study(opened, tmp_path / "file" / "out", 200.0)
