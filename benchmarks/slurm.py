"""500 one-second cells on a one-node Slurm: what the supervisor asked of the controller and used of the machine.

`python -m benchmarks.slurm [CELLS]`.

Every call of a Slurm command is counted outside the supervisor, by wrappers that stand before the real ones.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.one_node_slurm import OneNodeSlurm, start_or_reason

TRAINER = Path(__file__).with_name("scripted_trainer.py")
WRAPPED = ("sbatch", "squeue", "scontrol", "sacct", "sstat", "scancel", "sinfo")
THROTTLE = 8
SECOND_OF_STEPS = ("--step-seconds", "0.1", "--save-every", "10")


@dataclass(frozen=True)
class Result:
    """What one study of many short cells took."""

    cells: int
    proven: int
    attempts: int
    wall_seconds: float
    controller_calls: int
    calls_per_second: float
    most_calls_in_one_second: int
    supervisor_cpu_seconds: float
    supervisor_share_of_a_core: float
    steps_made_twice: int


def wrap_commands(folder: Path) -> Path:
    """Commands of the same names that write down when they were called; version questions ask no controller."""
    log = folder / "calls.log"
    for name in WRAPPED:
        real = shutil.which(name)
        text = f'#!/bin/bash\n[ "$1" = --version ] || date +%s.%N >> {log}\nexec {real} "$@"\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return log


def declare(place: Path, cells: int) -> Path:
    """A study of one arm with many seeds, one second each."""
    study = {
        "name": "many",
        "question": "Does the controller notice us?",
        "metric": {"name": "return", "smallest_difference": 1.0},
        "task": "counting",
        "trainer": {"command": [sys.executable, str(TRAINER), "{run_dir}", *SECOND_OF_STEPS]},
        "arms": {"only": {"level": 1}},
        "seeds": cells,
        "agent_steps": 10,
        "backend": {
            "kind": "slurm",
            "slurm": {
                "memory": "60M",
                "cpus_per_task": 1,
                "time_limit": "00:10:00",
                "array_throttle": THROTTLE,
                "poll_seconds": 2,
            },
        },
    }
    file = place / "many.yaml"
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    return file


def measure(slurm: OneNodeSlurm, place: Path, cells: int) -> Result:
    """Runs the study to its end and counts."""
    wrappers = place / "bin"
    wrappers.mkdir()
    log = wrap_commands(wrappers)
    file = declare(place, cells)
    command = [sys.executable, "-m", "dreamproof.cli.main", "run", str(file), "--plain", "--no-check", "--no-report"]
    variables = {**os.environ, **slurm.environment, "PATH": f"{wrappers}{os.pathsep}{os.environ['PATH']}"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(command, env=variables, check=False, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"the run ended with {done.returncode}")
    state = open_study(file).state
    calls = sorted(float(text) for text in log.read_text().split())
    busiest = max(sum(1 for other in calls if 0 <= other - call < 1.0) for call in calls)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Result(
        cells,
        sum(state.trained(cell) for cell in state.cells.values()),
        len(state.attempts),
        round(wall, 1),
        len(calls),
        round(len(calls) / wall, 3),
        busiest,
        round(cpu, 2),
        round(cpu / wall, 4),
        sum(_steps_twice(path) for path in open_study(file).folder.runs.glob("*/steps.log")),
    )


def _steps_twice(log: Path) -> int:
    steps = [text.split()[1] for text in log.read_text().splitlines()]
    return len(steps) - len(set(steps))


def main() -> None:
    """Measures and prints; a result that breaks a promise ends with 1."""
    cells = int((sys.argv[1:] or ["500"])[0])
    slurm = start_or_reason("plain")
    if isinstance(slurm, str):
        sys.exit(f"no Slurm to measure on: {slurm}")
    place = Path(tempfile.mkdtemp(prefix="many-"))
    try:
        result = measure(slurm, place, cells)
    finally:
        slurm.stop()
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps(asdict(result), indent=1))
    kept = result.proven == cells and result.most_calls_in_one_second <= 1 and result.supervisor_share_of_a_core < 0.05
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
