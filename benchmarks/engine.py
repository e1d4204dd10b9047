"""Measures the study engine: plan and status of a large study, start-up, the supervisor's own cost, death, ledger."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from dreamproof.settings.study import Study
from dreamproof.study.ledger.chain import Ledger, checked_rows
from dreamproof.study.ledger.events import AttemptEnded, AttemptStarted, Event, StudyDeclared, TrainProven
from dreamproof.study.ledger.index import write_index
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.process.processes import ProcessIdentity, process_facts

TRAINER = Path(__file__).with_name("scripted_trainer.py")
COMMAND = [sys.executable, "-m", "dreamproof.cli.main"]
ARMS, SEEDS, EVENTS = 5, 2000, 100_000
LIMITS = {
    "plan of 10,000 cells, 100,000 events": 1.0,
    "status of 10,000 cells, 100,000 events": 1.0,
    "dreamproof --help": 0.3,
    "supervisor with 50 attempts, share of a core": 0.02,
    "death noticed after": 2.0,
}


def declare_large(folder: Path) -> Path:
    """A study file of 10,000 cells."""
    value = {
        "name": "large",
        "question": "Is it quick?",
        "metric": {"smallest_difference": 1.0},
        "task": "counting",
        "trainer": {"command": ["true"], "evaluate": ["true"]},
        "arms": {f"arm{number}": {"level": number} for number in range(ARMS)},
        "seeds": SEEDS,
        "agent_steps": 1000,
        "conditions": ["id"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "large.yaml"
    file.write_text(yaml.safe_dump(value))
    return file


def large_events(study: Study) -> list[Event]:
    """A history of 100,000 events: deaths, resumes and proofs, cell after cell."""
    events: list[Event] = [StudyDeclared(study.hash(), study.model_dump(mode="json"), "../../large.yaml")]
    cells = [f"{arm}/{seed}" for arm in study.arms for seed in study.seeds]
    command = ["python", "train.py", "--seed", "1", "--steps", "1000"]
    number = 0
    for round_number in range(5):
        for cell in cells:
            number += 1
            name = f"a{number:06d}"
            first = 200 * round_number
            events.append(AttemptStarted(name, "train", [cell], [], command, {cell: first}))
            exit_record = {"signal": 9, "wall_seconds": 3.2, "peak_bytes": 123456789}
            kept = {cell: first + 200}
            evidence = ["signal 9 (SIGKILL) after 3.2 s", "sender unknown"]
            events.append(AttemptEnded(name, "killed", evidence, 3.2, {cell: first + 250}, kept, True, exit_record))
    digest = "0123456789abcdef" * 4
    events += [TrainProven(cell, 1000, 500, digest, "step-000000001000") for cell in cells[: len(cells) // 2]]
    return events[:EVENTS]


def make_large(folder: Path) -> Path:
    """A large study with its ledger and the folders of its runs on disk."""
    file = declare_large(folder)
    opened = open_study(file)
    ledger = Ledger(opened.folder.ledger)
    ledger.append_all(large_events(opened.study), durable=False)
    state = StudyState.replay(checked_rows(opened.folder.ledger))
    write_index(opened.folder, state, ledger.position)  # as a supervisor leaves it
    ledger.close()
    for cell in opened.state.cells:
        run = opened.folder.run(cell)
        run.checkpoint(1000).root.mkdir(parents=True)
        for path in (run.settings, run.heartbeat, run.metrics, run.checkpoint(1000).record):
            path.touch()
    return file


def seconds_of(command: list[str], times: int = 5) -> float:
    """The least wall seconds of a command that must succeed; other work on the machine only adds."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - started)
    return min(taken)


def ledger_rates(folder: Path) -> tuple[float, float]:
    """Events per second without and with fsync."""
    event = AttemptEnded("a000001", "killed", ["signal 9"], 3.2, {"arm0/1": 250}, {"arm0/1": 200}, True, {"signal": 9})
    rates = []
    for durable, count in ((False, 20_000), (True, 500)):
        ledger = Ledger(folder / f"rate-{durable}.jsonl")
        started = time.perf_counter()
        for _ in range(count):
            ledger.append(event, durable)
        rates.append(count / (time.perf_counter() - started))
        ledger.close()
    return rates[0], rates[1]


