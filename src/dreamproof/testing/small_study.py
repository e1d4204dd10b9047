"""Small studies of the scripted trainer, for tests and measurements."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

TRAINER = Path(__file__).with_name("scripted_trainer.py")
COMMAND = (sys.executable, "-m", "dreamproof.cli.main")
QUICK = ("--no-check", "--no-report", "--plain")
"""Options of a `run` that only trains and evaluates."""
PRINTING = """import pathlib, sys
run = pathlib.Path(sys.argv[1])
run.mkdir(parents=True, exist_ok=True)
for step in range(1, 11):
    print(f"[{step}/10] R:{step}", flush=True)
(run / "model.ckpt").write_text("w" * 50)
"""


def small_study(**changes: Any) -> dict[str, Any]:
    """A study of two arms and two seeds that ends in about a second; `changes` replace whole keys."""
    command = [sys.executable, str(TRAINER), "{run_dir}"]
    study: dict[str, Any] = {
        "name": "small",
        "question": "Does the level help?",
        "metric": {"name": "return", "smallest_difference": 0.5},
        "task": "counting",
        "trainer": {
            "command": [*command, "--step-seconds", "0.02", "--save-every", "5"],
            "evaluate": [*command, "--evaluate", "{condition}", "--step-seconds", "0"],
            "code": [str(TRAINER)],
        },
        "arms": {"low": {"level": 1}, "high": {"level": 2}},
        "seeds": 2,
        "agent_steps": 20,
        "conditions": ["id"],
        "evaluation_episodes": 3,
        "backend": {"slots": 4},
        "retries": {"first_wait_seconds": 0.05, "longest_wait_seconds": 0.2},
    }
    return study | changes


def declare(place: Path, /, **changes: Any) -> Path:
    """Writes the study file of a small study and returns it."""
    study = small_study(**changes)
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{study['name']}.yaml"
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    return file


def run_small(place: Path) -> Path:
    """Declares a small study and runs it to its end, in a process of its own; returns its file."""
    file = declare(place)
    done = subprocess.run([*COMMAND, "run", str(file), *QUICK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return file


def declare_printing(place: Path) -> Path:
    """A study of one cell, whose trainer prints its progress and writes a checkpoint of its own at the end."""
    script = place / "own.py"
    script.write_text(PRINTING)
    trainer = {"command": [sys.executable, str(script), "{run_dir}"], "adapter": "bracket_lines"}
    return declare(place, trainer=trainer, agent_steps=10, conditions=[], arms={"low": {}}, seeds=1)


def write_weights(content: str) -> Callable[[Path], None]:
    """Writes a checkpoint that holds one small file."""

    def write(place: Path) -> None:
        (place / "w").write_text(content)

    return write
