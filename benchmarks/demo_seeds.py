"""`make demo` again with other seeds: does every set of seeds reach the same verdict, and how long does it take?

python -m benchmarks.demo_seeds [--sets 10] [--first 1] [--busy 0] [--cold]
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from dreamproof.report import make_context, plain_answer
from dreamproof.runs.layout import StudyFolder
from dreamproof.study.plan.open_study import open_study

DEMO = Path(__file__).parents[1] / "studies" / "demo.yaml"
SEEDS = 5


@dataclass(frozen=True)
class Result:
    """One run of the demo."""

    seeds: list[int]
    verdict: str
    answer: str
    wall_seconds: float
    cpu_seconds: float
    attempts: int
    not_completed: int


def run_demo(folder: Path, seeds: list[int], cache: Path) -> Result:
    """The demo with these seeds in a folder of its own."""
    declared = yaml.safe_load(DEMO.read_text())
    file = folder / f"demo-{seeds[0]}.yaml"
    file.write_text(yaml.safe_dump(declared | {"name": file.stem, "seeds": seeds}, sort_keys=False))
    began, spent = time.monotonic(), _children_cpu_seconds()
    command = [sys.executable, "-m", "dreamproof.cli.main", "run", str(file), "--no-check", "--plain"]
    done = subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, capture_output=True, check=False)
    wall = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"the demo ended with {done.returncode}:\n{done.stdout.decode()}{done.stderr.decode()}")
    return read_result(file, seeds, wall, _children_cpu_seconds() - spent)


def read_result(file: Path, seeds: list[int], wall_seconds: float, cpu_seconds: float) -> Result:
    """The outcome of a finished study."""
    opened = open_study(file)
    folder: StudyFolder = opened.folder
    verdicts = make_context(folder.root, "en").analysis.verdicts
    attempts = list(opened.state.attempts.values())
    return Result(
        seeds,
        ", ".join(f"{arm} {verdict.kind}" for arm, verdict in verdicts.items()),
        plain_answer(folder.root),
        wall_seconds,
        cpu_seconds + sum((attempt.exit or {}).get("cpu_seconds", 0.0) for attempt in attempts),
        len(attempts),
        sum(attempt.cause != "completed" for attempt in attempts),
    )


def _children_cpu_seconds() -> float:
    """CPU time of the supervisors; attempts are not their children and record their own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but spin."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def main() -> None:
    """Prints one row per set of seeds, and how many agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="number of the first set; set 0 is the demo's own seeds")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--cold", action="store_true", help="compile anew for every set, as the first demo does")
    asked = parser.parse_args()
    results: list[Result] = []
    print("seeds | verdict | wall s | CPU s | attempts | not completed | load | answer")
    with tempfile.TemporaryDirectory() as name, busy(asked.busy):
        for number in range(asked.first, asked.first + asked.sets):
            cache = Path(name) / (f"cache-{number}" if asked.cold else "cache")
            seeds = list(range(SEEDS * number, SEEDS * (number + 1)))
            found = run_demo(Path(name), seeds, cache)
            results.append(found)
            cells = (
                f"{seeds[0]}–{seeds[-1]}",
                found.verdict,
                f"{found.wall_seconds:.0f}",
                f"{found.cpu_seconds:.0f}",
                str(found.attempts),
                str(found.not_completed),
                f"{os.getloadavg()[0]:.1f}",
                found.answer,
            )
            print(" | ".join(cells), flush=True)
    verdicts = [result.verdict for result in results]
    most = max(set(verdicts), key=verdicts.count)
    print(f"{verdicts.count(most)} of {len(verdicts)} sets of seeds: {most}")


if __name__ == "__main__":
    main()
