"""Host memory of training: `python -m benchmarks.memory` prints megabytes gained per 1,000 updates after warm-up.

Starts the real trainer on a real task with tiny networks, so that hours of updates pass in minutes, and samples the
resident memory of its process against the updates in its heartbeat, saves and validations among them. A first process
compiles and is asked to stop: what a compiler gives back bit by bit would hide what training takes.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.small_agent import tiny_settings
from dreamproof.base.files import write_json
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_heartbeat
from dreamproof.runs.records import RunSettings

ALLOWED_MEGABYTES = 1.0
TRAIN: dict[str, Any] = {
    "envs": 8,
    "prefill_agent_steps": 400,
    "updates_per_agent_step": 0.5,
    "batch": 8,
    "window": 16,
    "chunk_agent_steps": 400,
    "evaluate_every_agent_steps": 2_000,
    "log_every_agent_steps": 400,
}


def write_run(place: Path, task: str, updates: int) -> RunFolder:
    """A run folder that asks for so many updates."""
    steps = TRAIN["prefill_agent_steps"] + int(updates / TRAIN["updates_per_agent_step"])
    settings = tiny_settings(train=TRAIN)
    told = RunSettings(study="memory", arm="tiny", seed=0, task=task, agent_steps=steps, settings=settings)
    folder = RunFolder(place)
    write_json(folder.settings, told.model_dump(mode="json"))
    return folder


def start(folder: RunFolder, programs: Path) -> subprocess.Popen[bytes]:
    """The trainer of a run folder, with a place to keep compiled programs in."""
    variables = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(programs)}
    words = [sys.executable, "-m", "dreamproof.train", str(folder.root)]
    return subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL)


def compile_first(folder: RunFolder, programs: Path) -> None:
    """Trains until the first save, so that every program is compiled, then asks the trainer to stop."""
    trainer = start(folder, programs)
    while trainer.poll() is None and not folder.checkpoint_folders():
        time.sleep(0.1)
    trainer.send_signal(signal.SIGTERM)
    trainer.wait()
    if not folder.checkpoint_folders():
        raise SystemExit(f"the trainer ended with exit code {trainer.returncode} before it saved")


def sample(folder: RunFolder, programs: Path, every_seconds: float) -> list[tuple[int, float]]:
    """(updates, resident megabytes) while the trainer goes on to the end."""
    trainer = start(folder, programs)
    process, seen = psutil.Process(trainer.pid), []
    while trainer.poll() is None:
        beat = read_heartbeat(folder)
        if beat is not None and beat.process_id == trainer.pid and beat.gradient_steps > 0:
            megabytes = process.memory_info().rss / 1e6
            if megabytes > 0:  # none is left of a process that has just ended
                seen.append((beat.gradient_steps, megabytes))
        time.sleep(every_seconds)
    if trainer.returncode != 0:
        raise SystemExit(f"the trainer ended with exit code {trainer.returncode}")
    return seen


def growth(seen: list[tuple[int, float]], warm_up: float) -> tuple[float, float]:
    """Megabytes per 1,000 updates after a fraction `warm_up` of them, and its standard error."""
    updates, megabytes = np.array(seen).T
    late = updates >= warm_up * updates.max()
    design = np.stack([updates[late] / 1000, np.ones(late.sum())], axis=1)
    fit, residual, *_ = np.linalg.lstsq(design, megabytes[late], rcond=None)
    variance = float(residual[0]) / max(1, late.sum() - 2) if residual.size else 0.0
    return float(fit[0]), float(np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0]))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="SafetyPointGoal1")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--warm-up", type=float, default=0.3, help="fraction of the updates that is not counted")
    parser.add_argument("--every-seconds", type=float, default=0.5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        programs = Path(place) / "programs"
        folder = write_run(Path(place) / "run", asked.task, asked.updates)
        compile_first(folder, programs)
        seen = sample(folder, programs, asked.every_seconds)
    slope, error = growth(seen, asked.warm_up)
    print(f"{len(seen)} samples from update {seen[0][0]:,} to {seen[-1][0]:,}; {seen[-1][1]:.0f} MB at the end")
    print(f"{slope:+.3f} ± {error:.3f} MB per 1,000 updates (allowed: {ALLOWED_MEGABYTES})")
    sys.exit(slope > ALLOWED_MEGABYTES)


if __name__ == "__main__":
    main()
