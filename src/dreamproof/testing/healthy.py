"""Healthy runs under disturbances, none of which may be killed, and true hangs, all of which must be found in time.

`make healthy` runs it. Clocks, load and processes are simulated with the limits as shipped; the supervisor, its ledger
and its remedies are the real ones.
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.runs.layout import Cell
from dreamproof.settings.running import Liveness
from dreamproof.study import session
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.supervisor import Ending, Supervisor, SupervisorOptions
from dreamproof.testing.simulated_machine import CORES, STEPS, Process, Scenario, SimulatedMachine
from dreamproof.testing.small_study import declare

MINUTE, HOUR = 60.0, 3600.0
TICK_SECONDS = 5.0
CELLS_PER_STUDY = 20
DETECTION_SLACK_SECONDS = 90.0


def go(process: Process, seconds: float, per_step: float) -> None:
    """Steady work at so many seconds per step."""
    process.step = max(process.step, min(STEPS, int(seconds / per_step)))
    process.is_done = process.step >= STEPS


def interrupted(begin: float, length: float, during: Callable[[Process], None], per_step: float = 5.0) -> Scenario:
    """Steady work with one interruption in which nothing moves."""

    def scenario(process: Process, seconds: float, chance: random.Random) -> None:
        quiet = Process(0.0)
        process.phase, process.state = "train", quiet.state
        process.cpu_cores, process.others_cores = quiet.cpu_cores, quiet.others_cores
        process.is_runnable, process.gpu_is_busy = quiet.is_runnable, quiet.gpu_is_busy
        if begin <= seconds < begin + length:
            during(process)
            return
        go(process, seconds if seconds < begin else seconds - length, per_step)

    return scenario


def _set(**values: object) -> Callable[[Process], None]:
    def change(process: Process) -> None:
        for name, value in values.items():
            setattr(process, name, value)

    return change


def long_compile(chance: random.Random, machine: SimulatedMachine) -> Scenario:
    """A few quick beats, then a compile of 10 to 50 minutes, announced or not, in any phase."""
    phase = chance.choice(["train", "evaluate", "save", "compile"])
    cpu = chance.uniform(0.9, 4.0)
    return interrupted(chance.uniform(5, 60), chance.uniform(10, 50) * MINUTE, _set(phase=phase, cpu_cores=cpu))


def busy_machine(chance: random.Random, machine: SimulatedMachine) -> Scenario:
    """Sixteen busy processes per two cores: everything takes eight times as long, gaps of up to four hours."""
    others = CORES * 16 / 17
    busy = _set(others_cores=others, cpu_cores=CORES / 17)
    return interrupted(chance.uniform(5, 300), chance.uniform(0.5, 4) * HOUR, busy)


def stopped_and_continued(chance: random.Random, machine: SimulatedMachine) -> Scenario:
    """SIGSTOP, and SIGCONT after one to 25 minutes."""
    stopped = _set(state="T", cpu_cores=0.0, is_runnable=False)
    return interrupted(chance.uniform(5, 300), chance.uniform(1, 25) * MINUTE, stopped)


def suspended(chance: random.Random, machine: SimulatedMachine) -> Scenario:
    """The machine sleeps for hours; the clock that comes back has jumped."""
    machine.jumps += [0.0] * chance.randrange(1, 20) + [chance.uniform(1, 12) * HOUR]
    return interrupted(0.0, 0.0, _set())


def slow_disk(chance: random.Random, machine: SimulatedMachine) -> Scenario:
    """A save that waits for a network disk for up to 50 minutes, without using a core."""
    waiting = _set(state="D", phase="save", cpu_cores=0.0, is_runnable=True)
    return interrupted(chance.uniform(5, 300), chance.uniform(5, 50) * MINUTE, waiting)


def ten_times_slower(chance: random.Random, machine: SimulatedMachine) -> Scenario:
    """Steps that take ten times as long from some point on, or a hundred times: up to 25 minutes each."""
    per_step, factor = chance.uniform(2, 15), chance.choice([10, 100])
    begin = chance.uniform(20, 90) * per_step

    def scenario(process: Process, seconds: float, _: random.Random) -> None:
        late = max(0.0, seconds - begin)
        done = min(seconds, begin) / per_step + late / (per_step * factor)
        process.step = max(process.step, min(STEPS, int(done)))
        process.is_done = process.step >= STEPS

    return scenario


HEALTHY = {
    "long compile after quick beats": long_compile,
    "sixteen busy processes": busy_machine,
    "SIGSTOP and SIGCONT": stopped_and_continued,
    "suspended machine": suspended,
    "slow disk": slow_disk,
    "ten times slower": ten_times_slower,
}


@dataclass(frozen=True)
class Hang:
    """A process that never progresses, and the documented time after which it is killed."""

    during: Callable[[Process], None]
    limit_seconds: float


DEFAULTS = Liveness()
SILENT = DEFAULTS.kill_silent_after_seconds.train
HANGS = {
    "deadlock": Hang(_set(cpu_cores=0.0, is_runnable=False), DEFAULTS.kill_idle_after_seconds),
    "deadlock beside a heartbeat thread": Hang(
        _set(cpu_cores=0.005, is_runnable=False), DEFAULTS.kill_idle_after_seconds
    ),
    "spinning": Hang(_set(cpu_cores=1.0), SILENT),
    "spinning on the GPU": Hang(_set(cpu_cores=0.0, is_runnable=False, gpu_is_busy=True), SILENT),
    "stopped": Hang(_set(state="T", cpu_cores=0.0, is_runnable=False), DEFAULTS.kill_stopped_after_seconds),
    "spinning in evaluation": Hang(_set(phase="evaluate", cpu_cores=1.0), SILENT),
    "waiting for a disk that is gone": Hang(_set(state="D", cpu_cores=0.0, phase="save"), SILENT),
}


@dataclass
class HealthyResult:
    """What was run and what was wrong."""

    runs: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)


def _supervise(folder: Path, machine: SimulatedMachine, seeds: int) -> tuple[Supervisor, Ending]:
    changes = {"arms": {"only": {}}, "seeds": seeds, "conditions": [], "agent_steps": STEPS, "retries": {}}
    opened = open_study(declare(folder, **changes, backend={"slots": seeds}))
    ledger = Ledger(opened.folder.ledger)
    session.declare(opened, ledger)
    machine.root = opened.folder.root
    supervisor = Supervisor(opened, ledger, machine, SupervisorOptions(tick_seconds=TICK_SECONDS))
    supervisor.monotonic = lambda: machine.now
    return supervisor, supervisor.run()


def run_healthy(kind: str, runs: int, seed: int, folder: Path, result: HealthyResult) -> None:
    """One study of healthy runs under one disturbance."""
    machine = SimulatedMachine(folder, lambda cell, number: (lambda *_: None, random.Random(0)))

    def choose(cell: Cell, number: int) -> tuple[Scenario, random.Random]:
        chance = random.Random(f"{seed} {kind} {cell.seed}")
        return HEALTHY[kind](chance, machine), chance

    machine.choose = choose
    supervisor, ending = _supervise(folder, machine, runs)
    result.runs[kind] += runs
    result.wrong += [f"{kind}: {cell} was killed after {after:.0f} s: {why}" for cell, why, after in machine.killed]
    if ending is not Ending.COMPLETE or len(supervisor.state.attempts) != runs:
        result.wrong.append(f"{kind}: {ending.value}, {len(supervisor.state.attempts)} attempts for {runs} runs")


def run_hangs(kind: str, runs: int, seed: int, folder: Path, result: HealthyResult) -> None:
    """One study in which every first attempt hangs for ever, and every second one works."""
    hang = HANGS[kind]
    begin: dict[Cell, float] = {}

    def choose(cell: Cell, number: int) -> tuple[Scenario, random.Random]:
        chance = random.Random(f"{seed} {kind} {cell.seed}")
        begin[cell] = chance.uniform(5, 400)
        if number > 1:
            return interrupted(0.0, 0.0, _set()), chance
        return interrupted(begin[cell], 1e9, hang.during), chance

    machine = SimulatedMachine(folder, choose)
    supervisor, ending = _supervise(folder, machine, runs)
    result.runs[kind] += runs
    times = {cell: after - begin[cell] for cell, _, after in machine.killed}
    result.longest[kind] = max([result.longest.get(kind, 0.0), *times.values()])
    late = [cell for cell, after in times.items() if after > hang.limit_seconds + DETECTION_SLACK_SECONDS]
    result.wrong += [f"{kind}: {cell} was found after {times[cell]:.0f} s" for cell in late]
    causes = Counter(attempt.cause for attempt in supervisor.state.attempts.values())
    if ending is not Ending.COMPLETE or causes != {"stalled": runs, "completed": runs}:
        result.wrong.append(f"{kind}: {ending.value}, {dict(causes)}")


def _shares(total: int, kinds: int) -> list[int]:
    return [total // kinds + (index < total % kinds) for index in range(kinds)]


def suite(healthy: int, hangs: int, seed: int, show: Callable[[str], None] = print) -> HealthyResult:
    """So many healthy runs and true hangs in all, shared between the kinds."""
    result = HealthyResult()
    plan = [(kind, runs, run_healthy) for kind, runs in zip(HEALTHY, _shares(healthy, len(HEALTHY)), strict=True)]
    plan += [(kind, runs, run_hangs) for kind, runs in zip(HANGS, _shares(hangs, len(HANGS)), strict=True)]
    with tempfile.TemporaryDirectory() as place:
        for index, (kind, runs, runner) in enumerate(plan):
            for part, begin in enumerate(range(0, runs, CELLS_PER_STUDY)):
                count = min(CELLS_PER_STUDY, runs - begin)
                runner(kind, count, seed + part, Path(place) / f"{index}-{part}", result)
            found = f", found after {result.longest[kind] / 60:.1f} min at most" if kind in result.longest else ""
            show(f"{kind}: {runs} runs{found}")
    return result


def main() -> int:
    """Prints what was run; exit code 1 where a healthy run was killed or a hang was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--healthy", type=int, default=240)
    parser.add_argument("--hangs", type=int, default=70)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    result = suite(asked.healthy, asked.hangs, asked.seed)
    for line in result.wrong:
        print(f"WRONG {line}")
    healthy = sum(result.runs[kind] for kind in HEALTHY)
    hangs = sum(result.runs[kind] for kind in HANGS)
    print(f"{healthy} healthy runs, {hangs} hangs, {len(result.wrong)} wrong")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
