"""The end of a study: a shutdown only where it is asked for, once, confirmed, never beside another study.

The commands here are harmless.
"""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dreamproof.settings.running import AtEnd
from dreamproof.study import session
from dreamproof.study.finish import Shutdown, run_command, shutdown_reason
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.events import (
    AttemptStarted,
    Event,
    ShutdownDone,
    ShutdownFailed,
    ShutdownStarted,
    SupervisorStarted,
)
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.supervisor import Ending, SupervisorOptions
from dreamproof.testing.small_study import declare


def study_that_ends(folder: Path, **at_end: Any) -> OpenStudy:
    """A study whose shutdown leaves a file; `at_end` may name other commands."""
    chosen = {} if "commands" in at_end else {"command": leaves(folder / "switched-off")}
    opened = open_study(declare(folder, at_end={"action": "shutdown", "confirm_seconds": 0, **chosen, **at_end}))
    session.declare(opened, Ledger(opened.folder.ledger))
    return opened


def leaves(path: Path, then: str = "") -> list[str]:
    """A harmless command that adds a line to a file."""
    return [sys.executable, "-c", f"open({str(path)!r}, 'a').write('x\\n'); {then}"]


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
    """A shutdown on a machine without other studies and without signs of stopping."""
    events: list[Event] = []
    arguments: list[str] = []
    way = Shutdown(opened, events.append, arguments.append, lambda: clock.now, clock.pause, lambda _: [], set)
    return way, events, arguments


def test_nothing_is_switched_off_unless_the_study_asks_for_it(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path))
    assert shutdown_reason(opened, Ending.COMPLETE) is None


@pytest.mark.parametrize(
    ("ending", "idle_minutes", "asked"),
    [
        (Ending.COMPLETE, None, True),
        (Ending.BUDGET, None, True),
        (Ending.NOTHING_CAN_RUN, None, True),
        (Ending.BREAKER, None, True),
        (Ending.CODE_CHANGED, None, False),
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
    way, events, arguments = shutdown(opened, clock)
    assert way.carry_out("everything is proven", idle=False)
    assert 300 <= clock.now < 301
    assert [event.name for event in events] == ["shutdown_planned", "shutdown_started", "shutdown_done"]
    assert (tmp_path / "switched-off").exists()
    assert "to cancel: Ctrl-C, or touch" in arguments[0]


def test_idle_minutes_are_waited_on_top_of_the_grace(tmp_path: Path) -> None:
    clock = Clock()
    way, _, _ = shutdown(study_that_ends(tmp_path, grace_seconds=10, idle_minutes=2), clock)
    assert way.carry_out("nothing can run", idle=True)
    assert 130 <= clock.now < 131


def test_the_file_keep_running_cancels_it(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=300)
    clock = Clock()
    clock.at[200.0] = opened.folder.keep_running.touch
    way, events, arguments = shutdown(opened, clock)
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events] == ["shutdown_planned", "shutdown_cancelled"]
    assert arguments[-1] == "shutdown cancelled by the file keep-running"
    assert not (tmp_path / "switched-off").exists()


def test_a_polite_kill_cancels_it_before_the_command_and_confirms_it_afterwards(tmp_path: Path) -> None:
    clock = Clock()
    way, events, _ = shutdown(study_that_ends(tmp_path, grace_seconds=300), clock)
    way.is_asked_to_end = lambda: clock.now > 100
    assert not way.carry_out("everything is proven", idle=False)
    assert events[-1].row()["by"] == "a signal to this process"
    clock = Clock()
    way, events, _ = shutdown(study_that_ends(tmp_path / "b", grace_seconds=10, confirm_seconds=30), clock)
    way.is_asked_to_end = lambda: clock.now > 12
    assert way.carry_out("everything is proven", idle=False)
    assert events[-1].row()["evidence"] == ["this process was asked to end"]


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
    way, events, arguments = shutdown(opened, Clock())
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events] == ["shutdown_refused"]
    assert "line 1 does not match its own hash" in arguments[0]
    assert not (tmp_path / "switched-off").exists()


