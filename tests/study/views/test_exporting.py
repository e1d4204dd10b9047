"""An export is a set of plain tables that agree with the ledger, whole or not there at all."""

import csv
import errno
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.base.files import write_json
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import EvaluatedCheckpoint, EvaluationRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.views import exporting
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
    names = export_study(opened, tmp_path / "out", 200.0).files
    assert names == [
        "attempts.csv", "cells.csv", "episodes.csv", "evals.csv", "export.json", "files.json", "ledger.jsonl",
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
    names = export_study(opened, tmp_path / "out.zip", 200.0).files
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        inside = [name for name in archive.namelist() if not name.endswith("/")]
    assert sorted(inside) == [f"tiny/{name}" for name in names]
    export_study(opened, tmp_path / "out.tar.gz", 200.0)
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert "tiny/cells.csv" in archive.getnames()
    assert not list(tmp_path.glob(".export-*"))


def test_checkpoints_come_only_when_asked_for(opened: OpenStudy, tmp_path: Path) -> None:
    names = export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True).files
    assert "runs/a-seed0/checkpoints/step-000000000100/w.npz" in names


def test_an_export_replaces_nothing(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(BadInput, match="already exists"):
        export_study(opened, tmp_path / "out", 200.0)


def test_a_place_that_cannot_be_written_is_named(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        export_study(opened, tmp_path / "file" / "out", 200.0)


def test_a_checkpoint_with_a_link_is_left_out_whole(opened: OpenStudy, tmp_path: Path) -> None:
    (tmp_path / "private_key").write_text("precious")
    folder = opened.folder.run(Cell("a", 0)).checkpoints / "step-000000000100"
    (folder / "extra.bin").symlink_to(tmp_path / "private_key")
    made = export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True)
    [(file, reason)] = made.left_out.items()
    assert file.endswith("extra.bin") and reason.startswith("is a symbolic link to") and "not followed" in reason
    assert [name for name in made.files if "checkpoints/" in name] == [
        "runs/a-seed0/checkpoints/step-000000000100/record.json"
    ]
    assert b"precious" not in b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())


def test_a_dead_link_for_a_checkpoint_is_left_out(opened: OpenStudy, tmp_path: Path) -> None:
    folder = opened.folder.run(Cell("a", 0)).checkpoints / "step-000000000100"
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "gone")
    made = export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True)
    assert made.left_out["runs/a-seed0/checkpoints/step-000000000100"] == "checkpoint step-000000000100 is gone"


def test_a_proven_checkpoint_that_is_gone_is_named(opened: OpenStudy, tmp_path: Path) -> None:
    _prove_at(opened, "step-000000000999")
    made = export_study(opened, tmp_path / "out", 200.0, with_checkpoints=True)
    assert made.left_out == {"runs/a-seed0/checkpoints/step-000000000999": "checkpoint step-000000000999 is gone"}


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
    names = export_study(opened, tmp_path / "out", 200.0, True, (tmp_path / "elsewhere",)).files
    assert "runs/a-seed0/checkpoints/step-000000000100/w.npz" in names


def plant_link(opened: OpenStudy, tmp_path: Path, name: str) -> None:
    """Puts a link to a folder of somebody else in the place of a file or folder of the study."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key.json").write_text("precious")
    place = opened.folder.root / name
    if place.is_dir():
        place.rename(tmp_path / "moved")
    place.unlink(missing_ok=True)
    place.symlink_to(tmp_path / "private")


@pytest.mark.parametrize("name", ["ledger.jsonl", "study.yaml"])
def test_a_ledger_or_declaration_that_is_a_link_is_refused(opened: OpenStudy, tmp_path: Path, name: str) -> None:
    plant_link(opened, tmp_path, name)
    with pytest.raises(BadInput, match="is a symbolic link to"):
        export_study(opened, tmp_path / "out", 200.0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["manifests", "reports", "manifests/preflight.json", "runs", "runs/b-seed0", "runs/a-seed0/metrics.jsonl"]
)
def test_any_other_link_is_left_out_and_not_followed(opened: OpenStudy, tmp_path: Path, name: str) -> None:
    plant_link(opened, tmp_path, name)
    made = export_study(opened, tmp_path / "out", 200.0)
    assert "is a symbolic link to" in made.left_out[name]
    assert not [file for file in made.files if file.endswith("key.json")] and "cells.csv" in made.files


def damage(place: Path, kind: str) -> None:
    """Puts something that is no file in the place of one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if kind == "folder":
        (place / "inner").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(place.name)


