"""Files of a finished study that are gone or cannot be read: every verb says so, and what can be made again is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.testing.small_study import declare

COMMAND = [sys.executable, "-m", "dreamproof.cli.main"]
QUICK = ("--no-check", "--no-report", "--plain")
CELL, RUN = "low/0", "runs/low-seed0"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = declare(tmp_path_factory.mktemp("recorded"))
    done = subprocess.run([*COMMAND, "run", str(file), *QUICK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return file


@pytest.fixture
def finished(recorded: Path, tmp_path: Path) -> Path:
    """The study folder of a finished study, with its study file beside it."""
    shutil.copytree(recorded.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / recorded.name


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a disk that is away for a moment."""
    monkeypatch.setattr("dreamproof.study.attempts.quarantine.PASSING_SECONDS", 0.0)


def results(file: Path) -> Path:
    return file.parent / "results" / "small"


def status(dreamproof: Callable[..., Any], file: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(dreamproof("status", file, "--json").output)
    return shown


def as_folder(path: Path) -> None:
    path.mkdir()


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_loop(path: Path) -> None:
    path.symlink_to(path.name)


def test_an_evaluation_that_is_gone_is_missing_and_made_again(finished: Path, dreamproof: Callable[..., Any]) -> None:
    lost = results(finished) / RUN / "evaluations" / "id.json"
    before = lost.read_bytes()
    lost.unlink()
    seen = status(dreamproof, finished)
    assert (seen["train"]["proven"], seen["evaluate"]["proven"]) == (4, 3)
    assert (seen["missing_evaluate"], seen["complete"]) == ({"id": {"low": [0]}}, False)
    assert "nothing is left to do" not in dreamproof("money", finished).output
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.OK
    assert f"{CELL}: proof lost: {lost} is gone" in shown.output
    made, old = json.loads(lost.read_bytes()), json.loads(before)
    assert made["checkpoints"]["final"]["episodes"] == old["checkpoints"]["final"]["episodes"]
    assert status(dreamproof, finished)["complete"]


@pytest.mark.parametrize("name", ["record.json", ""])
def test_a_lost_proof_is_not_counted_and_retrained_only_if_asked(
    finished: Path, dreamproof: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    checkpoint = max((results(finished) / RUN / "checkpoints").iterdir())
    (checkpoint / name).rename(tmp_path / "away")
    place = f"{RUN}/checkpoints/{checkpoint.name}" + (f"/{name}" if name else "")
    seen = status(dreamproof, finished)
    assert (seen["train"]["proven"], seen["train"]["quarantined"], seen["complete"]) == (3, 1, False)
    assert seen["quarantined"] == {CELL: f"{place} is gone"}
    assert "3 of 4 cells trained" in dreamproof("money", finished).output
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.BROKEN_EVIDENCE
    assert "everything is proven" not in shown.output and f"{place} is gone" in shown.output
    assert "--retrain-lost" in shown.errors
    shown = dreamproof("run", finished, *QUICK, "--retrain-lost")
    assert shown.code == ExitCode.OK, shown.output + shown.errors
    assert status(dreamproof, finished)["complete"] and dreamproof("verify", finished).code == ExitCode.OK


def test_a_proof_that_is_put_back_counts_again(finished: Path, dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    checkpoint = max((results(finished) / RUN / "checkpoints").iterdir())
    checkpoint.rename(tmp_path / "away")
    assert dreamproof("run", finished, *QUICK).code == ExitCode.BROKEN_EVIDENCE
    (tmp_path / "away").rename(checkpoint)
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert status(dreamproof, finished)["complete"]


@pytest.mark.parametrize("make", [as_folder, as_pipe, as_loop])
@pytest.mark.parametrize("name", ["metrics.jsonl", "heartbeat.json", "evaluations/id.json", "record.json"])
def test_an_unreadable_file_of_a_proven_cell_is_named_by_every_verb(
    finished: Path, dreamproof: Callable[..., Any], name: str, make: Callable[[Path], None]
) -> None:
    run = results(finished) / RUN
    path = max((run / "checkpoints").iterdir()) / name if name == "record.json" else run / name
    path.unlink(missing_ok=True)
    make(path)
    place = str(path.relative_to(results(finished)))
    assert status(dreamproof, finished)["quarantined"][CELL].startswith(f"{place} ")
    assert path.name in dreamproof("why", finished, CELL).output
    broken = dreamproof("verify", finished)
    assert (broken.code, path.name in broken.errors) == (ExitCode.BROKEN_EVIDENCE, True)
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code in (ExitCode.GAP_REMAINS, ExitCode.BROKEN_EVIDENCE)
    assert f"{CELL} is quarantined: {place} " in shown.output and "everything is proven" not in shown.output
    row = (results(finished) / "manifests" / "train_status.tsv").read_text().splitlines()[1].split("\t")
    assert row[:3] == ["low", "0", "quarantined"] and row[-1].startswith(f"{place} ")
    if make is not as_pipe:
        return
    assert dreamproof("report", finished).code == ExitCode.OK
    decision = next((results(finished) / "reports").rglob("decision.md")).read_text()
    assert path.name in decision
