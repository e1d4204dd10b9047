"""Every row of the truth table, produced by a real one-node Slurm in both memory modes and named by the engine."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from dreamproof.base.files import read_json
from dreamproof.runs.layout import Cell
from dreamproof.study import session
from dreamproof.study.backends.slurm.backend import SlurmBackend
from dreamproof.study.backends.slurm.commands import SlurmCommands
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.supervisor import Supervisor, SupervisorOptions
from dreamproof.testing import slurm_accounting
from dreamproof.testing.one_node_slurm import OneNodeSlurm, missing_for, start_or_reason
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.long(180)

TRAINER = Path(__file__).parent / "dying_trainer.py"
Act = Callable[[Supervisor], None]


def declare(place: Path, name: str, deaths: list[str], slurm: dict[str, Any], **changes: Any) -> Path:
    """A study with one arm per death and one attempt per cell."""
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
    """A supervisor of one study in a thread of its own; `act` runs at every tick."""

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
        except BaseException as failure:  # noqa: BLE001 - reported by the test, not lost in its thread
            self.failure = failure

    def _supervise(self) -> None:
        with session.open_ledger(self.opened) as ledger:
            session.prepare_run(self.opened, ledger, False)
            slurm = self.opened.study.backend.slurm
            assert slurm is not None
            commands = SlurmCommands(self.slurm.environment)
            backend = SlurmBackend(slurm, self.opened.folder, self.opened.study.name, commands)
            supervisor = Supervisor(self.opened, ledger, backend, SupervisorOptions(on_tick=self._tick))
            supervisor.run()
            backend.close()

    def _tick(self, supervisor: Supervisor) -> None:
        for watched in supervisor.watched.values():
            place = watched.sighting.placement
            if place is not None:
                self.placements.setdefault(watched.attempt.cells[0], set()).add((place.state, place.reason))
        self.act(supervisor)

    def has_begun(self, arm: str) -> bool:
        """Whether the newest attempt of an arm runs; a supervisor that failed raises its failure."""
        if self.failure is not None:
            raise self.failure
        return job_of(self.opened, arm) is not None and begun(self.opened, arm)

    def wait(self) -> OpenStudy:
        self.join(HANG_SECONDS)
        assert not self.is_alive(), f"{self.file.name} has not ended: {self.placements}"
        if self.failure is not None:
            raise self.failure
        return self.opened


def attempts(opened: OpenStudy, arm: str) -> list[AttemptState]:
    cell = opened.state.cells.get(Cell(arm, 0))  # none before the supervisor's thread has declared the study
    return [opened.state.attempts[name] for name in cell.attempts] if cell is not None else []


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
    given = read_json(opened.folder.attempt(newest[0].name).shim) if newest else None
    return isinstance(given, dict) and given.get("child") is not None


def disturb_main(slurm: OneNodeSlurm) -> Act:
    """Kills one batch process, cancels one job, puts one back into the queue."""
    done: set[str] = set()

    def act(supervisor: Supervisor) -> None:
        opened = supervisor.opened
        for arm in ("batch_killed", "cancelled", "requeued"):
            job = job_of(opened, arm)
            if job is None or not begun(opened, arm) or not once(done, arm):
                continue
            if arm == "batch_killed":
                given = read_json(opened.folder.attempt(attempts(opened, arm)[-1].name).shim)
                os.kill(given["shim"]["process_id"], signal.SIGKILL)
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
    "cancelled": "stopped_by_user",
    "requeued": "preempted",
    "works": "completed",
}


def test_every_death_on_a_real_cluster_is_named_right_in_both_memory_modes(tmp_path: Path) -> None:
    started = {mode: start_or_reason(mode) for mode in ("plain", "cgroup")}
    absent = {mode: slurm for mode, slurm in started.items() if isinstance(slurm, str)}
    slurms = [slurm for slurm in started.values() if not isinstance(slurm, str)]
    try:
        with ThreadPoolExecutor(2) as pool:  # all of them mostly wait, so both modes take no longer than one
            found = list(pool.map(die_in_every_way, slurms, [tmp_path / slurm.mode for slurm in slurms]))
    finally:
        for slurm in slurms:
            slurm.stop()
    wrong = {
        (slurm.mode, row): (seen, wanted)
        for slurm, rows in zip(slurms, found, strict=True)
        for row, (seen, wanted) in rows.items()
        if seen != wanted
    }
    assert not wrong
    if absent:
        modes = [slurm.mode for slurm in slurms]
        pytest.skip(f"{', '.join(absent.values())}; tested with {modes}")


def test_accounting_adds_the_states_of_steps_to_the_evidence(tmp_path: Path) -> None:
    mode = "cgroup" if missing_for("cgroup") is None else "plain"
    reason = missing_for(mode) or slurm_accounting.missing()
    if reason is not None:
        pytest.skip(reason)
    slurm = OneNodeSlurm(mode, accounting=True)
    try:
        slurm.start()
        opened = Running(slurm, declare(tmp_path, "accounted", ["memory_in_a_step", "works"], {})).wait()
        job = attempts(opened, "works")[0].job
        assert job is not None
        accounted = SlurmCommands(slurm.environment).accounted([job]).get(job)
    finally:
        slurm.stop()
    killed = attempts(opened, "memory_in_a_step")[0]
    assert killed.cause == "host_oom"
    step = "Slurm: step 0 OUT_OF_MEMORY"
    assert (step in killed.evidence) == (mode == "cgroup"), killed.evidence
    assert accounted is not None
    assert (accounted.state, accounted.step_states) == ("COMPLETED", {"batch": "COMPLETED"})
    assert accounted.allocated_seconds == attempts(opened, "works")[0].placement["allocated_seconds"]


def die_in_every_way(slurm: OneNodeSlurm, place: Path) -> dict[str, tuple[Any, Any]]:
    """By row: what was seen and what should have been."""
    place.mkdir()
    pool = ThreadPoolExecutor(1)
    # First, while both GPUs are free: it needs them, and every other study would be in its way.
    preempted = Running(slurm, declare(place, "preempted", ["sleeps"], {"partition": "cheap", "gres": "gpu:2"}))
    wait_for(lambda: preempted.has_begun("sleeps"))
    slurm.command("sbatch", "--partition=dear", "--gres=gpu:2", "--mem=50M", "--output=/dev/null", "--wrap=sleep 1")
    main = Running(slurm, declare(place, "main", list(MAIN), {}), disturb_main(slurm))
    too_long = Running(slurm, declare(place, "too_long", ["too_long"], {"time_limit": "00:01:00"}))
    chained = pool.submit(chain_over_the_limit, slurm, place)
    leaking = Running(slurm, declare(place, "leaking", ["leaks"], {"memory_cap": "300M"}))
    failing = slurm.command("sbatch", "--parsable", "--output=/dev/null", "--wrap=exit 1").strip()
    dependent = Running(slurm, declare(place, "dependent", ["sleeps"], {"extra": [f"--dependency=afterok:{failing}"]}))
    held = Running(slurm, declare(place, "held", ["works"], {"extra": ["--hold"]}), release_later(slurm))
    refused = Running(slurm, declare(place, "refused", ["works"], {"partition": "nowhere"}))
    unseen = Running(slurm, declare(place, "unseen", ["works"], {"extra": ["--begin=now+6"]}), hide_output())
    rows: dict[str, tuple[Any, Any]] = {}
    causes = {
        "leaking": (leaking, "leaks", "host_oom"),
        "too_long": (too_long, "too_long", "timeout"),
        "preempted": (preempted, "sleeps", "preempted"),
        "dependent": (dependent, "sleeps", "bad_config"),
        "held": (held, "works", "completed"),
        "refused": (refused, "works", "bad_config"),
        "unseen": (unseen, "works", "bad_config"),
        **{arm: (main, arm, cause) for arm, cause in MAIN.items()},
    }
    for running, _, _ in causes.values():
        running.wait()
    rows |= chained.result()
    causes["lost"] = (lose_node(slurm, place), "sleeps", "node_lost")
    for row, (running, arm, wanted) in causes.items():
        made = attempts(running.wait(), arm)
        rows[row] = (f"{made[0].cause} {made[0].evidence}" if made[0].cause != wanted else wanted, wanted)
    rows["state of lost"] = (attempts(causes["lost"][0].opened, "sleeps")[0].placement["state"], "NODE_FAIL")
    rows["state of too_long"] = (attempts(too_long.opened, "too_long")[0].placement["state"], "TIMEOUT")
    rows |= details(slurm.mode, main.opened)
    leak = attempts(leaking.opened, "leaks")
    rows["a leak is seen in the trace"] = (leak[0].memory_trend, "grows")
    rows["a leak gets no more memory"] = ([row["action"] for row in leaking.opened.state.remedies], [])
    rows["held is seen"] = (("PENDING", "JobHeldUser") in held.placements["works/0"], True)
    given = " ".join(attempts(dependent.opened, "sleeps")[0].evidence)
    rows["dependency is quoted"] = ("DependencyNeverSatisfied" in given, True)
    left = slurm.command("squeue", "--noheader", "--format=%i %j %T %r").strip()
    rows["nothing is left in the queue"] = (left, "")
    return rows


def chain_over_the_limit(slurm: OneNodeSlurm, place: Path) -> dict[str, tuple[Any, Any]]:
    """Near its limit a job saves and goes back into the queue by itself; nobody supervises it meanwhile."""
    # Slurm looks at limits every 30 s and signals up to 30 s early: 15 to 45 s after the start.
    limits = {"time_limit": "00:01:00", "signal_seconds_before_limit": 15}
    arms = {"works": {"death": "works", "hold_at": 20}}
    file = declare(place, "chained", [], limits, arms=arms, agent_steps=40, retries={})
    Running(slurm, file, leave_when_it_runs).wait()
    folder = open_study(file).folder
    wait_for(lambda: (read_json(folder.attempt("a000001r1").shim) or {}).get("child") is not None)
    again = Running(slurm, file)
    wait_for(lambda: any(one.cause is not None for one in attempts(again.opened, "works")))
    (folder.root / "continue").touch()
    opened = again.wait()
    made = attempts(opened, "works")
    kept = made[0].kept_agent_steps["works/0"]
    steps = (folder.run(Cell("works", 0)).root / "steps.log").read_text().splitlines()
    return {
        "chained: cause": (made[0].cause, "timeout"),
        "chained: names": ([one.name for one in made][:2], ["a000001", "a000001r1"]),
        "chained: one job": (len({one.job for one in made}), 1),
        "chained: continues": (made[1].from_agent_steps["works/0"], kept),
        "chained: kept something": (kept > 0, True),
        "chained: no step twice": ([int(line.split()[1]) for line in steps], [*range(1, 41)]),
        "chained: proven": (opened.state.trained(opened.state.cells[Cell("works", 0)]), True),
    }


def leave_when_it_runs(supervisor: Supervisor) -> None:
    supervisor.leave = begun(supervisor.opened, "works") and job_of(supervisor.opened, "works") is not None


def lose_node(slurm: OneNodeSlurm, place: Path) -> Running:
    """A study whose node stops answering while its process works on; last of all, there is no other node."""
    lost = Running(slurm, declare(place, "lost", ["sleeps"], {"requeue": False}))
    wait_for(lambda: lost.has_begun("sleeps"))
    slurm.lose_node()
    lost.wait()
    slurm.start_node()
    return lost


def details(mode: str, opened: OpenStudy) -> dict[str, tuple[Any, Any]]:
    """The scheduler's own output behind some rows, and what became of a job that ran again."""
    states = {arm: (attempts(opened, arm)[0].placement.get("state")) for arm in MAIN}
    again = attempts(opened, "requeued")
    cancelled = opened.state.cells[Cell("cancelled", 0)].stopped or ""
    return {
        "state of memory": (states["memory"], "OUT_OF_MEMORY" if mode == "cgroup" else "FAILED"),
        "state of cancelled": (states["cancelled"], "CANCELLED"),
        "cancelled is left alone": ("--retry-stopped" in cancelled, True),
        "requeued continues as another attempt": ([one.name.partition("r")[2] for one in again][:2], ["", "1"]),
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
