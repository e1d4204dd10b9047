"""A share of the recorded episodes on the device, renewed shard by shard during training.

The share is a ring of shards. Which episodes it holds follows from the number of updates alone, so a resumed run
continues with the same ones. The next shard is read and copied to the device while it computes.
"""

import functools
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.data.library import EpisodeLibrary, RecordedEpisodes
from dreamproof.train.offline import TaskWindows, WindowIndex, index_rows, index_tasks

SHARDS = 16


class OfflineData(NamedTuple):
    """Episodes shared by all replicas, and the index of the windows to sample for the model and for the behaviour.

    copied: windows whose actions may be cloned; None: all of the cell's own tasks.
    """

    episodes: RecordedEpisodes
    all_tasks: WindowIndex
    own_tasks: TaskWindows
    copied: TaskWindows | None = None


class EpisodeRing:
    """Shards of some episodes on the device, in an endless order in which every episode comes once per round.

    Episodes of every kind, such as a task, are spread evenly over a round, so that some of each are held at any time.
    """

    def __init__(self, library: EpisodeLibrary, chosen: np.ndarray, kinds: np.ndarray, device_episodes: int) -> None:
        """kinds: that of each episode of the library (E,)."""
        self.library, self.chosen, self.kinds = library, chosen, kinds[chosen]
        self.is_whole = len(chosen) <= device_episodes
        self.shard_episodes = device_episodes // SHARDS
        self.refreshes: int | None = None
        self.episodes: RecordedEpisodes | None = None
        self.held = np.zeros((SHARDS, self.shard_episodes), np.int64)
        self._reader = ThreadPoolExecutor(1)
        self._next: tuple[int, Future[RecordedEpisodes]] | None = None

    def numbers(self, shard: int) -> np.ndarray:
        """The episodes of a shard, sorted: neighbours in a file are read together."""
        places = np.arange(shard * self.shard_episodes, (shard + 1) * self.shard_episodes)
        rounds, inside = np.divmod(places, len(self.chosen))
        found = [self._order(one)[inside[rounds == one]] for one in np.unique(rounds)]
        return np.sort(np.concatenate(found))

    def _order(self, number: int) -> np.ndarray:
        """The episodes of a round: shuffled within their kind, and the n of a kind in distances of about 1/n."""
        random, places = np.random.default_rng(number), np.zeros(len(self.chosen))
        for kind in np.unique(self.kinds):
            own = random.permutation(np.flatnonzero(self.kinds == kind))
            places[own] = (np.arange(len(own)) + random.random()) / len(own)
        return self.chosen[np.argsort(places, kind="stable")]

    def after(self, refreshes: int) -> tuple[RecordedEpisodes, np.ndarray]:
        """What the device holds after so many refreshes, and the numbers of these episodes."""
        if self.is_whole:
            self.episodes = self.episodes or on_device(self.library, self.chosen)
            return self.episodes, self.chosen
        if self.episodes is None or self.refreshes is None or refreshes not in (self.refreshes, self.refreshes + 1):
            self.episodes = self._empty()
            for shard in range(refreshes, refreshes + SHARDS):
                self._put(shard)
        elif refreshes == self.refreshes + 1:
            self._put(refreshes + SHARDS - 1)
        self.refreshes = refreshes
        self._read_ahead(refreshes + SHARDS)
        return self.episodes, self.held.ravel()

    def _empty(self) -> RecordedEpisodes:
        one = on_device(self.library, self.numbers(0)[:1])
        return RecordedEpisodes(
            *(jnp.zeros((SHARDS * self.shard_episodes, *part.shape[1:]), part.dtype) for part in one)
        )

    def _put(self, shard: int) -> None:
        waiting = self._next is not None and self._next[0] == shard
        loaded = self._next[1].result() if self._next is not None and waiting else self._load(shard)
        slot = shard % SHARDS
        self.held[slot] = self.numbers(shard)
        self.episodes = _replaced(self.episodes, loaded, jnp.asarray(slot * self.shard_episodes, jnp.int32))

    def _load(self, shard: int) -> RecordedEpisodes:
        return shard_on_device(self.library, self.numbers(shard))

    def _read_ahead(self, shard: int) -> None:
        if self._next is None or self._next[0] != shard:
            self._next = shard, self._reader.submit(self._load, shard)


