"""The end of a study: a shutdown only where it is asked for, and never in a hurry. The command here is harmless."""

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.small_study import declare

from dreamproof.study import conduct
from dreamproof.study.events import Event
from dreamproof.study.finish import Shutdown, shutdown_reason
from dreamproof.study.ledger import Ledger
from dreamproof.study.opening import OpenStudy, open_study
from dreamproof.study.supervisor import Ending


def study_that_ends(folder: Path, **at_end: Any) -> OpenStudy:
    harmless = [sys.executable, "-c", f"open({str(folder / 'switched-off')!r}, 'w')"]
    opened = open_study(declare(folder, at_end={"action": "shutdown", "command": harmless, **at_end}))
    conduct.declare(opened, Ledger(opened.folder.ledger))
    return opened


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[float, Any] = {}

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for moment in [moment for moment in self.at if moment <= self.now]:
            self.at.pop(moment)()


def shutdown(opened: OpenStudy, clock: Clock) -> tuple[Shutdown, list[Event], list[str]]:
    events: list[Event] = []
    words: list[str] = []
    return Shutdown(opened, events.append, words.append, lambda: clock.now, clock.pause), events, words


def test_nothing_is_switched_off_unless_the_study_asks_for_it(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path))
    assert shutdown_reason(opened, Ending.COMPLETE) is None


@pytest.mark.parametrize(
    ("ending", "idle_minutes", "asked"),
    [
        (Ending.COMPLETE, None, True),
        (Ending.BUDGET, None, True),
        (Ending.NOTHING_CAN_RUN, None, False),
        (Ending.NOTHING_CAN_RUN, 5, True),
        (Ending.BREAKER, 5, True),
        (Ending.STOPPED, 5, False),
        (Ending.LEFT, 5, False),
        (Ending.SELECTION_DONE, 5, False),
    ],
)
def test_when_a_shutdown_follows(tmp_path: Path, ending: Ending, idle_minutes: float | None, asked: bool) -> None:
    opened = study_that_ends(tmp_path, idle_minutes=idle_minutes)
    assert (shutdown_reason(opened, ending) is not None) is asked


def test_after_the_grace_the_command_runs_and_its_event_stands_before(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=300)
    clock = Clock()
    way, events, words = shutdown(opened, clock)
    assert way.carry_out("everything is proven", idle=False)
    assert 300 <= clock.now < 301
    assert [event.name for event in events] == ["shutdown_planned", "shutdown_done"]
    assert (tmp_path / "switched-off").exists()
    assert "to cancel: Ctrl-C, or touch" in words[0]


def test_idle_minutes_are_waited_on_top_of_the_grace(tmp_path: Path) -> None:
    clock = Clock()
    way, _, _ = shutdown(study_that_ends(tmp_path, grace_seconds=10, idle_minutes=2), clock)
    assert way.carry_out("nothing can run", idle=True)
    assert 130 <= clock.now < 131


def test_the_file_keep_running_cancels_it(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=300)
    clock = Clock()
    clock.at[200.0] = opened.folder.keep_running.touch
    way, events, words = shutdown(opened, clock)
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events] == ["shutdown_planned", "shutdown_cancelled"]
    assert words[-1] == "shutdown cancelled by the file keep-running"
    assert not (tmp_path / "switched-off").exists()


def test_ctrl_c_cancels_it(tmp_path: Path) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    clock = Clock()
    clock.at[5.0] = press
    way, events, _ = shutdown(study_that_ends(tmp_path, grace_seconds=300), clock)
    assert not way.carry_out("everything is proven", idle=False)
    assert events[-1].row() == {"event": "shutdown_cancelled", "by": "Ctrl-C"}


def test_broken_evidence_keeps_the_machine_on(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=0)
    content = opened.folder.ledger.read_bytes()
    opened.folder.ledger.write_bytes(content.replace(b"counting", b"Counting"))
    way, events, words = shutdown(opened, Clock())
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events] == ["shutdown_cancelled"]
    assert "line 1 does not match its own hash" in words[0]
    assert not (tmp_path / "switched-off").exists()
