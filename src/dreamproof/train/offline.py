"""Data of an offline cell: windows sampled from recorded episodes on the device."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import RecordedSteps, Windows
from dreamproof.base.errors import BadInput
from dreamproof.data.library import RecordedEpisodes

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
    """The windows of some tasks; `tasks` and `rows` (E,) describe the episodes, some of them of every task.

    The index has as many entries as there are episodes, whatever their tasks: another size would be another compile.
    """
    found = [np.flatnonzero(tasks == task) for task in wanted]
    assert all(map(len, found)), (wanted, np.unique(tasks))
    chosen = np.concatenate(found)
    index = index_rows(rows[chosen], window)._replace(episode=jnp.asarray(chosen, jnp.int32))
    last = np.asarray(index.until)[np.cumsum([len(episodes) for episodes in found]) - 1]
    # What follows the last window has none: it repeats the last entry, and nothing is drawn from it.
    padded = WindowIndex(*(jnp.pad(part, (0, len(tasks) - len(chosen)), "edge") for part in index))
    return TaskWindows(padded, jnp.asarray([0, *last[:-1]], jnp.int32), jnp.asarray(last))


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
    return windows_at(episodes, draw(index, key, batch), rows)


def windows_at(episodes: RecordedEpisodes, at: tuple[Array, Array], rows: int) -> Windows:
    """The windows of so many rows that start at these episodes and rows (B,)."""
    episode, start = at
    rows_at = start[None] + jnp.arange(rows)[:, None]
    is_padding = rows_at >= episodes.rows[episode]
    places = (episode[None], jnp.minimum(rows_at, episodes.reward.shape[1] - 1))
    observation, action, reward = (part[places].astype(jnp.float32) for part in episodes[:3])
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


def sample_task_windows(episodes: RecordedEpisodes, tasks: TaskWindows, key: Array, shape: tuple[int, int]) -> Windows:
    """Windows (K, T+1, B, ...) of every task with unscaled rewards."""
    rows, batch = shape

    def of_task(key: Array, first: Array, last: Array) -> Windows:
        return windows_at(episodes, draw(tasks.windows, key, batch, first, last), rows)

    return jax.vmap(of_task)(jax.random.split(key, len(tasks.first)), tasks.first, tasks.last)
