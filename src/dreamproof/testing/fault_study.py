"""The small study that a fault campaign runs."""

import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

TRAINER = Path(__file__).with_name("scripted_trainer.py")
SAVE_EVERY = 5
AGENT_STEPS = 50
STEP_SECONDS = 0.03
SLOTS = 6


def declare(
    folder: Path, name: str, cells: int, memory_limit_bytes: int | None = None, is_wrapped: bool = False
) -> Path:
    """Writes the study file of one small study; a wrapped one starts its trainer through a shell, as many do."""
    command = [sys.executable, str(TRAINER), "{run_dir}"]
    train = [*command, "--step-seconds", str(STEP_SECONDS), "--save-every", str(SAVE_EVERY)]
    study: dict[str, Any] = {
        "name": name,
        "question": "Does it end as declared?",
        "metric": {"name": "return", "smallest_difference": 0.5},
        "task": "counting",
        "trainer": {
            "command": ["bash", "-c", f"{shlex.join(train)}; exit $?"] if is_wrapped else train,
            "evaluate": [*command, "--evaluate", "{condition}"],
            "code": [str(TRAINER)],
        },
        "arms": {"low": {"level": 1}, "high": {"level": 2}},
        "seeds": max(1, cells // 2),
        "agent_steps": AGENT_STEPS,
        "conditions": ["id"],
        "evaluation_episodes": 3,
        "backend": {"slots": SLOTS},
        "retries": {
            "transient_at_most": 60,
            "stalled_at_most": 60,
            "first_wait_seconds": 0.05,
            "longest_wait_seconds": 0.2,
            "breaker_failures": 1000,
        },
        "liveness": {
            "stalled_after_seconds": 2.0,
            "compile_stalled_after_seconds": 6.0,
            "gap_factor": 2.0,
            "kill_stopped_after_seconds": 2.0,
            "kill_idle_after_seconds": 6.0,
            "kill_silent_after_seconds": 6.0,
        },
    }
    if memory_limit_bytes is not None:
        study["backend"]["memory_limit_bytes"] = memory_limit_bytes
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(study))
    return path
