"""A backend whose processes, machine load and clocks are simulated: hours of supervision in seconds."""

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.files import read_json, write_json
from dreamproof.runs.layout import AttemptFolder, Cell, RunFolder
from dreamproof.runs.records import ExitRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.diagnosis.liveness import Activity
from dreamproof.testing.small_study import write_weights

CORES = 8
STEPS = 100


@dataclass
class Process:
    """One simulated trainer at one instant; a scenario changes it over time."""

    began: float
    step: int = 0
    phase: str = "train"
    state: str = "S"
    cpu_cores: float = 1.0
    """Cores that it uses."""
    others_cores: float = 0.0
    """Cores that other processes of the machine use."""
    gpu_is_busy: bool = False
    is_runnable: bool = True
    beat: int = 0
    is_done: bool = False
    cpu_seconds: float = 0.0
    machine_cpu_seconds: float = 0.0


Scenario = Callable[[Process, float, random.Random], None]
"""Brings a process to where it is so many seconds after its start."""


@dataclass
class Simulated:
    """A process, its scenario, and what became of it."""

    cell: Cell
    process: Process
    scenario: Scenario
    chance: random.Random
    written: tuple[int, str, int] | None = None
    exit: ExitRecord | None = None


@dataclass
class SimulatedMachine:
    """A backend for a supervisor; `wait` moves the simulated clock on and with it every process."""

    root: Path
    choose: Callable[[Cell, int], tuple[Scenario, random.Random]]
    """The scenario of a cell's n-th attempt."""
    now: float = 1000.0
    jumps: list[float] = field(default_factory=list)
    """Seconds by which the clock jumps at the next waits, as after a suspended night."""
    attempts: dict[str, Simulated] = field(default_factory=dict)
    counts: dict[Cell, int] = field(default_factory=dict)
    killed: list[tuple[Cell, str, float]] = field(default_factory=list)
    """Cell, reason and seconds after its start of everything that was asked to stop."""

    def start(self, folder: AttemptFolder) -> None:
        event = read_json(folder.order)["event"]  # type: ignore[index]
        cell = Cell.parse(event["cells"][0])
        number = self.counts[cell] = self.counts.get(cell, 0) + 1
        scenario, chance = self.choose(cell, number)
        process = Process(self.now, step=event["from_agent_steps"].get(str(cell), 0))
        self.attempts[folder.root.name] = Simulated(cell, process, scenario, chance)

    def look(self, folder: AttemptFolder) -> Sighting:
        one = self.attempts.get(folder.root.name)
        if one is None:
            return Sighting(Presence.LOST)
        if one.exit is not None:
            return Sighting(Presence.ENDED, one.exit)
        return Sighting(Presence.RUNNING, process_state=one.process.state, process_id=None)

    def activity(self, folder: AttemptFolder) -> Activity:
        process = self.attempts[folder.root.name].process
        return Activity(
            process.cpu_seconds,
            0.0,
            process.is_runnable,
            gpu_is_busy=process.gpu_is_busy,
            machine_cpu_seconds=process.machine_cpu_seconds,
            cores=CORES,
        )

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        one = self.attempts[folder.root.name]
        write_json(folder.stop, {"reason": reason}, durable=False)
        self.killed.append((one.cell, reason, self.now - one.process.began))
        self._end(one, reason)

    def wait(self, seconds: float) -> None:
        step = max(seconds, 0.5)
        jump = self.jumps.pop(0) if self.jumps else 0.0
        self.now += step + jump
        for one in self.attempts.values():
            if one.exit is None:
                self._advance(one, step)

    def close(self) -> None:
        """Nothing is held."""

    def _advance(self, one: Simulated, step: float) -> None:
        process = one.process
        process.cpu_seconds += process.cpu_cores * step
        process.machine_cpu_seconds += (process.cpu_cores + process.others_cores) * step
        one.scenario(process, self.now - process.began, one.chance)
        run = RunFolder(self.root / f"runs/{one.cell.arm}-seed{one.cell.seed}")
        shown = (process.step, process.phase, process.beat)
        if shown != one.written:
            one.written = shown
            beat = {"agent_steps": process.step, "gradient_steps": process.step, "phase": process.phase}
            draft = run.root / ".beat"
            draft.write_text(json.dumps({**beat, "beat": process.beat}))
            os.replace(draft, run.heartbeat)
        if process.is_done:
            self._save(run)
            self._end(one, None)

    def _save(self, run: RunFolder) -> None:
        facts = {"agent_steps": STEPS, "gradient_steps": STEPS, "parameter_hash": "0" * 64, "finite": True}
        RunWriter(run).save(write_weights("x"), {**facts, "task": "counting"})

    def _end(self, one: Simulated, asked: str | None) -> None:
        seconds = self.now - one.process.began
        one.exit = ExitRecord(exit_code=0, wall_seconds=seconds, asked_to_stop=asked)
