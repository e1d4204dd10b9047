"""Recorded episodes of several tasks as one plain .npz, in the layout of the TD-MPC2 (2024) multi-task sets.

obs (E, T, O), action (E, T, A), reward (E, T), task (E, T). Row 0 of an episode has no action and no reward (NaN);
row t + 1 holds those of the transition from observation t to t + 1. Optional further arrays are those of TaskInfo.
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import sync_folder
from dreamproof.jaxcore.checkpoints import read_arrays, write_arrays

AXES = {"obs": 3, "action": 3, "reward": 2, "task": 2}


class TaskInfo(NamedTuple):
    """Names of the tasks in the order of their numbers, and their observation and action sizes."""

    names: tuple[str, ...]
    observation_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]


class Recording(NamedTuple):
    """Episodes (E, T, ...), the task of each (E,), its rows (E,) and whether it ended by termination (E,).

    Rows after the end of an episode, and all other padding, are 0.
    """

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    task: np.ndarray
    rows: np.ndarray
    terminated: np.ndarray
    task_info: TaskInfo | None = None


def check_output(path: Path) -> None:
    """Refuses a path that cannot be written, before anything is recorded."""
    if path.suffix != ".npz":
        raise BadInput(f"{path}: recorded episodes must be an .npz file", f"--output {path.with_suffix('.npz')}")
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: there is no such folder", f"mkdir -p {path.parent}")


def write_recording(path: Path, recording: Recording) -> None:
    """Replaces a file of episodes atomically; padding of actions and rewards is written as NaN."""
    inside = np.arange(recording.reward.shape[1])[None] < recording.rows[:, None]
    moved = inside.copy()
    moved[:, 0] = False
    arrays = {
        "obs": recording.observation,
        "action": np.where(moved[..., None], recording.action, np.float32(np.nan)),
        "reward": np.where(moved, recording.reward, np.float32(np.nan)),
        "task": np.repeat(recording.task[:, None].astype(np.int32), inside.shape[1], axis=1),
        "rows": recording.rows.astype(np.int32),
        "terminated": recording.terminated,
    }
    if recording.task_info is not None:
        arrays |= {name: np.asarray(value) for name, value in recording.task_info._asdict().items()}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_arrays(partial, arrays)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_recording(path: Path) -> Recording:
    """The episodes of a file; a file with another layout is refused."""
    if not path.is_file():
        raise BadInput(
            f"{path}: no such file of recorded episodes (relative to {Path.cwd()})",
            f"python -m dreamproof.record --tasks TASK,TASK --policy random --episodes 100 --output {path}",
        )
    try:
        arrays = read_arrays(path)
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(f"{path}: is not a plain .npz file ({error})", "see docs/multitask.md") from None
    _check(path, arrays)
    observation, action, reward = (arrays[name].astype(np.float32, copy=False) for name in ("obs", "action", "reward"))
    length = reward.shape[1]
    rows = arrays.get("rows", np.full(len(reward), length, np.int32))
    action[:, 0], reward[:, 0] = 0.0, 0.0
    for part in (observation, action, reward):
        for episode in np.flatnonzero(rows < length):
            part[episode, rows[episode] :] = 0.0
        if not np.isfinite(part).all():
            raise BadInput(f"{path}: values outside of first rows are not finite", "check how it was made")
    terminated = arrays.get("terminated", np.zeros(len(reward), bool))
    return Recording(observation, action, reward, arrays["task"][:, 0], rows, terminated, _task_info(path, arrays))


def _check(path: Path, arrays: dict[str, np.ndarray]) -> None:
    for name, axes in AXES.items():
        if name not in arrays:
            present = ", ".join(arrays) or "nothing"
            raise BadInput(f"{path}: the array '{name}' is missing; it holds {present}", "see docs/multitask.md")
        if arrays[name].ndim != axes or arrays[name].shape[:2] != arrays["obs"].shape[:2]:
            raise BadInput(
                f"{path}: '{name}' has the shape {arrays[name].shape}, not (E, T, ...)", "see docs/multitask.md"
            )
    episodes, length = arrays["reward"].shape
    if episodes == 0 or length < 2:
        raise BadInput(f"{path}: holds no transition ({episodes} episodes of {length} rows)", "record more episodes")
    if (arrays["task"] != arrays["task"][:, :1]).any():
        raise BadInput(f"{path}: an episode belongs to more than one task", "check how it was made")
    rows = arrays.get("rows", np.full(episodes, length))
    if rows.shape != (episodes,) or rows.min() < 2 or rows.max() > length:
        raise BadInput(f"{path}: 'rows' is not one number from 2 to {length} per episode", "check how it was made")
    if arrays.get("terminated", rows).shape != (episodes,):
        raise BadInput(f"{path}: 'terminated' is not one flag per episode", "check how it was made")


def _task_info(path: Path, arrays: dict[str, np.ndarray]) -> TaskInfo | None:
    if "names" not in arrays:
        return None
    names, *sizes = (arrays.get(name) for name in TaskInfo._fields)
    assert names is not None
    if any(part is None or part.shape != names.shape for part in sizes) or arrays["task"].max() >= len(names):
        raise BadInput(f"{path}: its task names and sizes do not match its episodes", "check how it was made")
    seen, done = (tuple(int(size) for size in part) for part in sizes if part is not None)
    return TaskInfo(tuple(str(name) for name in names), seen, done)
