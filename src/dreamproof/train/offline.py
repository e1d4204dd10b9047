"""Data of an offline cell: windows sampled from recorded episodes on the device, a pretrained world model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import RecordedSteps, Windows
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.data.arrays import read_arrays
from dreamproof.data.library import RecordedEpisodes
from dreamproof.jaxcore.checkpoints import AGENT_FILE, fill
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import checkpoint_fault, newest_good_checkpoint, read_checkpoint, read_settings
from dreamproof.settings.recorded import RecordedData

MAX_WINDOWS = np.iinfo(np.int32).max


class WindowIndex(NamedTuple):
    """Episodes to sample from (S,), the number of windows in each, and the cumulative number of windows."""

    episode: Array
    windows: Array
    until: Array


class TaskWindows(NamedTuple):
    """Windows of K tasks, sorted by task: those of the k-th are the numbers first[k] to before last[k]."""

    windows: WindowIndex
    first: Array
    last: Array


def index_tasks(tasks: np.ndarray, rows: np.ndarray, window: int, wanted: Sequence[int]) -> TaskWindows:
    """The windows of some tasks; `tasks` and `rows` (E,) describe the episodes."""
    found = [np.flatnonzero(tasks == task) for task in wanted]
    for task, episodes in zip(wanted, found, strict=True):
        if not len(episodes):
            known = ", ".join(map(str, np.unique(tasks)))
            raise BadInput(
                f"no recorded episode of task {task}; recorded tasks: {known}",
                "record episodes of it; with data.device_episodes, set more of them",
            )
    chosen = np.concatenate(found)
    index = index_rows(rows[chosen], window)._replace(episode=jnp.asarray(chosen, jnp.int32))
    last = np.asarray(index.until)[np.cumsum([len(episodes) for episodes in found]) - 1]
    return TaskWindows(index, jnp.asarray([0, *last[:-1]], jnp.int32), jnp.asarray(last))


def index_windows(episodes: RecordedEpisodes, window: int) -> WindowIndex:
    """The index of all windows of `window` rows."""
    return index_rows(np.asarray(episodes.rows), window)


def index_rows(rows: np.ndarray, window: int) -> WindowIndex:
    """The same of episodes with these numbers of rows."""
    windows = np.maximum(1, rows - window + 1)
    until = np.cumsum(windows, dtype=np.int64)
    if until[-1] > MAX_WINDOWS:
        raise BadInput(
            f"{until[-1]:,} windows exceed the range of int32", "set data.device_episodes, or list fewer files"
        )
    return WindowIndex(*(jnp.asarray(part, jnp.int32) for part in (np.arange(len(rows)), windows, until)))


def draw(
    index: WindowIndex, key: Array, count: int, first: Array | int = 0, last: Array | None = None
) -> tuple[Array, Array]:
    """Episodes and first rows (count,) of windows, uniform over the windows `first` to before `last` of the index.

    An episode shorter than a window counts as one window. The time grows with the logarithm of the number of episodes.
    """
    number = jax.random.randint(key, (count,), first, index.until[-1] if last is None else last)
    place = jnp.searchsorted(index.until, number, side="right")
    return index.episode[place], number - (index.until[place] - index.windows[place])


def sample_windows(episodes: RecordedEpisodes, index: WindowIndex, key: Array, shape: tuple[int, int]) -> Windows:
    """Windows (T+1, B, ...) with unscaled rewards; rows after the end of an episode are masked."""
    rows, batch = shape
    episode, start = draw(index, key, batch)
    rows_at = start[None] + jnp.arange(rows)[:, None]
    is_padding = rows_at >= episodes.rows[episode]
    at = (episode[None], jnp.minimum(rows_at, episodes.reward.shape[1] - 1))
    observation, action, reward = (part[at].astype(jnp.float32) for part in episodes[:3])
    ends = (rows_at == episodes.rows[episode] - 1) * episodes.terminated[episode]
    first = is_padding.astype(jnp.float32)
    return Windows(observation, action, reward, first, ends, jnp.ones(()), episodes.task[episode])


def sample_steps(episodes: RecordedEpisodes, tasks: TaskWindows, key: Array, count: int) -> RecordedSteps:
    """First steps (K, count, ...) of sampled windows of every task."""

    def of_task(key: Array, first: Array, last: Array) -> RecordedSteps:
        episode, row = draw(tasks.windows, key, count, first, last)
        taken = (episodes.observation[episode, row], episodes.action[episode, row + 1])
        return RecordedSteps(*(part.astype(jnp.float32) for part in taken))

    return jax.vmap(of_task)(jax.random.split(key, len(tasks.first)), tasks.first, tasks.last)


def read_world_model(place: Path, template: Any, data: RecordedData) -> tuple[Any, str]:
    """World model of a trained run, in the structure of `template` (without replicas), and its parameter hash."""
    folder, run = _checkpoint(place)
    fault = checkpoint_fault(folder)
    record = read_checkpoint(folder)
    if fault is not None or record is None:
        raise BrokenEvidence(f"{folder.root}: {fault}", "dreamproof verify STUDY")
    if record.gradient_steps <= 0 or not record.finite:
        raise BadInput(f"{folder.root}: was never trained, or holds non-finite values", "dreamproof why")
    trained = read_settings(run)
    if trained is None:
        raise BadInput(f"{run.settings}: missing or not readable, so its tasks are unknown", f"ls {run.root}")
    tasks = tuple(trained.settings.get("data", {}).get("tasks", [trained.task]))
    if tasks != data.tasks:
        raise BadInput(
            f"{place}: its world model knows the tasks {', '.join(tasks)}, not {', '.join(data.tasks)}",
            "set data.tasks to the same names in the same order",
        )
    try:
        return fill(template, read_arrays(folder.root / AGENT_FILE), str(folder.root)), record.parameter_hash
    except BrokenEvidence as error:
        raise BadInput(error.seen, "use the agent settings and data sizes of that run") from None


def _checkpoint(place: Path) -> tuple[CheckpointFolder, RunFolder]:
    """The checkpoint of a path, and its run."""
    if CheckpointFolder(place).record.is_file():
        return CheckpointFolder(place), RunFolder(place.parent.parent)
    newest = newest_good_checkpoint(RunFolder(place))
    if newest is None:
        raise BadInput(
            f"{place}: no complete checkpoint with a world model (relative to {Path.cwd()})",
            f"ls {place}; or train it first: dreamproof run STUDY",
        )
    return newest, RunFolder(place)