@pytest.mark.parametrize(
    ("commands", "failures"),
    [
        ([["false"]], ["false: exit code 1"]),
        ([["no-such-program-here", "-h"]], ["no-such-program-here -h: cannot be started: No such file or directory"]),
        ([["sh", "-c", "echo not allowed; exit 3"]], ["sh -c echo not allowed; exit 3: exit code 3 (not allowed)"]),
        (
            [["false"], ["no-such-program-here"]],
            ["false: exit code 1", "no-such-program-here: cannot be started"],
        ),
    ],
)
def test_a_shutdown_that_fails_is_recorded_as_a_failure_and_loud(
    tmp_path: Path, commands: list[list[str]], failures: list[str]
) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=0, commands=commands)
    way, events, arguments = shutdown(opened, Clock())
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events][-1] == "shutdown_failed"
    last = events[-1]
    assert isinstance(last, ShutdownFailed)
    assert all(seen.startswith(expected) for seen, expected in zip(last.evidence, failures, strict=True))
    assert arguments[-1].startswith("SHUTDOWN FAILED, this machine stays on: ")


def test_the_next_command_of_the_chain_is_tried_and_the_rest_left_alone(tmp_path: Path) -> None:
    works, never = leaves(tmp_path / "second"), leaves(tmp_path / "third")
    chain = [["no-such-program-here"], ["false"], works, never]
    opened = study_that_ends(tmp_path, grace_seconds=0, commands=chain)
    way, events, _ = shutdown(opened, Clock())
    assert way.carry_out("everything is proven", idle=False)
    assert [event.command for event in events if isinstance(event, ShutdownStarted)] == chain[:3]
    assert events[-1].row()["command"] == works
    assert (tmp_path / "second").exists() and not (tmp_path / "third").exists()


def test_a_command_that_hangs_is_given_up_and_the_next_is_tried(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=0, commands=[["sleep", "600"], ["true"]], timeout_seconds=3)
    way, events, arguments = shutdown(opened, Clock())
    assert way.carry_out("everything is proven", idle=False)
    assert "shutdown command failed: sleep 600: did not finish within 3 s" in arguments
    assert events[-1].row()["command"] == ["true"]


def test_what_a_command_leaves_behind_when_it_hangs_is_killed_with_it(tmp_path: Path) -> None:
    late = f"sleep 3; echo x > {tmp_path}/late"
    assert run_command(["sh", "-c", f"({late}) & sleep 600"], 0.3) == "did not finish within 0.3 s"
    time.sleep(4)
    assert not (tmp_path / "late").exists()


def test_a_sign_that_the_machine_stops_is_recorded(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path, grace_seconds=0, confirm_seconds=30)
    clock = Clock()
    way, events, arguments = shutdown(opened, clock)
    way.signs = lambda: {"old"} | ({"systemd is stopping"} if clock.now >= 3 else set())
    assert way.carry_out("everything is proven", idle=False)
    assert events[-1].row()["evidence"] == ["systemd is stopping"]
    assert clock.now < 5 and "seen: systemd is stopping" in arguments[-1]


def test_a_machine_that_shows_no_sign_of_stopping_is_reported_as_on(tmp_path: Path) -> None:
    way, events, arguments = shutdown(study_that_ends(tmp_path, grace_seconds=0, confirm_seconds=30), Clock())
    assert way.carry_out("everything is proven", idle=False)
    assert events[-1].row()["evidence"] == []
    assert "returned 0, but after 30 s there is no sign that this machine stops" in arguments[-1]


def test_it_is_refused_while_another_study_runs_here(tmp_path: Path) -> None:
    way, events, arguments = shutdown(study_that_ends(tmp_path, grace_seconds=300), Clock())
    way.others = lambda root: ["/elsewhere/results/other (supervisor, process 7)"]
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events] == ["shutdown_refused"]
    assert arguments == [
        "no shutdown: another study runs on this machine: /elsewhere/results/other (supervisor, process 7)"
    ]
    assert not (tmp_path / "switched-off").exists()


def test_a_study_that_begins_during_the_grace_keeps_the_machine_on(tmp_path: Path) -> None:
    clock = Clock()
    way, events, _ = shutdown(study_that_ends(tmp_path, grace_seconds=300), clock)
    way.others = lambda root: ["another"] if clock.now > 100 else []
    assert not way.carry_out("everything is proven", idle=False)
    assert [event.name for event in events] == ["shutdown_planned", "shutdown_refused"]
    assert not (tmp_path / "switched-off").exists()


