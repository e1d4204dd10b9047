"""Episodes of several files under one numbering; any of them are loaded by their numbers."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import file_hash
from dreamproof.base.text import quoted
from dreamproof.data.members import wrong_checksums
from dreamproof.data.recordings import CHUNK_ENDINGS, EpisodeFile, Recording, conflicts, open_episodes, read_good_part
from dreamproof.settings.recorded import RecordedData
from dreamproof.settings.task_sets import ROWS

PIECE_BYTES = 64 << 20
FLOAT16_MAX = 65_504


class RecordedEpisodes(NamedTuple):
    """Episodes (E, T, ...), and (E,) the task, number of rows and termination of each; NumPy or on a device."""

    observation: Any
    action: Any
    reward: Any
    task: Any
    rows: Any
    terminated: Any


class EpisodeLibrary:
    """The chosen episodes of all files, padded to the widest task and the longest episode, none of them in memory."""

    def __init__(self, data: RecordedData) -> None:
        self.data = data
        self.files = [open_episodes(Path(name)) for name in data.files]
        wrong = conflicts(self.files)
        if wrong:
            raise BadInput("; ".join(wrong), "change data.files in the study file")
        self.first = np.cumsum([0, *(len(file.reward) for file in self.files)])
        tasks = np.concatenate([_numbers(file, data) for file in self.files])
        self.kept = _kept(tasks, data)
        self.tasks = tasks[self.kept]
        self.rows = np.concatenate([np.asarray(file.rows, np.int32) for file in self.files])[self.kept]
        self.length = max(file.reward.shape[1] for file in self.files)

    def __len__(self) -> int:
        return len(self.tasks)

    def hashes(self) -> dict[str, str]:
        """The hash of every file; one whose bytes changed after it was saved is refused."""
        for file in self.files:
            wrong = wrong_checksums(file.path)
            if wrong:
                raise BadInput(wrong[0], f"dreamproof data inspect {quoted(file.path)}; then restore or save it again")
        return {name: file_hash(Path(name)) for name in self.data.files}

    def returns(self) -> dict[str, tuple[float, float]]:
        """Mean and best return of every recorded task."""
        sums = self.episode_returns
        numbers = (number for number in range(len(self.data.tasks)) if (self.tasks == number).any())
        found = {self.data.tasks[number]: sums[self.tasks == number] for number in numbers}
        return {task: (float(values.mean()), float(values.max())) for task, values in found.items()}

    @cached_property
    def episode_returns(self) -> np.ndarray:
        """The return of every episode (E,)."""
        found: np.ndarray = np.concatenate([_returns(file) for file in self.files])[self.kept]
        return found

    def best(self, share: float) -> np.ndarray:
        """Whether each episode (E,) is in this share of its task's episodes with the highest returns, at least one."""
        found = np.zeros(len(self), bool)
        for number in np.unique(self.tasks):
            episodes = np.flatnonzero(self.tasks == number)
            order = np.argsort(-self.episode_returns[episodes], kind="stable")
            found[episodes[order[: max(1, round(share * len(episodes)))]]] = True
        return found

    def require(self, tasks: Sequence[int], window: int) -> None:
        """Refuses data without an episode of one of these tasks, or without one that is as long as a window."""
        for task in tasks:
            if not (self.tasks == task).any():
                recorded = ", ".join(self.data.tasks[number] for number in np.unique(self.tasks))
                raise BadInput(
                    f"no recorded episode of the task '{self.data.tasks[task]}' is used; recorded: {recorded}",
                    "list files with episodes of it, or raise data.max_episodes",
                )
            rows = int(self.rows[self.tasks == task].max())
            if rows < window:
                raise BadInput(
                    f"train.window {window}: the longest recorded episode of '{self.data.tasks[task]}' has {rows} rows",
                    f"set train.window to at most {rows}",
                )

    def check(self) -> None:
        """Reads all episodes; the first faulty ones are refused."""
        step = min(file.episodes_in(PIECE_BYTES) for file in self.files)
        for start in range(0, len(self), step):
            self.load(np.arange(start, min(start + step, len(self))))

    def load(self, chosen: np.ndarray, kind: Any = np.float32) -> RecordedEpisodes:
        """Some episodes by their numbers, with values of this type; one that is faulty is refused."""
        shape = (len(chosen), self.length)
        loaded = RecordedEpisodes(
            np.zeros((*shape, self.data.observation_size), kind),
            np.zeros((*shape, self.data.action_size), kind),
            np.zeros(shape, kind),
            self.tasks[chosen].astype(np.int32),
            self.rows[chosen],
            np.zeros(len(chosen), np.float32),
        )
        numbers = self.kept[chosen]
        for file, first in zip(self.files, self.first, strict=False):
            places = np.flatnonzero((numbers >= first) & (numbers < first + len(file.reward)))
            for piece in _pieces(file, places):
                episodes = read_good_part(file, numbers[piece] - first)
                self._check_range(episodes)
                _copy(episodes, piece, loaded)
                file.release()
        return loaded

    def _check_range(self, episodes: Recording) -> None:
        """Refuses values that become infinite on the device."""
        if self.data.storage != "float16":
            return
        values = (episodes.observation, episodes.action, episodes.reward)
        largest = max(float(np.abs(part).max(initial=0.0)) for part in values)
        if largest > FLOAT16_MAX:
            raise BadInput(
                f"data.storage float16: a recorded value of {largest:g} is above its largest, {FLOAT16_MAX:,}",
                "set data.storage: bfloat16, or float32",
            )