def episodes_needed(kinds: np.ndarray) -> int:
    """How many episodes a ring must hold so that some of every kind (E,) are among them at any time.

    Two of n episodes of a kind are at most 2/n of a round apart, at its end; every other kind moves that by one.
    """
    counts = np.unique(kinds, return_counts=True)[1]
    least = -(-2 * len(kinds) // int(counts.min())) + len(counts)
    return -(-least // SHARDS) * SHARDS


def on_device(library: EpisodeLibrary, chosen: np.ndarray) -> RecordedEpisodes:
    """Some episodes by their numbers, on the device; the host holds them once, in the type of the device."""
    return RecordedEpisodes(*map(jnp.asarray, library.load(chosen, jnp.dtype(library.data.storage))))


def shard_on_device(library: EpisodeLibrary, chosen: np.ndarray) -> RecordedEpisodes:
    """The same for few episodes, which the device converts: NumPy may take longer than the updates of a shard."""
    return stored(library, RecordedEpisodes(*map(jnp.asarray, library.load(chosen))))


def stored(library: EpisodeLibrary, loaded: RecordedEpisodes) -> RecordedEpisodes:
    """Episodes with values of the type that the device keeps."""
    kind = jnp.dtype(library.data.storage)
    observation, action, reward = (part.astype(kind, copy=False) for part in loaded[:3])
    return loaded._replace(observation=observation, action=action, reward=reward)


@functools.partial(jax.jit, donate_argnums=0)
def _replaced(whole: RecordedEpisodes, part: RecordedEpisodes, first: jax.Array) -> RecordedEpisodes:
    return jax.tree.map(lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, first, 0), whole, part)


def index_behavior(
    tasks: np.ndarray, rows: np.ndarray, of: tuple[int, Sequence[int]], cloned: np.ndarray | None
) -> tuple[TaskWindows, TaskWindows | None]:
    """Windows of the cell's own tasks, all of them and those whose actions may be cloned; `of`: rows and tasks."""
    window, own = of
    every = index_tasks(tasks, rows, window, own)
    # Task numbers of the others are no task.
    return every, None if cloned is None else index_tasks(np.where(cloned, tasks, -1), rows, window, own)


class StreamedData:
    """Episodes of all tasks for the model, then of the cell's own tasks for the behaviour, renewed with the updates."""

    def __init__(
        self,
        library: EpisodeLibrary,
        own: Sequence[int],
        window: int,
        model_updates: int,
        cloned: np.ndarray | None = None,
    ) -> None:
        """cloned: whether the actions of an episode (E,) may be cloned; None: all may."""
        self.library, self.own, self.window, self.model_updates = library, own, window, model_updates
        self.cloned = cloned
        self.kinds = library.tasks if cloned is None else 2 * library.tasks + cloned
        self.chosen = (np.arange(len(library)), np.flatnonzero(np.isin(library.tasks, own)))
        self.refresh_updates = library.data.refresh_updates
        self.stage: int | None = None
        self._check_share()

    def _check_share(self) -> None:
        """Refuses a share that may hold no episode of a task, or none whose actions are cloned."""
        share, own = self.library.data.device_episodes, self.chosen[1]
        needed = episodes_needed(self.kinds[own])
        if share is not None and share < min(needed, len(own)):
            cloned = "" if self.cloned is None else " and one whose actions are cloned"
            raise BadInput(
                f"data.device_episodes {share} of {len(own):,} episodes may hold none of a task; the behaviour needs "
                f"one of each{cloned}",
                f"set data.device_episodes: {needed}",
            )

    def _place(self, update: int) -> tuple[int, int]:
        """The stage of an update and its number in the stage."""
        is_later = update >= self.model_updates
        return int(is_later), update - self.model_updates * is_later

    def at(self, update: int) -> OfflineData:
        """What an update learns from."""
        stage, number = self._place(update)
        if stage != self.stage:
            device_episodes = self.library.data.device_episodes
            assert device_episodes is not None
            self.stage, self.ring = stage, EpisodeRing(self.library, self.chosen[stage], self.kinds, device_episodes)
        episodes, held = self.ring.after(number // self.refresh_updates)
        tasks, rows = self.library.tasks[held], self.library.rows[held]
        index = index_rows(rows, self.window)
        if stage == 0:  # the model learns from all tasks, and perhaps none of the cell's own is held
            return OfflineData(episodes, index, TaskWindows(index, index.until[:1] * 0, index.until[-1:]))
        cloned = self.cloned[held] if self.cloned is not None else None
        return OfflineData(episodes, index, *index_behavior(tasks, rows, (self.window, self.own), cloned))

    def until(self, update: int) -> int:
        """The first later update that learns from other episodes."""
        _, number = self._place(update)
        return update - number % self.refresh_updates + self.refresh_updates