class Fifty:
    """A real run of 50 attempts that do one small step per second."""

    def __init__(self, folder: Path, attempts: int = 50) -> None:
        self.attempts = attempts
        value = yaml.safe_load(declare_large(folder / "fifty").read_text())
        command = [sys.executable, str(TRAINER), "{run_dir}", "--step-seconds", "1", "--save-every", "100000"]
        value |= {"name": "fifty", "arms": {"one": {}}, "seeds": attempts, "agent_steps": 100_000, "conditions": []}
        value["trainer"] = {"command": command}
        value["backend"] = {"slots": attempts}
        self.file = folder / "fifty" / "fifty.yaml"
        self.file.write_text(yaml.safe_dump(value))
        self.process = subprocess.Popen(
            [*COMMAND, "run", str(self.file), "--no-check", "--plain"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until_all_run(self, limit_seconds: float = 180.0) -> None:
        """Waits until every attempt has made a step."""
        until = time.monotonic() + limit_seconds
        runs = open_study(self.file).folder.runs
        while len(list(runs.glob("*/heartbeat.json"))) < self.attempts:
            if time.monotonic() > until:
                raise TimeoutError("the attempts did not start")
            time.sleep(0.5)
        time.sleep(5.0)

    def share_of_core(self, over_seconds: float) -> float:
        """CPU of the supervisor alone, as a share of one core."""
        identity = ProcessIdentity.of(self.process.pid)
        assert identity is not None
        before = process_facts(identity, identity.boot_id)
        time.sleep(over_seconds)
        after = process_facts(identity, identity.boot_id)
        assert before is not None and after is not None
        return (after.cpu_seconds - before.cpu_seconds) / over_seconds

    def death_noticed_seconds(self) -> float:
        """From kill -9 of a trainer to its end in the ledger, by the wall clock."""
        opened = open_study(self.file)
        name = next(iter(opened.state.open_attempts))
        child = json.loads(opened.folder.attempt(name).shim.read_bytes())["child"]["process_id"]
        os.kill(child, signal.SIGKILL)
        killed = time.time()
        while True:
            attempt = open_study(self.file).state.attempts[name]
            if attempt.ended is not None:
                return attempt.ended - killed
            time.sleep(0.05)

    def end(self) -> None:
        """Stops everything."""
        subprocess.run([*COMMAND, "stop", str(self.file)], check=False, stdout=subprocess.DEVNULL)
        self.process.wait(60)


def measure(folder: Path, over_seconds: float, say: Callable[[str], None] = print) -> bool:
    """Measures everything and prints each figure beside its limit; False where one is missed."""
    results: dict[str, float] = {}
    file = make_large(folder)
    results["plan of 10,000 cells, 100,000 events"] = seconds_of([*COMMAND, "plan", str(file)])
    results["status of 10,000 cells, 100,000 events"] = seconds_of([*COMMAND, "status", str(file)])
    open_study(file).folder.index.unlink()
    without_index = seconds_of([*COMMAND, "status", str(file)], 3)
    results["dreamproof --help"] = seconds_of([*COMMAND, "--help"])
    loose, durable = ledger_rates(folder)
    fifty = Fifty(folder)
    try:
        fifty.wait_until_all_run()
        results["supervisor with 50 attempts, share of a core"] = fifty.share_of_core(over_seconds)
        results["death noticed after"] = fifty.death_noticed_seconds()
    finally:
        fifty.end()
    good = True
    for name, value in results.items():
        met = value < LIMITS[name]
        good &= met
        unit = "" if "share" in name else " s"
        say(f"{name:<46}{value:8.3f}{unit:<3} limit {LIMITS[name]:g}{unit}  {'met' if met else 'MISSED'}")
    say(f"{'status by a whole replay, without the index':<46}{without_index:8.3f} s")
    say(f"{'ledger without fsync':<46}{loose:8,.0f}/s  limit 5,000/s  {'met' if loose >= 5000 else 'MISSED'}")
    say(f"{'ledger with fsync':<46}{durable:8,.0f}/s")
    return good and loose >= 5000


def main() -> None:
    """Measures this machine; ends with 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--over-seconds", type=float, default=20.0, help="how long the supervisor's CPU is watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dreamproof-engine-") as folder:
        good = measure(Path(folder), options.over_seconds)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
