"""Which other studies run on this machine: by the register, by attempts that outlived their supervisor, by shims."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dreamproof.base.files import write_json
from dreamproof.runs.layout import StudyFolder
from dreamproof.study.ledger.running_studies import other_studies, register_folders, registered
from dreamproof.study.process.processes import ProcessIdentity
from dreamproof.testing.waiting import HANG_SECONDS, wait_for


@pytest.fixture(autouse=True)
def own_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def seen_from(tmp_path: Path, study: Path) -> list[str]:
    """What is seen of one study from another; other programs on this machine may run studies too."""
    return [arguments for arguments in other_studies(tmp_path / "mine") if arguments.startswith(f"{study} ")]


def test_a_supervisor_is_seen_by_other_studies_until_it_ends(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with registered(other, lambda: False):
        assert seen_from(tmp_path, other) == [f"{other} (supervisor, process {os.getpid()})"]
        assert not [arguments for arguments in other_studies(other) if str(tmp_path) in arguments]
    assert seen_from(tmp_path, other) == []


def test_a_supervisor_that_was_killed_is_not_seen(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity is not None
    path = register_folders()[0] / "x.json"
    for seen, holder in (
        (True, identity),
        (False, replace(identity, start_ticks=1)),
        (False, replace(identity, boot_id="b")),
    ):
        write_json(path, {"study": str(tmp_path / "other"), **holder.as_json()})
        assert bool(seen_from(tmp_path, tmp_path / "other")) is seen
        assert path.exists() is seen  # what is over is cleared away
    sleeper.kill()
    sleeper.wait()
    write_json(path, {"study": str(tmp_path / "other"), **identity.as_json()})
    assert seen_from(tmp_path, tmp_path / "other") == []


def test_odd_files_in_the_register_hide_nothing(tmp_path: Path) -> None:
    folder = register_folders()[0]
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("[1, 2")
    (folder / "b.json").write_text("[]")
    (folder / "c.json").mkdir()
    with registered(tmp_path / "other", lambda: False):
        assert len(seen_from(tmp_path, tmp_path / "other")) == 1


def test_an_attempt_that_outlived_its_supervisor_is_seen(tmp_path: Path, sleeper: "subprocess.Popen[bytes]") -> None:
    other = tmp_path / "other"
    with registered(other, lambda: True):
        pass
    path = next(register_folders()[0].glob("*.json"))
    own = ProcessIdentity.of(os.getpid())
    assert own is not None
    entry = {"study": str(other), **replace(own, start_ticks=1).as_json()}
    write_json(path, entry)
    assert seen_from(tmp_path, other) == []
    child = ProcessIdentity.of(sleeper.pid)
    assert child is not None
    attempt = StudyFolder(other).attempt("a000001")
    write_json(attempt.shim, {"shim": replace(own, start_ticks=1).as_json(), "child": child.as_json()})
    write_json(path, entry)
    assert seen_from(tmp_path, other) == [f"{other} (attempt without supervisor, process {sleeper.pid})"]


def test_where_the_state_folder_cannot_be_written_another_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with registered(tmp_path / "other", lambda: False):
        assert len(seen_from(tmp_path, tmp_path / "other")) == 1


def test_a_shim_is_seen_whoever_started_it(tmp_path: Path) -> None:
    attempt = StudyFolder(tmp_path / "other").attempt("a000001")
    order = {"attempt": "a000001", "commands": [["sleep", "600"]], "environment": {}, "working_folder": str(tmp_path)}
    write_json(attempt.order, {**order, "stop_grace_seconds": 1.0})
    shim = subprocess.Popen(
        [sys.executable, "-m", "dreamproof.study.process.shim", str(attempt.root)], start_new_session=True
    )
    try:
        wait_for(lambda: seen_from(tmp_path, tmp_path / "other"))
        assert seen_from(tmp_path, tmp_path / "other") == [f"{tmp_path / 'other'} (attempt, process {shim.pid})"]
    finally:
        write_json(attempt.stop, {"reason": "stop: the test is over", "grace_seconds": 0.0})
        shim.wait(HANG_SECONDS)
    assert seen_from(tmp_path, tmp_path / "other") == []
