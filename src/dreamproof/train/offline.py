"""Data of an offline cell: recorded episodes on the device, windows sampled from them, a pretrained world model."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Windows
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import file_hash
from dreamproof.data.arrays import read_arrays
from dreamproof.data.recordings import Recording, read_recording
from dreamproof.jaxcore.checkpoints import AGENT_FILE, fill
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import checkpoint_fault, newest_good_checkpoint, read_checkpoint, read_settings
from dreamproof.settings.recorded import RecordedData

MAX_WINDOWS = np.iinfo(np.int32).max


class RecordedEpisodes(NamedTuple):
    """Recorded episodes on the device: (E, T, ...), and (E,) the task, number of rows and termination of each."""

    observation: Array
    action: Array
    reward: Array
    task: Array
    rows: Array
    terminated: Array


class WindowIndex(NamedTuple):
    """Episodes to sample from (S,), the number of windows in each, and the cumulative number of windows."""

    episode: Array
    windows: Array
    until: Array


def read_episodes(data: RecordedData) -> tuple[RecordedEpisodes, dict[str, str]]:
    """All episodes of the files, padded to the widest task and the longest episode, and the hashes of the files."""
    parts = [_renumbered(Path(name), read_recording(Path(name)), data) for name in data.files]
    length = max(part.reward.shape[1] for part in parts)
    whole = [_padded(part, length, data) for part in parts]
    joined = [np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in zip(*whole, strict=True)]
    return RecordedEpisodes(*(jnp.asarray(part) for part in joined)), {
        name: file_hash(Path(name)) for name in data.files
    }


def _renumbered(path: Path, recording: Recording, data: RecordedData) -> Recording:
    """A recording with the task numbers of the settings; one that does not match them is refused."""
    observed, taken = recording.observation.shape[2], recording.action.shape[2]
    if observed > data.observation_size or taken > data.action_size:
        raise BadInput(
            f"{path}: observation size {observed} and action size {taken} exceed data.observation_size "
            f"{data.observation_size} or data.action_size {data.action_size}",
            "set them to those of the widest task in the study file",
        )
    if recording.task_info is None:
        unknown = [str(task) for task in np.unique(recording.task) if not 0 <= task < len(data.tasks)]
        numbers = np.arange(len(data.tasks))
    else:
        names = recording.task_info.names
        unknown = [names[task] for task in np.unique(recording.task) if names[task] not in data.tasks]
        numbers = np.array([data.tasks.index(name) if name in data.tasks else -1 for name in names])
    if unknown:
        raise BadInput(
            f"{path}: holds episodes of the task {', '.join(unknown)}, which data.tasks does not name "
            f"({', '.join(data.tasks)})",
            "list all its tasks in data.tasks in the study file",
        )
    return recording._replace(task=numbers[recording.task])


def _padded(part: Recording, length: int, data: RecordedData) -> list[np.ndarray]:
    short = length - part.reward.shape[1]

    def wide(values: np.ndarray, size: int) -> np.ndarray:
        missing = size - values.shape[2]
        return np.pad(values, ((0, 0), (0, short), (0, missing))) if short or missing else values

    return [
        wide(part.observation, data.observation_size),
        wide(part.action, data.action_size),
        np.pad(part.reward, ((0, 0), (0, short))),
        part.task.astype(np.int32),
        part.rows.astype(np.int32),
        part.terminated.astype(np.float32),
    ]


def index_windows(episodes: RecordedEpisodes, window: int, task: int | None = None) -> WindowIndex:
    """The index of all windows of `window` rows, of all episodes or of one task."""
    tasks, rows = np.asarray(episodes.task), np.asarray(episodes.rows)
    chosen = np.arange(len(tasks)) if task is None else np.flatnonzero(tasks == task)
    if not len(chosen):
        found = ", ".join(map(str, np.unique(tasks)))
        raise BadInput(f"no recorded episode of task {task}; recorded tasks: {found}", "record episodes of it")
    windows = np.maximum(1, rows[chosen] - window + 1)
    until = np.cumsum(windows, dtype=np.int64)
    if until[-1] > MAX_WINDOWS:
        raise BadInput(f"{until[-1]:,} windows exceed the range of int32", "list fewer files in data.files")
    return WindowIndex(*(jnp.asarray(part, jnp.int32) for part in (chosen, windows, until)))


def draw(index: WindowIndex, key: Array, count: int) -> tuple[Array, Array]:
    """Episodes and first rows (count,) of windows, uniform over all complete windows of the index.

    An episode shorter than a window counts as one window. The time grows with the logarithm of the number of episodes.
    """
    number = jax.random.randint(key, (count,), 0, index.until[-1])
    place = jnp.searchsorted(index.until, number, side="right")
    return index.episode[place], number - (index.until[place] - index.windows[place])


def sample_windows(episodes: RecordedEpisodes, index: WindowIndex, key: Array, shape: tuple[int, int]) -> Windows:
    """Windows (T+1, B, ...) with unscaled rewards; rows after the end of an episode are masked."""
    rows, batch = shape
    episode, start = draw(index, key, batch)
    rows_at = start[None] + jnp.arange(rows)[:, None]
    is_padding = rows_at >= episodes.rows[episode]
    at = (episode[None], jnp.minimum(rows_at, episodes.reward.shape[1] - 1))
    observation, action, reward = (part[at] for part in episodes[:3])
    ends = (rows_at == episodes.rows[episode] - 1) * episodes.terminated[episode]
    first = is_padding.astype(jnp.float32)
    return Windows(observation, action, reward, first, ends, jnp.ones(()), episodes.task[episode])


def sample_starts(episodes: RecordedEpisodes, index: WindowIndex, key: Array, count: int) -> Array:
    """First observations (count, O) of sampled windows."""
    return episodes.observation[draw(index, key, count)]


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
