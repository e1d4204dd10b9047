"""What `run` shows, and that a terminal that goes away ends nothing."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dreamproof.cli.live import View, event_line
from dreamproof.study import session
from dreamproof.study.backends.local import LocalBackend
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.events import AttemptStarted
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.supervisor import Supervisor, SupervisorOptions
from dreamproof.testing.small_study import declare

ROWS: list[tuple[dict[str, Any], str | None]] = [
    ({"event": "attempt_started", "attempt": "a1", "work": "train", "cells": ["low/0"]}, "a1 started: train low/0"),
    ({"event": "attempt_ended", "attempt": "a1", "cause": "completed", "evidence": ["x"]}, "a1 ended: completed"),
    (
        {"event": "attempt_ended", "attempt": "a1", "cause": "killed", "evidence": ["signal 9"]},
        "a1 ended: killed — signal 9",
    ),
    (
        {"event": "liveness_changed", "attempt": "a1", "state": "slow", "reason": "half the speed of other runs"},
        "a1 is slow: half the speed of other runs",
    ),
    ({"event": "remedy", "action": "resume", "reason": "a1 ended: killed"}, "remedy resume: a1 ended: killed"),
    ({"event": "budget_reached", "spent": 199.5, "budget": 200.0}, "budget reached: 199.50 of 200 spent"),
    ({"event": "supervisor_started"}, None),
]


@pytest.mark.parametrize(("row", "line"), ROWS)
def test_events_are_printed_in_one_line(row: dict[str, Any], line: str | None) -> None:
    assert event_line(row) == line


class ClosedTerminal(io.StringIO):
    """Every write fails as on a terminal that was closed."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise OSError(5, "Input/output error")

    def isatty(self) -> bool:
        return False


def test_after_a_failed_write_the_view_writes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = ClosedTerminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with View(plain=True) as view:
        view.show("first")
        view.show("second")
    assert terminal.writes == 1


def test_lines_carry_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    with View(plain=True) as view:
        view.event({"event": "cell_reopened", "cell": "low/0"})
    time, argv = capsys.readouterr().out.strip().split(" ", 1)
    assert len(time) == 8
    assert argv == "low/0 reopened"


def evaluated(cell: str, condition: str) -> dict[str, Any]:
    return {"event": "eval_proven", "cell": cell, "condition": condition, "episodes": 20}


def test_evaluations_of_a_cell_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with View(plain=True) as view:
        for task in range(30):
            view.event(evaluated("low/0", f"task{task}"))
        for condition in ("id", "windy"):
            view.event(evaluated("low/1", condition))
        view.event({"event": "cell_reopened", "cell": "high/0"})
        view.event(evaluated("high/0", "id"))
    shown = [line.split(" ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "low/0 evaluated under 30 conditions: 20 episodes each",
        "low/1 evaluated under id, windy: 20 episodes each",
        "high/0 reopened",
        "high/0 evaluated under id: 20 episodes",
    ]


def test_the_picture_shows_every_running_cell_and_text_with_brackets_as_it_is(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, conditions=[]))
    ledger = Ledger(opened.folder.ledger)
    session.declare(opened, ledger)
    supervisor = Supervisor(opened, ledger, LocalBackend(), SupervisorOptions())
    supervisor.record(AttemptStarted("a000001", "train", ["low/0"], [], ["x"], {"low/0": 0}))
    supervisor.recover()
    view = View(plain=True)
    view.show("[/] not [bold]markup[/bold]")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(view._picture(supervisor))
    shown = console.export_text()
    assert "small: trained 0/4, evaluated 0/0" in shown
    assert "low/0  a000001" in shown and "0/20" in shown
    assert "[/] not [bold]markup[/bold]" in shown
