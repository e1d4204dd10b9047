"""Runs a real trainer of others as a study: stable-baselines3, script unchanged, one trainer killed with signal 9.

`make external` installs stable-baselines3 and runs this: once with the logger's CSV, once with TensorBoard alone.
EXTERNAL_PYTHON may name another interpreter that has it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil

from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.study.plan.open_study import open_study

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "sb3_unchanged"
PLACE = ROOT / "build" / "external"
KILLED = Cell("ppo", 1)
LIMIT_SECONDS = 1800


def prepare(form: str) -> Path:
    """A fresh copy of the example that logs in one form; returns its study file."""
    folder = PLACE / form
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(EXAMPLE, folder)
    file = folder / "study.yaml"
    python = os.environ.get("EXTERNAL_PYTHON", "{python}")
    text = file.read_text().replace('"{run_dir}"]\n  evaluate', f'"{{run_dir}}", --log, {form}]\n  evaluate')
    file.write_text(text.replace("{python}", python))
    return file


def kill_trainer(run: Path) -> bool:
    """Kills the process that trains into a run folder, once it has saved a checkpoint; whether it did."""
    if not list(run.glob("checkpoints/*.zip")):
        return False
    for process in psutil.process_iter(["cmdline"]):
        command = [word.rstrip("/") for word in process.info["cmdline"] or []]
        if "train.py" in command and str(run) in command:
            process.send_signal(signal.SIGKILL)
            return True
    return False


def run_study(file: Path) -> None:
    """Runs a study and kills one trainer in the middle; prints the verdict, raises if a cell is not proven."""
    folder = StudyFolder(file.parent / "results" / "sb3_unchanged")
    command = [sys.executable, "-m", "dreamproof.cli", "run", str(file), "--plain"]
    process = subprocess.Popen(command)
    killed, until = False, time.monotonic() + LIMIT_SECONDS
    while process.poll() is None and time.monotonic() < until:
        killed = killed or kill_trainer(folder.run(KILLED).root)
        time.sleep(0.2)
    state, form = open_study(file).state, file.parent.name
    causes = Counter(attempt.cause for attempt in state.attempts.values())
    proven = sum(map(state.trained, state.cells.values()))
    evaluated = sum(map(state.evaluated, state.eval_cells.values()))
    print(f"{form}: {proven} of {len(state.cells)} trained, {evaluated} evaluated, {killed=}, causes {dict(causes)}")
    if not killed or proven < len(state.cells) or evaluated < len(state.eval_cells) or "killed" not in causes:
        raise SystemExit(f"{form}: not as expected; see {folder.root}")
    [verdict] = json.loads((folder.root / "tables" / "verdicts.json").read_text())["verdicts"]
    print(f"{form}: {verdict}")


def main() -> None:
    """Both forms, one after the other."""
    for form in ("csv", "tensorboard"):
        run_study(prepare(form))


if __name__ == "__main__":
    main()