def _kept(tasks: np.ndarray, data: RecordedData) -> np.ndarray:
    """The numbers of the episodes to learn from, in their order; `tasks` (E,) are those of all episodes."""
    chosen = []
    for number in np.unique(tasks):
        episodes, limit = np.flatnonzero(tasks == number), data.limit_of(int(number))
        drawn = np.random.default_rng(int(number)).permutation(episodes)
        chosen.append(episodes if limit is None else drawn[:limit])
    kept = np.sort(np.concatenate(chosen))
    if not len(kept):
        raise BadInput("data.max_episodes leaves no recorded episode to learn from", "raise it for one of the tasks")
    return kept


def _pieces(file: EpisodeFile, places: np.ndarray) -> list[np.ndarray]:
    step = file.episodes_in(PIECE_BYTES)
    return [places[start : start + step] for start in range(0, len(places), step)]


def _returns(file: EpisodeFile) -> np.ndarray:
    """The return of every episode; row 0 holds no reward."""
    sums = []
    for piece in _pieces(file, np.arange(len(file.reward))):
        reward = np.asarray(file.reward[piece[0] : piece[-1] + 1], np.float64)
        inside = np.arange(reward.shape[1]) < np.asarray(file.rows[piece[0] : piece[-1] + 1])[:, None]
        sums.append(np.where(inside, reward, 0.0)[:, 1:].sum(1))
        file.release()
    return np.concatenate(sums)


def _copy(episodes: Recording, places: np.ndarray, loaded: RecordedEpisodes) -> None:
    _, length, observed = episodes.observation.shape
    loaded.observation[places, :length, :observed] = episodes.observation
    loaded.action[places, :length, : episodes.action.shape[2]] = episodes.action
    loaded.reward[places, :length] = episodes.reward
    loaded.terminated[places] = episodes.terminated


def _numbers(file: EpisodeFile, data: RecordedData) -> np.ndarray:
    """The task of every episode, numbered as in the settings; a file that does not match them is refused."""
    observed, taken = file.observation.shape[2], file.action.shape[2]
    if observed > data.observation_size or taken > data.action_size:
        known = ROWS.get(file.reward.shape[1]) if file.path.suffix in CHUNK_ENDINGS else None
        raise BadInput(
            f"{file.path}: observation size {observed} and action size {taken} exceed data.observation_size "
            f"{data.observation_size} or data.action_size {data.action_size}",
            f"this is a chunk of {known}: set data.tasks: {known}, which names all its tasks and sizes"
            if known is not None
            else "set them to those of the widest task in the study file",
        )
    own = np.asarray(file.task[:, 0], np.int64)
    names = dict(enumerate(data.tasks if file.task_info is None else file.task_info.names))
    numbers = {number: data.tasks.index(name) for number, name in names.items() if name in data.tasks}
    unknown = [names.get(int(number), str(number)) for number in np.unique(own) if int(number) not in numbers]
    if unknown:
        raise BadInput(
            f"{file.path}: holds episodes of the task {', '.join(unknown)}, which data.tasks does not name "
            f"({', '.join(data.tasks)})",
            "list all its tasks in data.tasks in the study file",
        )
    return np.array([numbers[int(number)] for number in own], np.int32)