REASONS = {
    "folder": "is a folder, not a file",
    "pipe": "is a pipe, not a file",
    "loop": "is a symbolic link to metrics.jsonl, which is not followed",
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_file_that_cannot_be_read_is_left_out_and_named(opened: OpenStudy, tmp_path: Path, kind: str) -> None:
    whole = export_study(opened, tmp_path / "whole", 200.0)
    assert whole.left_out == {}
    damage(opened.folder.run(Cell("a", 0)).metrics, kind)
    made = export_study(opened, tmp_path / "out", 200.0)
    assert made.left_out == {"runs/a-seed0/metrics.jsonl": REASONS[kind]}
    assert rows_of(tmp_path / "out" / "left_out.csv") == [
        {"file": "runs/a-seed0/metrics.jsonl", "reason": REASONS[kind]}
    ]
    assert sorted([*whole.files, "left_out.csv"]) == made.files


def test_pipes_in_every_folder_are_left_out(opened: OpenStudy, tmp_path: Path) -> None:
    run = "runs/a-seed0"
    for name in ("reports/decision.md", "figures/all.png", f"{run}/evaluations/ood.json", "runs/b-seed1"):
        damage(opened.folder.root / name, "pipe")
    (opened.folder.root / "reports" / "money.md").write_text("money")
    damage(opened.folder.run(Cell("a", 1)).evaluations, "pipe")
    made = export_study(opened, tmp_path / "out", 200.0)
    assert set(made.left_out) == {
        *("figures/all.png", "reports/decision.md", f"{run}/evaluations/ood.json"),
        *("runs/a-seed1/evaluations", "runs/b-seed1"),
    }
    assert "reports/money.md" in made.files and f"{run}/evaluations/id.json" in made.files


def test_a_file_whose_name_is_no_text_is_left_out(opened: OpenStudy, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(bytes(opened.folder.run(Cell("a", 0)).root / "odd-") + b"\xff.json"))
    odd.write_text("{}")
    for target in ("out", "out.zip"):
        made = export_study(opened, tmp_path / target, 200.0)
        assert made.left_out == {f"runs/a-seed0/{odd.name}": "has a name that is not UTF-8 text"}
        assert not [name for name in made.files if "odd" in name]


def test_an_evaluation_whose_episodes_are_not_in_the_table_is_named(opened: OpenStudy, tmp_path: Path) -> None:
    opened.folder.run(Cell("a", 0)).evaluation("id").write_text("{")
    made = export_study(opened, tmp_path / "out", 200.0)
    [(file, reason)] = made.left_out.items()
    assert file == "runs/a-seed0/evaluations/id.json" and reason.endswith("its episodes are not in episodes.csv")
    assert file in made.files, "it is copied as it is"


def test_a_failing_disk_leaves_no_part_of_a_file(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = exporting._read_piece

    def fail(file: Any, path: Path) -> Any:
        if path.name != "record.json":
            return read(file, path)
        return read(mock.Mock(read=mock.Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO)))), path)

    monkeypatch.setattr(exporting, "_read_piece", fail)
    made = export_study(opened, tmp_path / "out", 200.0)
    record = "runs/a-seed0/checkpoints/step-000000000100/record.json"
    assert made.left_out == {record: "cannot be read (Input/output error)"}
    assert record not in made.files


def test_a_file_that_vanishes_while_it_is_exported_is_named(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = opened.folder.run(Cell("a", 0)).metrics
    metrics.write_text("{}\n")
    copy = exporting._copy_file

    def vanish(source: Path, target: Path) -> Any:
        if source == metrics:
            source.unlink()
        return copy(source, target)

    monkeypatch.setattr(exporting, "_copy_file", vanish)
    assert export_study(opened, tmp_path / "out", 200.0).left_out == {"runs/a-seed0/metrics.jsonl": "is missing"}


def test_a_full_disk_at_the_target_is_an_error(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_file = Path.open

    def full(path: Path, *how: Any, **more: Any) -> Any:
        if ".export-" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened_file(path, *how, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(BadInput, match="cannot be written: No space left"):
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
