"""Records states, observations and rewards of DM-Control's own tasks: what ours are compared with.

Run it where dm-control is installed; version 1.0.50 on MuJoCo 3.17.0 was recorded.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

TASKS = {
    "cheetah-run": ("cheetah", "run"),
    "walker-walk": ("walker", "walk"),
    "hopper-hop": ("hopper", "hop"),
    "cartpole-swingup": ("cartpole", "swingup"),
}
EVERY, ROWS, HELD = 12, 40, 6


def record(task: str, seed: int) -> dict[str, np.ndarray]:
    """Rows of control steps under random actions: the state before, the action, and all that is known after."""
    from dm_control import suite

    env = suite.load(*TASKS[task], task_kwargs={"random": seed})
    generator = np.random.default_rng(seed)
    env.reset()
    rows: list[dict[str, Any]] = []
    for step in range(EVERY * ROWS):
        if step % HELD == 0:
            action = generator.uniform(-1, 1, env.action_spec().shape)
        data = env.physics.data
        before = {"position": data.qpos.copy(), "velocity": data.qvel.copy(), "action": action}
        shown = env.step(action)
        if step % EVERY == EVERY - 1:
            touch = env.physics.named.data.sensordata[["touch_toe", "touch_heel"]] if task == "hopper-hop" else []
            rows.append(
                before
                | {
                    "next_position": data.qpos.copy(),
                    "next_velocity": data.qvel.copy(),
                    "touch": np.asarray(touch, float),
                    "observation": np.concatenate([np.ravel(part) for part in shown.observation.values()]),
                    "reward": np.asarray(shown.reward),
                }
            )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def main() -> None:
    """Writes one compressed file with an array for each task and name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    arrays = {f"{task}/{name}": column for task in TASKS for name, column in record(task, 0).items()}
    np.savez_compressed(chosen.file, **arrays)


if __name__ == "__main__":
    main()
