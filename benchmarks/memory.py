"""Host memory of training: `python -m benchmarks.memory` prints megabytes gained per 1,000 updates or epochs.

Starts the real trainer on a real task with tiny networks, so that hours of updates pass in minutes, and samples the
resident memory of its process against the agent steps in its heartbeat, saves and validations among them. A first
process compiles and is asked to stop: what a compiler gives back bit by bit would hide what training takes. Warm-up of
the process that is measured ends with its second save; every sample behind it counts.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from dreamproof.base.files import write_json
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_heartbeat
from dreamproof.runs.records import RunSettings
from dreamproof.testing.small_agent import tiny_pwm_settings, tiny_settings

ALLOWED_MEGABYTES = 1.0
WARM_UP_SAVES = 2
SPANS = 10


class Case(NamedTuple):
    """Cells of one pack to train, and what their agent steps are counted in."""

    trainer: str
    task: str
    cells: int
    settings: dict[str, Any]
    unit: str
    unit_agent_steps: int

    @property
    def save_agent_steps(self) -> int:
        """From one save to the next."""
        return int(self.settings["train"]["evaluate_every_agent_steps"])

    def agent_steps(self, units: int) -> int:
        """After so many updates or epochs."""
        return int(self.settings["train"]["prefill_agent_steps"]) + units * self.unit_agent_steps

    def units(self, agent_steps: float) -> float:
        """Updates or epochs until an agent step."""
        return (agent_steps - self.settings["train"]["prefill_agent_steps"]) / self.unit_agent_steps


DREAMER_TRAIN: dict[str, Any] = {
    "envs": 8,
    "prefill_agent_steps": 400,
    "updates_per_agent_step": 0.5,
    "batch": 8,
    "window": 16,
    "chunk_agent_steps": 400,
    "evaluate_every_agent_steps": 2_000,
    "log_every_agent_steps": 400,
}
# 16 agent steps per epoch; validations and rows every 20 epochs, saves every 250.
PWM_TRAIN: dict[str, Any] = {
    "envs": 4,
    "epoch_env_steps": 4,
    "chunk_agent_steps": 320,
    "evaluate_every_agent_steps": 4_000,
    "log_every_agent_steps": 320,
}
CASES = {
    "dreamer": Case("dreamer", "SafetyPointGoal1", 1, tiny_settings(train=DREAMER_TRAIN), "updates", 2),
    "pwm": Case("pwm", "cartpole-swingup", 2, tiny_pwm_settings(train=PWM_TRAIN), "epochs", 16),
}


class Sample(NamedTuple):
    """Memory of the trainer when its heartbeat showed so many agent steps."""

    agent_steps: int
    megabytes: float


def write_runs(place: Path, case: Case, units: int) -> list[RunFolder]:
    """Run folders of one pack that ask for so many updates or epochs."""
    folders = [RunFolder(place / f"tiny-seed{seed}") for seed in range(case.cells)]
    for seed, folder in enumerate(folders):
        settings = RunSettings(
            study="memory",
            arm="tiny",
            seed=seed,
            task=case.task,
            trainer=case.trainer,
            agent_steps=case.agent_steps(units),
            settings=case.settings,
        )
        write_json(folder.settings, settings.model_dump(mode="json"))
    return folders


def start(folders: list[RunFolder], programs: Path) -> subprocess.Popen[bytes]:
    """The trainer of a pack, with a place to keep compiled programs in where the environment names none."""
    variables = {"JAX_COMPILATION_CACHE_DIR": str(programs)} | os.environ
    command = [sys.executable, "-m", "dreamproof.train", *(str(folder.root) for folder in folders)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)


def compile_first(folders: list[RunFolder], programs: Path) -> int:
    """Trains until the first save, so that every program is compiled, then stops; the agent steps that are saved."""
    trainer = start(folders, programs)
    while trainer.poll() is None and not folders[-1].checkpoint_folders():
        time.sleep(0.1)
    trainer.send_signal(signal.SIGTERM)
    trainer.wait()
    saved = folders[-1].checkpoint_folders()
    if trainer.returncode != 0 or not saved:
        raise SystemExit(f"the trainer ended with exit code {trainer.returncode} and {len(saved)} checkpoints")
    return saved[-1].agent_steps


def watch(folders: list[RunFolder], programs: Path, every_seconds: float) -> list[Sample]:
    """Samples until the trainer ends."""
    trainer = start(folders, programs)
    process, seen = psutil.Process(trainer.pid), []
    while trainer.poll() is None:
        # Memory first: what a process gives back as it ends comes after its last word, and is not counted.
        megabytes, beat = process.memory_info().rss / 1e6, read_heartbeat(folders[0])
        if beat is not None and beat.process_id == trainer.pid and beat.phase not in ("compile", "done"):
            seen.append(Sample(beat.agent_steps, megabytes))
        time.sleep(every_seconds)
    if trainer.returncode != 0:
        raise SystemExit(f"the trainer ended with exit code {trainer.returncode}")
    return seen


def slope(case: Case, counted: list[Sample]) -> float:
    """Megabytes per 1,000 updates or epochs, by least squares over all samples."""
    agent_steps, megabytes = np.array(counted).T
    return float(np.polyfit(case.units(agent_steps) / 1000, megabytes, 1)[0])


def table(case: Case, seen: list[Sample], warm: int) -> str:
    """Samples from save to save in the warm-up, then in as many spans of whole saves as fit on a page."""
    last = max(sample.agent_steps for sample in seen)
    width = case.save_agent_steps * -(-(last - warm) // (SPANS * case.save_agent_steps))
    ends = [*range(0, warm, case.save_agent_steps), *range(warm, last + width, width)]
    lines = [f"{case.unit:>15}  samples   least  median    most MB"]
    for begin, end in pairwise(ends):
        # The save at the end of a span is made before the next step, so it belongs to that span.
        found = [sample.megabytes for sample in seen if begin < sample.agent_steps <= end]
        if found:
            span = f"{max(0, case.units(begin)):,.0f}–{case.units(min(end, last)):,.0f}"
            least, median, most = np.quantile(found, [0, 0.5, 1])
            note = "  warm-up" if end <= warm else ""
            lines.append(f"{span:>15}  {len(found):7d} {least:7.1f} {median:7.1f} {most:7.1f}{note}")
    return "\n".join(lines)


def measure(case: Case, units: int, every_seconds: float) -> bool:
    """Trains, prints, and returns whether memory grows by no more than allowed."""
    with tempfile.TemporaryDirectory() as place:
        programs = Path(place) / "programs"
        folders = write_runs(Path(place), case, units)
        began = compile_first(folders, programs)
        seen = watch(folders, programs, every_seconds)
    warm = (began // case.save_agent_steps + WARM_UP_SAVES) * case.save_agent_steps
    counted = [sample for sample in seen if sample.agent_steps > warm]
    if not counted:
        raise SystemExit(f"{units:,} {case.unit} end within the warm-up of {case.units(warm):,.0f}")
    saves = -(-(case.agent_steps(units) - warm) // case.save_agent_steps)
    print(f"{case.trainer}, {case.task}, cells in the pack: {case.cells}")
    print(table(case, seen, warm))
    print(
        f"warm-up: {case.units(warm):,.0f} {case.unit}, the first {WARM_UP_SAVES} saves of this process among them; "
        f"{saves} saves after it; most: {max(sample.megabytes for sample in seen):.0f} MB"
    )
    grown = slope(case, counted)
    allowed = f"allowed: {ALLOWED_MEGABYTES:g}"
    print(f"{grown:+.3f} MB per 1,000 {case.unit}, {len(counted)} samples by least squares ({allowed})", flush=True)
    return grown <= ALLOWED_MEGABYTES


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--units", type=int, default=10_000, help="updates or epochs, warm-up among them")
    parser.add_argument("--every-seconds", type=float, default=0.25)
    asked = parser.parse_args()
    level = [measure(CASES[name], asked.units, asked.every_seconds) for name in asked.trainers]
    sys.exit(not all(level))


if __name__ == "__main__":
    main()
