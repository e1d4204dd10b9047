"""Small studies of the scripted trainer, for tests and measurements."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

TRAINER = Path(__file__).with_name("scripted_trainer.py")


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


def write_weights(content: str) -> Callable[[Path], None]:
    """Writes a checkpoint that holds one small file."""

    def write(place: Path) -> None:
        (place / "w").write_text(content)

    return write
