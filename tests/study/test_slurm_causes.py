"""Every row of the truth table, produced by a real one-node Slurm in both memory modes and named by the engine."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.one_node_slurm import OneNodeSlurm, missing_for

from dreamproof.base.files import read_json
from dreamproof.runs.layout import Cell
from dreamproof.study import conduct
from dreamproof.study.backends.slurm import SlurmBackend
from dreamproof.study.backends.slurm_commands import SlurmCommands
from dreamproof.study.opening import OpenStudy, open_study
from dreamproof.study.state import AttemptState
from dreamproof.study.supervisor import Options, Supervisor

TRAINER = Path(__file__).parent / "slurm" / "dying_trainer.py"
FOREVER_SECONDS = 400.0
Act = Callable[[Supervisor], None]


def declare(place: Path, name: str, deaths: list[str], slurm: dict[str, Any], **changes: Any) -> Path:
    """A study with one arm a death; one attempt of everything is enough."""
    study: dict[str, Any] = {
        "name": name,
        "question": "How does it end?",
        "metric": {"name": "return", "smallest_difference": 1.0},
        "task": "dying",
        "trainer": {"command": [sys.executable, str(TRAINER), "{run_dir}", "{settings.death}", "0.1"]},
        "arms": {death: {"death": death} for death in deaths},
        "seeds": 1,
        "agent_steps": 10,
        "retries": {
            "transient_at_most": 0,
            "same_deterministic_at_most": 1,
            "breaker_failures": 1000,
            "first_wait_seconds": 0,
        },
        "backend": {
            "kind": "slurm",
            "slurm": {
                "memory": "150M",
                "cpus_per_task": 1,
                "time_limit": "00:10:00",
                "poll_seconds": 1,
                "signal_seconds_before_limit": 0,
                "lease_seconds": 3,
                **slurm,
            },
        },
    } | changes
    file = place / f"{name}.yaml"
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    return file


class Running(threading.Thread):
    """A supervisor of one study in a thread of its own; `act` may do harm at every tick."""

    def __init__(self, slurm: OneNodeSlurm, file: Path, act: Act = lambda supervisor: None) -> None:
        super().__init__(daemon=True)
        self.slurm, self.file, self.act = slurm, file, act
        self.opened: OpenStudy = open_study(file)
        self.failure: BaseException | None = None
        self.placements: dict[str, set[tuple[str, str]]] = {}
        self.start()

    def run(self) -> None:
        try:
            self._supervise()
        except BaseException as failure:  # noqa: BLE001 - told by the test, not by a thread that nobody hears
            self.failure = failure

    def _supervise(self) -> None:
        with conduct.held(self.opened) as ledger:
            conduct.prepare_run(self.opened, ledger, False)
            slurm = self.opened.study.backend.slurm
            assert slurm is not None
            commands = SlurmCommands(self.slurm.environment)
            backend = SlurmBackend(slurm, self.opened.folder, self.opened.study.name, commands)
            supervisor = Supervisor(self.opened, ledger, backend, Options(on_tick=self._tick))
            supervisor.run()
            backend.close()

    def _tick(self, supervisor: Supervisor) -> None:
        for watched in supervisor.watched.values():
            place = watched.sighting.placement
            if place is not None:
                self.placements.setdefault(watched.attempt.cells[0], set()).add((place.state, place.reason))
        self.act(supervisor)

    def wait(self) -> OpenStudy:
        self.join(FOREVER_SECONDS)
        assert not self.is_alive(), f"{self.file.name} has not ended: {self.placements}"
        if self.failure is not None:
            raise self.failure
        return self.opened


def attempts(opened: OpenStudy, arm: str) -> list[AttemptState]:
    return [opened.state.attempts[name] for name in opened.state.cells[Cell(arm, 0)].attempts]


def job_of(opened: OpenStudy, arm: str) -> str | None:
    """The job that runs the newest attempt of an arm; None before it runs."""
    newest = attempts(opened, arm)[-1:]
    return newest[0].job if newest and newest[0].open and newest[0].placed is not None else None


def once(done: set[str], what: str) -> bool:
    fresh = what not in done
    done.add(what)
    return fresh


def begun(opened: OpenStudy, arm: str) -> bool:
    """Whether the newest attempt's keeper has its child."""
    newest = attempts(opened, arm)[-1:]
    told = read_json(opened.folder.attempt(newest[0].name).shim) if newest else None
    return isinstance(told, dict) and told.get("child") is not None


def harm_main(slurm: OneNodeSlurm) -> Act:
    """Kills one batch process, cancels one job, puts one back into the queue."""
    done: set[str] = set()

    def act(supervisor: Supervisor) -> None:
        opened = supervisor.opened
        for arm in ("batch_killed", "cancelled", "requeued"):
            job = job_of(opened, arm)
            if job is None or not begun(opened, arm) or not once(done, arm):
                continue
            if arm == "batch_killed":
                told = read_json(opened.folder.attempt(attempts(opened, arm)[-1].name).shim)
                os.kill(told["shim"]["process_id"], signal.SIGKILL)
            elif arm == "cancelled":
                slurm.command("scancel", job)
            else:
                slurm.command("scontrol", "requeue", job)

    return act


