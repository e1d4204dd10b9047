"""Recorded episodes of many tasks as windows: files in the layout of the TD-MPC2 (2024) multi-task sets, as .npz.

Arrays are obs (E, T, O), action (E, T, A), reward (E, T) and task (E, T). Row 0 of an episode holds no action and no
reward (not a number); row t + 1 holds those that led from observation t to observation t + 1, as in our own replay.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.pwm.world_model import Windows
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.checkpoints import read_arrays

SHAPES = {"obs": 3, "action": 3, "reward": 2, "task": 2}


class Episodes(NamedTuple):
    """Recorded episodes on the device: (E, T, ...) and the task of each (E,)."""

    observation: Array
    action: Array
    reward: Array
    task: Array


def read_episodes(path: Path, only_task: int | None = None) -> Episodes:
    """The episodes of a file, those of one task alone where it is named; fillers of first rows become 0."""
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file", f"ls {path.parent}")
    arrays = read_arrays(path)
    _check(path, arrays)
    task = arrays["task"][:, 0]
    kept = np.ones(len(task), bool) if only_task is None else task == only_task
    if not kept.any():
        found = ", ".join(map(str, np.unique(task)))
        raise BadInput(f"{path}: holds no episode of task {only_task}; it holds {found}", "name one of those")
    observation, action, reward = (arrays[name][kept] for name in ("obs", "action", "reward"))
    action[:, 0], reward[:, 0] = 0.0, 0.0
    if not all(np.isfinite(part).all() for part in (observation, action, reward)):
        raise BadInput(f"{path}: numbers that are not finite stand outside of first rows", "check how it was made")
    shown = (jnp.asarray(observation), jnp.asarray(action), jnp.asarray(reward))
    return Episodes(*shown, jnp.asarray(task[kept], jnp.int32))


def _check(path: Path, arrays: dict[str, np.ndarray]) -> None:
    for name, axes in SHAPES.items():
        if name not in arrays:
            raise BadInput(f"{path}: the array '{name}' is missing; it holds {', '.join(arrays)}", f"ls -l {path}")
        if arrays[name].ndim != axes or arrays[name].shape[:2] != arrays["obs"].shape[:2]:
            raise BadInput(f"{path}: '{name}' has the shape {arrays[name].shape}, not (E, T, ...)", f"ls -l {path}")
    if (arrays["task"] != arrays["task"][:, :1]).any():
        raise BadInput(f"{path}: an episode belongs to more than one task", "check how it was made")


def sample_windows(episodes: Episodes, key: Array, shape: tuple[int, int], scale: Array) -> Windows:
    """Windows (T+1, B, ...), uniform over all that lie whole inside an episode, in constant time."""
    rows, batch = shape
    count, length = episodes.reward.shape
    assert rows <= length, f"a window of {rows} rows in episodes of {length}"
    episode_key, start_key = jax.random.split(key)
    episode = jax.random.randint(episode_key, (batch,), 0, count)
    start = jax.random.randint(start_key, (batch,), 0, length - rows + 1)
    index = start[None] + jnp.arange(rows)[:, None]
    observation, action, reward = (part[episode[None], index] for part in episodes[:3])
    no = jnp.zeros((rows, batch))
    return Windows(observation, action, reward, no, no, scale, episodes.task[episode])


def action_masks(action_sizes: list[int]) -> Array:
    """1 for the actions (tasks, A) that a task has, 0 for those that only fill up to the widest."""
    widest = max(action_sizes)
    return (jnp.arange(widest)[None] < jnp.asarray(action_sizes)[:, None]).astype(jnp.float32)
