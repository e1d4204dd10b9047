"""What one cell's folder holds is that cell's trouble alone: it is quarantined, named, and let go when repaired."""

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.study.test_supervisor import TASK, Stage, succeed_at_once

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.files import read_json, write_json
from dreamproof.cli.why import cell_text
from dreamproof.report.loading import load
from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.runs.records import ExitRecord
from dreamproof.study import session
from dreamproof.study.attempts import settle
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.supervisor import MAX_LOSSES, Ending, SupervisorOptions
from dreamproof.study.views.overview import make_overview
from dreamproof.study.views.values import cell_values

BAD, OTHERS = "low/0", {"low/1", "high/0", "high/1"}


def as_folder(path: Path) -> None:
    path.mkdir()


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_socket(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY)
    server.bind(f"/proc/self/fd/{folder}/{path.name}")  # a path of a socket has at most 108 bytes
    os.close(folder)
    server.close()


def as_loop(path: Path) -> None:
    path.symlink_to(path.name)


def as_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: dict[str, Callable[[Path], None]] = {
    "folder": as_folder, "pipe": as_pipe, "socket": as_socket, "loop": as_loop, "device": as_device,
}  # fmt: skip


def run_folder(stage: Stage, cell: str = BAD) -> Any:
    run = stage.opened.folder.run(Cell.parse(cell))
    run.root.mkdir(parents=True, exist_ok=True)
    return run


def proven(stage: Stage) -> set[str]:
    return {row["cell"] for row in stage.events("train_proven")}


