"""True hangs are found and named; healthy runs under disturbances are left alone."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dreamproof.base.files import write_json
from dreamproof.runs.layout import Cell
from dreamproof.study import session
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.supervisor import Ending, Supervisor, SupervisorOptions
from dreamproof.testing.healthy import suite
from dreamproof.testing.small_study import declare

pytestmark = pytest.mark.long(80)

HANGS = {
    "pause": "stopped",
    "deadlock": "deadlock",
    "fifo": "deadlock",
    "child": "deadlock",
    "spin": "silent",
    "spin_without_signals": "silent",
}
QUICK = {
    "stalled_after_seconds": 1.0,
    "compile_stalled_after_seconds": 20.0,
    "kill_stopped_after_seconds": 2.0,
    "kill_idle_after_seconds": 4.0,
    "kill_silent_after_seconds": 20.0,
}


def test_healthy_runs_are_left_alone_and_hangs_are_found_in_the_documented_time() -> None:
    result = suite(healthy=6, hangs=7, seed=1, show=lambda text: None)
    assert result.wrong == []
    assert sum(result.runs.values()) == 13


def supervise(opened: OpenStudy, options: SupervisorOptions) -> Ending:
    with session.open_ledger(opened) as ledger:
        session.prepare_run(opened, ledger, accept_changes=False)
        with session.supervising(opened, ledger, options) as supervisor:
            return supervisor.run()


def test_every_kind_of_real_hang_is_found_named_and_resumed(tmp_path: Path) -> None:
    arms = {kind.replace("_", "-"): {"kind": kind} for kind in HANGS}
    retries = {"stalled_at_most": 5, "first_wait_seconds": 0.05, "breaker_failures": 100}
    changes = {"conditions": [], "seeds": 1, "liveness": QUICK, "backend": {"slots": 6}, "retries": retries}
    opened = open_study(declare(tmp_path, arms=arms, **changes))
    for arm, settings in arms.items():
        run = opened.folder.run(Cell(arm, 0))
        write_json(run.root / "fault.json", {"at": 7, "kind": settings["kind"], "times": 1})
    assert supervise(opened, SupervisorOptions(stop_grace_seconds=1.0)) is Ending.COMPLETE
    state = opened.state
    for arm, settings in arms.items():
        names = state.known_cell(f"{arm}/0").attempts
        first = state.attempts[names[0]]
        assert (first.cause, first.killed_for) == ("stalled", HANGS[settings["kind"]]), (arm, first.evidence)
        assert state.attempts[names[-1]].cause == "completed"


@pytest.mark.parametrize("disturbance", ["busy", "stop and continue"])
def test_real_healthy_runs_are_left_alone_with_the_limits_as_shipped(disturbance: str, tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, conditions=[], seeds=3, agent_steps=60))
    burners: list[subprocess.Popen[bytes]] = []
    stopped: dict[str, int] = {}

    def disturb(supervisor: Supervisor) -> None:
        if disturbance == "busy":
            return
        for name, watched in supervisor.watched.items():
            process_id = watched.sighting.process_id
            if process_id is not None and name not in stopped:
                stopped[name] = process_id
                with suppress(ProcessLookupError):  # it may have ended since it was seen
                    os.kill(process_id, signal.SIGSTOP)
                    time.sleep(0.5)
                    os.kill(process_id, signal.SIGCONT)

    if disturbance == "busy":
        burners = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
        ]
    try:
        assert supervise(opened, SupervisorOptions(on_tick=disturb)) is Ending.COMPLETE
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert [attempt.cause for attempt in opened.state.attempts.values()] == ["completed"] * 6
    assert disturbance == "busy" or stopped