def test_old_study_files_with_one_command_still_read(tmp_path: Path) -> None:
    at_end = AtEnd.model_validate({"action": "shutdown", "command": ["poweroff", "-f"]})
    assert at_end.commands == [["poweroff", "-f"]]
    assert AtEnd().commands[0] == ["shutdown", "-h", "now"]
    with pytest.raises(ValueError, match="are both given"):
        AtEnd.model_validate({"command": ["a"], "commands": [["b"]]})
    with pytest.raises(ValueError, match="at least 1 item"):
        AtEnd.model_validate({"commands": [[]]})


def test_old_declarations_in_a_ledger_still_replay(tmp_path: Path) -> None:
    opened = study_that_ends(tmp_path)
    row = Ledger(opened.folder.ledger).rows[0]
    at_end = {"action": "shutdown", "command": ["shutdown", "-h", "now"], "grace_seconds": 300.0, "idle_minutes": None}
    state = StudyState.replay([{**row, "declaration": {**row["declaration"], "at_end": at_end}}])
    assert state.study is not None and state.study.at_end.commands == [["shutdown", "-h", "now"]]


def replayed(*events: Event, boots: tuple[str, ...] = ()) -> StudyState:
    """The state after some events, each in the boot given or in the first."""
    state = StudyState()
    for number, event in enumerate(events):
        boot = boots[number] if boots else "b"
        state.apply({"n": number, "t": float(number), "boot": boot, "m": float(number), **event.row()})
    return state


STARTED = SupervisorStarted("b", 1, 1, "h", "0")
WORK = AttemptStarted("a1", "train", ["low/0"], [], ["x"], {"low/0": 0})


def test_a_shutdown_counts_until_new_work_begins() -> None:
    assert replayed(STARTED, ShutdownDone(["x"], 0, [])).shutdown_done
    assert replayed(STARTED, ShutdownDone(["x"], 0, []), STARTED).shutdown_done
    assert not replayed(STARTED, ShutdownDone(["x"], 0, []), STARTED, WORK).shutdown_done
    assert not replayed(STARTED, ShutdownStarted(["x"]), ShutdownFailed(["x: exit code 1"])).shutdown_done


def test_a_machine_that_was_started_again_did_stop() -> None:
    again = SupervisorStarted("c", 1, 1, "h", "0")
    off = replayed(STARTED, ShutdownStarted(["x"]), again, boots=("b", "b", "c"))
    assert off.shutdown_done and off.shutdown == "done: the machine was restarted since"
    assert not replayed(STARTED, ShutdownStarted(["x"]), STARTED).shutdown_done


def finish_again(opened: OpenStudy, monkeypatch: pytest.MonkeyPatch, again: bool = False) -> list[str]:
    """The end of one more `run` of a complete study, as `run` has it; returns what it printed."""
    arguments: list[str] = []
    monkeypatch.setattr("dreamproof.study.session.other_studies", lambda root: [])
    with session.open_ledger(opened) as ledger, session.supervising(opened, ledger, SupervisorOptions()) as supervisor:
        session.finish(opened, supervisor, Ending.COMPLETE, arguments.append, lambda opened: [], again)
    return arguments


def test_a_complete_study_that_is_run_again_does_not_shut_down_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    opened = study_that_ends(tmp_path, grace_seconds=0)
    finish_again(opened, monkeypatch)
    arguments = finish_again(opened, monkeypatch)
    assert arguments == ["no shutdown: it was done after the last attempt; run --shutdown-again repeats it"]
    assert (tmp_path / "switched-off").read_text() == "x\n"
    finish_again(opened, monkeypatch, again=True)
    assert (tmp_path / "switched-off").read_text() == "x\nx\n"


def test_a_shutdown_that_failed_is_tried_again_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    chain = [["sh", "-c", f"echo x >> {tmp_path}/tried; exit 1"]]
    opened = study_that_ends(tmp_path, grace_seconds=0, commands=chain)
    finish_again(opened, monkeypatch)
    assert opened.state.shutdown_failed
    finish_again(opened, monkeypatch)
    assert (tmp_path / "tried").read_text() == "x\nx\n"