@pytest.mark.parametrize("name", ["heartbeat.json", "settings.json", "checkpoints", "metrics.jsonl"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_odd_file_quarantines_its_cell_and_the_others_are_trained(tmp_path: Path, kind: str, name: str) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    path = run_folder(stage).root / name
    if (kind, name) == ("folder", "checkpoints"):
        path.write_text("a file where a folder belongs")
    else:
        KINDS[kind](path)
    assert stage.supervisor.run() is Ending.NOTHING_CAN_RUN
    assert proven(stage) == OTHERS
    [event] = stage.events("cell_quarantined")
    assert (event["cell"], event["file"]) == (BAD, f"runs/low-seed0/{name}")
    overview = make_overview(open_study(stage.opened.file), 0.0)
    assert overview.quarantined[BAD].startswith(f"runs/low-seed0/{name} ")
    row = stage.opened.folder.train_status.read_text().splitlines()[1].split("\t")
    assert (row[:3], row[-1]) == (["low", "0", "quarantined"], overview.quarantined[BAD])


def test_a_repaired_cell_leaves_quarantine_while_the_supervisor_runs(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    heartbeat = run_folder(stage).heartbeat
    heartbeat.mkdir()

    def repair() -> None:
        if heartbeat.is_dir() and stage.events("cell_quarantined"):
            heartbeat.rmdir()

    stage.backend.on_wait = repair
    assert stage.supervisor.run() is Ending.COMPLETE
    assert [row["cell"] for row in stage.events("cell_released")] == [BAD]


def test_a_repaired_cell_leaves_quarantine_at_the_next_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    heartbeat = run_folder(stage).heartbeat
    heartbeat.mkdir()
    assert stage.supervisor.run() is Ending.NOTHING_CAN_RUN
    heartbeat.rmdir()
    again = Stage(tmp_path)
    succeed_at_once(again)
    assert again.supervisor.run() is Ending.COMPLETE
    assert make_overview(open_study(stage.opened.file), 0.0).quarantined == {}


@pytest.mark.parametrize("name", ["step-000000000010.tmp", "step-latest", "step-", "step-9", "step-²²²²²²²²²²²²"])
def test_a_checkpoint_that_is_being_written_or_linked_disturbs_nobody(tmp_path: Path, name: str) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    (run_folder(stage).checkpoints / name).mkdir(parents=True)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert stage.events("cell_quarantined") == []


BEATS = {
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 500 + b"]" * 500,
    "400 digits": b'{"agent_steps": ' + b"9" * 400 + b"}",
    "5,000 digits": b'{"agent_steps": ' + b"9" * 5000 + b"}",
    "NaN": b'{"agent_steps": NaN, "beat": Infinity}',
    "infinite": b'{"agent_steps": 1e999}',
    "surrogate": b'{"agent_steps": 1, "phase": "\\ud800"}',
    "NUL": b"\0" * 4096,
    "not UTF-8": b"\xff\xfe{}",
    "a list": b"[1, 2]",
}


@pytest.mark.parametrize("content", BEATS.values(), ids=BEATS)
def test_a_heartbeat_that_says_nonsense_ends_nothing(tmp_path: Path, content: bytes) -> None:
    """A power cut leaves such files behind; the next beat replaces them."""
    stage = Stage(tmp_path, SupervisorOptions())
    run_folder(stage).heartbeat.write_bytes(content)
    looks: list[int] = []

    def wait() -> None:
        looks.append(1)
        for name in [name for name, seen in stage.backend.sightings.items() if seen.presence is Presence.RUNNING]:
            if len(looks) > 3:
                for cell in stage.cells_of(name):
                    stage.train(cell)
                stage.backend.end(name)

    stage.backend.on_wait = wait
    stage.backend.on_start = lambda folder: run_folder(stage).heartbeat.write_bytes(content)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert stage.events("cell_quarantined") == []


def test_a_heartbeat_that_becomes_a_pipe_is_named_while_its_process_runs_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, backend={"slots": 1})
    succeed_at_once(stage)
    first = stage.backend.on_start

    def start(folder: Any) -> None:
        if stage.cells_of(folder.root.name) != [BAD]:
            return first(folder)
        os.mkfifo(run_folder(stage).heartbeat)
        return None

    def wait() -> None:
        if stage.events("cell_quarantined"):
            run_folder(stage).heartbeat.unlink(missing_ok=True)
            for name, seen in stage.backend.sightings.items():
                if seen.presence is Presence.RUNNING:
                    stage.train(BAD)
                    stage.backend.end(name)

    stage.backend.on_start, stage.backend.on_wait = start, wait
    assert stage.supervisor.run() is Ending.COMPLETE
    [event] = stage.events("cell_quarantined")
    assert event["reason"] == "is a pipe, not a file"


def test_a_stale_file_handle_is_waited_out_and_no_checkpoint_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    stage.train(BAD, 10)
    bad, real = run_folder(stage).checkpoint(10).root / "w", os.open
    failing = [True]

    def stale(path: Any, *more: Any, **others: Any) -> int:
        if failing[0] and str(path) == str(bad):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return real(path, *more, **others)

    monkeypatch.setattr(os, "open", stale)
    stage.backend.on_wait = lambda: failing.__setitem__(0, stage.backend.now < 1005)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert "Stale file handle" in stage.events("cell_quarantined")[0]["reason"]
    assert bad.exists() and not list(run_folder(stage).checkpoints.glob("corrupt-*"))


def test_an_error_while_an_attempt_is_settled_ends_that_attempt_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    real = settle.prove_cells
    broken = [True]

    def prove(opened: Any, attempt: Any) -> Any:
        if attempt.cells == [BAD] and broken.pop(0) if broken else False:
            raise RuntimeError("what nobody thought of")
        return real(opened, attempt)

    monkeypatch.setattr(settle, "prove_cells", prove)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert proven(stage) == OTHERS | {BAD}
    assert [row["reason"] for row in stage.events("cell_quarantined")] == ["RuntimeError: what nobody thought of"]
    ended = [row for row in stage.events("attempt_ended") if row["cause"] == "unknown"]
    assert "could not be read" in ended[0]["evidence"][0]


def test_an_error_of_the_backend_about_one_attempt_is_that_cells_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    real, failing = stage.backend.look, [3]

    def look(folder: Any) -> Sighting:
        if stage.cells_of(folder.root.name) == [BAD] and failing[0]:
            failing[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder.shim))
        return real(folder)

    stage.backend.look = look  # type: ignore[method-assign]
    assert stage.supervisor.run() is Ending.COMPLETE
    [event] = stage.events("cell_quarantined")
    assert (event["cell"], event["reason"]) == (BAD, "Input/output error")


def test_a_damaged_order_of_an_attempt_that_the_ledger_lost_is_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    for number, content in enumerate((b"[]", b'{"event": 3}', b'{"event": {"attempt": "a000003"}}', b"\xff")):
        folder = stage.opened.folder.attempt(f"a{number + 1:06d}")
        folder.root.mkdir(parents=True)
        folder.order.write_bytes(content)
    stage.opened.folder.attempt("a000009").order.mkdir(parents=True)
    stage.opened.folder.attempt("notes").root.mkdir()
    assert stage.supervisor.run() is Ending.COMPLETE


def test_an_exit_record_that_is_nonsense_is_no_record(tmp_path: Path) -> None:
    from dreamproof.runs.reader import read_exit

    path = tmp_path / "exit.json"
    assert ExitRecord(exit_code=0, wall_seconds=1.0)
    for value in ({"exit_code": 0, "wall_seconds": float("inf")}, {"wall_seconds": -1}, {"wall_seconds": "x"}, []):
        path.write_text(json.dumps(value))
        assert read_json(path) is not None and read_exit(path) is None


def test_a_lost_checkpoint_keeps_no_other_cell_from_being_trained(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.train(BAD)
    proof = settle.prove_training(stage.opened, Cell.parse(BAD), None, None)
    assert not isinstance(proof, str)
    stage.supervisor.record(proof)
    run_folder(stage).checkpoints.rename(tmp_path / "away")
    session.settle_lost_proofs(stage.opened, stage.ledger, retrain=False)
    succeed_at_once(stage)
    assert stage.supervisor.run() is Ending.NOTHING_CAN_RUN
    assert proven(stage) == OTHERS | {BAD}
    [event] = stage.events("cell_quarantined")
    assert (event["file"], event["reason"]) == ("runs/low-seed0/checkpoints/step-000000000020", "is gone")
    with pytest.raises(BrokenEvidence, match="first low/0"):
        session.require_proofs(stage.opened)


def evaluated_stage(folder: Path, losses: int) -> tuple[Stage, Path]:
    """One cell whose evaluation vanishes right after it was proven, so often."""
    stage = Stage(folder, arms={"low": {}}, seeds=1, conditions=["id"], metric={"smallest_difference": 1.0})
    path, left = stage.opened.folder.run(Cell.parse(BAD)).evaluation("id"), [losses]

    def start(folder: AttemptFolder) -> None:
        if stage.opened.state.attempts[folder.root.name].work == "train":
            stage.train(BAD)
        else:
            made = {"agent_steps": 20, "gradient_steps": 20, "parameter_hash": f"{20:064d}"}
            final = {**made, "episodes": {"return": [1.0, 2.0, 3.0]}}
            write_json(path, {"condition": "id", "kind": "proxy", "task": TASK, "checkpoints": {"final": final}})
        stage.backend.end(folder.root.name)

    def lose(_: Any) -> None:
        if left[0] and path.exists() and stage.opened.state.eval_cells[Cell.parse(BAD), "id"].proof is not None:
            left[0] -= 1
            path.unlink()

    stage.backend.on_start, stage.supervisor.options.on_tick = start, lose
    return stage, path


def test_an_evaluation_that_vanishes_while_the_study_runs_is_made_again(tmp_path: Path) -> None:
    stage, path = evaluated_stage(tmp_path, losses=1)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert path.exists()
    assert [row["condition"] for row in stage.events("proof_lost")] == ["id"]
    assert len(stage.events("attempt_started")) == 3


def test_an_evaluation_that_always_vanishes_is_not_made_for_ever(tmp_path: Path) -> None:
    stage, path = evaluated_stage(tmp_path, losses=100)
    stage.supervisor.run()
    assert len(stage.events("attempt_started")) == 2 + MAX_LOSSES and not path.exists()


def test_a_report_names_a_quarantined_cell_with_its_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    run_folder(stage).heartbeat.mkdir()
    stage.supervisor.run()
    facts = load(stage.opened.folder.root).cells[Cell.parse(BAD)]
    assert facts.state == "stopped"
    assert facts.evidence == ["runs/low-seed0/heartbeat.json is a folder, not a file"]


@pytest.mark.parametrize(
    "change",
    [{"agent_steps": "20"}, {"agent_steps": None}, {"cell": 3}, {"cell": "low"}, {"t": float("inf")}, {"t": "now"}],
)
def test_an_event_of_another_form_is_broken_evidence(change: dict[str, Any]) -> None:
    row = {"n": 7, "t": 1.0, "event": "train_proven", "cell": "low/0", "agent_steps": 20, "gradient_steps": 9}
    row |= {"parameter_hash": "d", "checkpoint": "step-000000000020"}
    StudyState.replay([row])
    with pytest.raises(BrokenEvidence, match="event 7 of the ledger"):
        StudyState.replay([{**row, **change}])


def test_why_names_the_file_and_what_to_do(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    heartbeat = run_folder(stage).heartbeat
    heartbeat.mkdir()
    stage.supervisor.run()
    text = cell_text(cell_values(open_study(stage.opened.file), Cell.parse(BAD)), "STUDY")
    assert "low/0: quarantined, 0 of 20 agent steps" in text
    assert f"unreadable  {heartbeat}: is a folder, not a file" in text
    assert text.endswith("next        repair the file, then dreamproof run STUDY")
