"""`run` of a study that asks for a shutdown: once, loud where it fails, never beside another study that trains here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Verb

from dreamproof.base.errors import ExitCode
from dreamproof.runs.layout import StudyFolder
from dreamproof.testing.small_study import TRAINER, declare
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

QUICK = ("--no-check", "--plain")


@pytest.fixture(autouse=True)
def own_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def events_of(file: Path) -> list[dict[str, Any]]:
    ledger = StudyFolder(file.parent / "results" / file.stem).ledger
    return [
        row for line in ledger.read_text().splitlines() if (row := json.loads(line))["event"].startswith("shutdown")
    ]


def ending_study(folder: Path, *commands: list[str]) -> Path:
    at_end = {"action": "shutdown", "commands": list(commands), "grace_seconds": 0, "confirm_seconds": 0}
    return declare(folder, arms={"low": {}}, seeds=1, conditions=[], at_end=at_end)


def test_a_failed_shutdown_is_an_exit_code_and_stands_in_status(
    tmp_path: Path, dreamproof: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamproof.study.session.other_studies", lambda root: [])
    file = ending_study(tmp_path, ["false"], ["no-such-program-here"])
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.SHUTDOWN_FAILED
    assert "SHUTDOWN FAILED, this machine stays on: false: exit code 1; no-such-program-here: cannot be" in shown.output
    assert "FAILED, this machine stayed on" in shown.errors
    assert [row["event"] for row in events_of(file)][-1] == "shutdown_failed"
    assert "shutdown FAILED, this machine stayed on: false: exit code 1" in dreamproof("status", file).output
    dreamproof("report", file)
    reports = StudyFolder(tmp_path / "results" / "small").reports
    assert any("shutdown FAILED" in path.read_text() for path in reports.glob("*.md"))


def test_a_shutdown_runs_once_and_again_when_asked(
    tmp_path: Path, dreamproof: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamproof.study.session.other_studies", lambda root: [])
    file = ending_study(tmp_path, ["sh", "-c", f"echo off >> {tmp_path}/switched"])
    assert dreamproof("run", file, *QUICK).code == 0
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == 0 and "no shutdown: it was done after the last attempt" in shown.output
    assert (tmp_path / "switched").read_text() == "off\n"
    assert dreamproof("run", file, *QUICK, "--shutdown-again").code == 0
    assert (tmp_path / "switched").read_text() == "off\noff\n"


def test_no_shutdown_beside_another_study_that_trains_here(tmp_path: Path, dreamproof: Verb) -> None:
    command = [sys.executable, str(TRAINER), "{run_dir}", "--step-seconds", "0.2"]
    other = declare(
        tmp_path / "other",
        name="other",
        arms={"low": {}},
        conditions=[],
        agent_steps=10**6,
        trainer={"command": command},
    )
    arguments = [sys.executable, "-m", "dreamproof.cli.main", "run", str(other), *QUICK, "--no-report"]
    beside = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        ledger = StudyFolder(tmp_path / "other" / "results" / "other").ledger
        wait_for(lambda: beside.poll() is not None or (ledger.exists() and "attempt_started" in ledger.read_text()))
        assert beside.poll() is None
        file = ending_study(tmp_path, ["touch", str(tmp_path / "switched")])
        shown = dreamproof("run", file, *QUICK)
        assert shown.code == 0
        assert "no shutdown: another study runs on this machine: " in shown.output
        assert [row["event"] for row in events_of(file)] == ["shutdown_refused"]
        assert not (tmp_path / "switched").exists()
    finally:
        dreamproof("stop", other)
        beside.wait(HANG_SECONDS)


def test_a_shutdown_follows_without_reports_as_well(
    tmp_path: Path, dreamproof: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamproof.study.session.other_studies", lambda root: [])
    file = ending_study(tmp_path, ["sh", "-c", f"echo off >> {tmp_path}/switched"])
    assert dreamproof("run", file, "--no-check", "--plain", "--no-report").code == 0
    assert (tmp_path / "switched").read_text() == "off\n"