MAIN = {
    "exit_3": "unknown",
    "import_error": "import_error",
    "segfault": "bug",
    "batch_killed": "killed",
    "memory": "host_oom",
    "memory_of_a_child": "host_oom",
    "memory_in_a_step": "host_oom",
    "killed_in_a_step": "killed",
    "too_long": "timeout",
    "cancelled": "stopped_by_user",
    "requeued": "preempted",
    "works": "completed",
}


@pytest.mark.parametrize("mode", ["cgroup", "plain"])
def test_every_death_on_a_real_cluster_is_named_right(mode: str, tmp_path: Path) -> None:
    reason = missing_for(mode)
    if reason is not None:
        pytest.skip(reason)
    slurm = OneNodeSlurm(mode).start()
    try:
        found = die_in_every_way(slurm, tmp_path)
    finally:
        slurm.stop()
    wrong = {row: (seen, wanted) for row, (seen, wanted) in found.items() if seen != wanted}
    assert not wrong


def die_in_every_way(slurm: OneNodeSlurm, place: Path) -> dict[str, tuple[Any, Any]]:
    """By row: what was seen and what should have been."""
    main = Running(slurm, declare(place, "main", list(MAIN), {"time_limit": "00:01:00"}), harm_main(slurm))
    preempted = Running(slurm, declare(place, "preempted", ["sleeps"], {"partition": "cheap", "gres": "gpu:2"}))
    failing = slurm.command("sbatch", "--parsable", "--output=/dev/null", "--wrap=exit 1").strip()
    dependent = Running(slurm, declare(place, "dependent", ["sleeps"], {"extra": [f"--dependency=afterok:{failing}"]}))
    held = Running(slurm, declare(place, "held", ["works"], {"extra": ["--hold"]}), release_later(slurm))
    refused = Running(slurm, declare(place, "refused", ["works"], {"partition": "nowhere"}))
    unseen = Running(slurm, declare(place, "unseen", ["works"], {"extra": ["--begin=now+6"]}), hide_output())
    wait_for(lambda: job_of(preempted.opened, "sleeps") is not None and begun(preempted.opened, "sleeps"))
    slurm.command("sbatch", "--partition=dear", "--gres=gpu:2", "--mem=50M", "--output=/dev/null", "--wrap=sleep 1")
    rows: dict[str, tuple[Any, Any]] = {}
    causes = {
        "preempted": (preempted, "sleeps", "preempted"),
        "dependent": (dependent, "sleeps", "bad_config"),
        "held": (held, "works", "completed"),
        "refused": (refused, "works", "bad_config"),
        "unseen": (unseen, "works", "bad_config"),
        **{arm: (main, arm, cause) for arm, cause in MAIN.items()},
    }
    for row, (running, arm, wanted) in causes.items():
        made = attempts(running.wait(), arm)
        rows[row] = (f"{made[0].cause} {made[0].evidence}" if made[0].cause != wanted else wanted, wanted)
    rows |= details(slurm.mode, main.opened)
    rows["held is seen"] = (("PENDING", "JobHeldUser") in held.placements["works/0"], True)
    told = " ".join(attempts(dependent.opened, "sleeps")[0].evidence)
    rows["dependency is quoted"] = ("DependencyNeverSatisfied" in told, True)
    left = slurm.command("squeue", "--noheader", "--format=%i %j %T %r").strip()
    rows["nothing is left in the queue"] = (left, "")
    return rows


def details(mode: str, opened: OpenStudy) -> dict[str, tuple[Any, Any]]:
    """The scheduler's own words behind some rows, and what became of a job that ran again."""
    states = {arm: (attempts(opened, arm)[0].placement.get("state")) for arm in MAIN}
    again = attempts(opened, "requeued")
    cancelled = opened.state.cells[Cell("cancelled", 0)].stopped or ""
    return {
        "state of memory": (states["memory"], "OUT_OF_MEMORY" if mode == "cgroup" else "FAILED"),
        "state of too_long": (states["too_long"], "TIMEOUT"),
        "state of cancelled": (states["cancelled"], "CANCELLED"),
        "cancelled is left alone": ("--retry-stopped" in cancelled, True),
        "requeued goes on as another attempt": ([one.name.partition("r")[2] for one in again][:2], ["", "1"]),
        "requeued keeps its job": (len({one.job for one in again[:2]}), 1),
    }


def release_later(slurm: OneNodeSlurm) -> Act:
    seen: list[float] = []

    def act(supervisor: Supervisor) -> None:
        for watched in supervisor.watched.values():
            place = watched.sighting.placement
            if place is not None and place.reason == "JobHeldUser":
                seen.append(time.monotonic())
                if len(seen) == 2:
                    slurm.command("scontrol", "release", place.job)

    return act


def hide_output() -> Act:
    """Takes the folder away into which a node is to write, as if the node did not have that disk."""
    done: set[str] = set()

    def act(supervisor: Supervisor) -> None:
        folder = supervisor.opened.folder.submissions / "s000001"
        waiting = any(watched.sighting.placement is not None for watched in supervisor.watched.values())
        if waiting and folder.exists() and once(done, "hidden"):
            folder.rename(folder.with_name("hidden"))

    return act


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)
