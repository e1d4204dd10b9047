"""Recorded episodes of several tasks, as a plain .npz or as a chunk (.pt) of TD-MPC2's (2024) multi-task sets.

obs (E, T, O), action (E, T, A), reward (E, T), task (E, T). Row 0 of an episode has no action and no reward (NaN);
row t + 1 holds those of the transition from observation t to t + 1. Optional further arrays are those of TaskInfo.
"""

import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import real_path, sync_folder
from dreamproof.base.text import quoted, repeated
from dreamproof.data.arrays import map_arrays, write_arrays
from dreamproof.data.members import refusal
from dreamproof.data.torch_file import mappings, read_torch_file
from dreamproof.settings.task_sets import ROWS, TASK_SETS

CHUNK_ENDINGS = (".pt", ".pth")
AXES = {"obs": 3, "action": 3, "reward": 2, "task": 2}
MIXED = "belong to more than one task"
NOT_FINITE = "hold values that are not finite outside of the first row"
UNKNOWN_TASK = "have a task number without a name"
LARGE_ACTION = "have actions beyond -1 to 1"


class TaskInfo(NamedTuple):
    """Names of the tasks in the order of their numbers, and their observation and action sizes."""

    names: tuple[str, ...]
    observation_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]


class EpisodeFile(NamedTuple):
    """The arrays of a file as they are: mapped, so that only what is looked at is read."""

    path: Path
    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    task: np.ndarray
    rows: np.ndarray
    terminated: np.ndarray
    task_info: TaskInfo | None

    def parts(self, limit_bytes: int) -> Iterator[slice]:
        """All episodes in consecutive parts of about so many bytes."""
        step = self.episodes_in(limit_bytes)
        for start in range(0, len(self.reward), step):
            yield slice(start, start + step)
            self.release()

    def episodes_in(self, limit_bytes: int) -> int:
        """How many episodes take about so many bytes; at least one."""
        numbers = self.observation.shape[2] + self.action.shape[2] + 2
        return max(1, limit_bytes // (4 * int(numbers * self.reward.shape[1])))

    def release(self) -> None:
        """Lets go of what was mapped so far; the system would keep it as this process's memory."""
        for array in (self.observation, self.action, self.reward, self.task):
            if isinstance(array, np.memmap):
                array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


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


def check_output(path: Path, endings: tuple[str, ...] = (".npz",)) -> None:
    """Refuses a path that cannot be written, before anything is recorded."""
    if path.suffix not in endings:
        raise BadInput(
            f"{path}: recorded episodes are written as {' or '.join(endings)}",
            f"--output {path.with_suffix(endings[0])}",
        )
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent}: there is no such folder", f"mkdir -p {quoted(path.parent)}")
    if path.is_dir():
        raise BadInput(f"{path}: is a folder", "give --output another name")
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"{path.parent}: is not writable", f"ls -ld {quoted(path.parent)}")


def check_new(path: Path) -> None:
    """Refuses to replace what was recorded before: cells may have learned from it."""
    if path.exists():
        raise BadInput(
            f"{path}: exists already, and cells may have learned from it",
            f"give --output another name, or remove it: rm {quoted(path)}",
        )


FORMS = {
    "observation": ("fiu", 3),
    "action": ("fiu", 3),
    "reward": ("fiu", 2),
    "task": ("iu", 1),
    "rows": ("iu", 1),
    "terminated": ("biu", 1),
}
"""Kinds of numbers (floats, integers, flags, as NumPy calls them) and axes of each array of a recording."""
SHAPES = {1: "(E,)", 2: "(E, T)", 3: "(E, T, …)"}


def checked(recording: Recording) -> Recording:
    """The recording with observations, actions and rewards as floats; other types, shapes or numbers are refused."""
    arrays = {name: np.asarray(getattr(recording, name)) for name in FORMS}
    shape = arrays["reward"].shape
    for name, (kinds, axes) in FORMS.items():
        array = arrays[name]
        if array.dtype.kind not in kinds:
            raise BadInput(f"{name} of a recording has values of the type {array.dtype}", "see docs/multitask.md")
        if array.ndim != axes or array.shape[:2] != shape[: min(axes, 2)]:
            raise BadInput(
                f"{name} of a recording has the shape {array.shape}, not {SHAPES[axes]}; reward (E, T) has {shape}",
                "see docs/multitask.md",
            )
        if axes > 1 and array.dtype.kind != "f":
            arrays[name] = array.astype(np.float32)
    if (arrays["task"] < 0).any() or not np.isin(arrays["terminated"], (0, 1)).all():
        raise BadInput("task of a recording is negative, or terminated is neither 0 nor 1", "see docs/multitask.md")
    arrays["terminated"] = arrays["terminated"].astype(bool)
    return Recording(**arrays, task_info=recording.task_info)


def filled_arrays(recording: Recording) -> dict[str, np.ndarray]:
    """The arrays of a file; padding of actions and rewards is NaN."""
    recording = checked(recording)
    inside = np.arange(recording.reward.shape[1])[None] < recording.rows[:, None]
    moved = inside.copy()
    moved[:, 0] = False
    return {
        "obs": recording.observation,
        "action": np.where(moved[..., None], recording.action, np.float32(np.nan)),
        "reward": np.where(moved, recording.reward, np.float32(np.nan)),
        "task": np.repeat(recording.task[:, None].astype(np.int32), inside.shape[1], axis=1),
        "rows": recording.rows.astype(np.int32),
        "terminated": recording.terminated,
    }


def write_recording(path: Path, recording: Recording) -> None:
    """Replaces a file of episodes atomically; what could not be read again is refused."""
    check_output(path)
    arrays = filled_arrays(recording)
    if recording.task_info is not None:
        arrays |= {name: np.asarray(value) for name, value in recording.task_info._asdict().items()}
    check_arrays(path, arrays)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_arrays(partial, arrays)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def open_episodes(path: Path) -> EpisodeFile:
    """A file of episodes; one with another layout is refused."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; list the files in it, each by its name", f"ls {quoted(path)}")
    if not path.is_file():
        raise BadInput(
            f"{path}: no such file of recorded episodes (relative to {Path.cwd()}); patterns are not expanded here",
            "list every file by its name; python -m dreamproof.record --help makes one",
        )
    arrays = _chunk(path) if path.suffix in CHUNK_ENDINGS else map_arrays(path)
    own = check_arrays(path, arrays)
    episodes, length = arrays["reward"].shape
    rows = arrays.get("rows", np.full(episodes, length, np.int32))
    terminated = arrays.get("terminated", np.zeros(episodes, bool))
    info = set_info(length) if path.suffix in CHUNK_ENDINGS else own
    observation, action, reward, task = (arrays[name] for name in AXES)
    return EpisodeFile(path, observation, action, reward, task, rows, terminated, info)


def _chunk(path: Path) -> dict[str, np.ndarray]:
    for found in mappings(read_torch_file(path)):
        arrays = {str(name): value for name, value in found.items() if isinstance(value, np.ndarray)}
        if arrays.keys() & AXES.keys():
            return arrays
    raise refusal(path, f"it holds none of the tensors {', '.join(AXES)}; a world model belongs under data.world_model")


def set_info(length: int) -> TaskInfo | None:
    """The tasks of the set to which a chunk belongs by the length of its episodes."""
    if length not in ROWS:
        return None
    tasks = TASK_SETS[ROWS[length]]
    return TaskInfo(*zip(*tasks, strict=True))


def read_part(file: EpisodeFile, part: slice | np.ndarray) -> tuple[Recording, Counter[str]]:
    """Some episodes with all padding set to 0, and how many of them have which fault."""
    values = (file.observation, file.action, file.reward)
    observation, action, reward = (np.array(value[part], np.float32) for value in values)
    task, rows = np.asarray(file.task[part]), np.asarray(file.rows[part])
    faults: Counter[str] = Counter({MIXED: int((task != task[:, :1]).any(1).sum())})
    number = task[:, 0].astype(np.int64)
    action[:, 0], reward[:, 0] = 0.0, 0.0
    outside = np.arange(reward.shape[1])[None] >= rows[:, None]
    for value in (observation, action, reward):
        value[outside] = 0.0
    if file.task_info is not None:
        known = (number >= 0) & (number < len(file.task_info.names))
        _clear_padding(observation, file.task_info.observation_sizes, np.where(known, number, 0))
        _clear_padding(action, file.task_info.action_sizes, np.where(known, number, 0))
    else:
        known = number >= 0
    faults[UNKNOWN_TASK] = int((~known).sum())
    finite = [np.isfinite(value).reshape(len(value), -1).all(1) for value in (observation, action, reward)]
    faults[NOT_FINITE] = int((~np.all(finite, axis=0)).sum())
    faults[LARGE_ACTION] = int((np.abs(action) > 1.0 + 1e-4).reshape(len(action), -1).any(1).sum())
    terminated = np.asarray(file.terminated[part])
    return Recording(observation, action, reward, number, rows, terminated, file.task_info), +faults


def _clear_padding(values: np.ndarray, sizes: tuple[int, ...], number: np.ndarray) -> None:
    """Sets the columns that a task does not have to 0: they may hold anything, and no model may learn from them."""
    outside = np.arange(values.shape[2])[None] >= np.asarray(sizes)[number][:, None]
    for episode in np.flatnonzero(outside.any(1)):
        values[episode][:, outside[episode]] = 0.0


def read_good_part(file: EpisodeFile, part: slice | np.ndarray = slice(None)) -> Recording:
    """Some episodes, by default all; faulty ones are refused."""
    recording, faults = read_part(file, part)
    if faults:
        count = len(recording.reward)
        found = "; ".join(f"{number:,} of {count:,} episodes {fault}" for fault, number in faults.items())
        raise BadInput(f"{file.path}: {found}", f"dreamproof data inspect {file.path}")
    return recording


def check_arrays(path: Path, arrays: dict[str, np.ndarray]) -> TaskInfo | None:
    """Refuses arrays that are no recorded episodes; returns what they say of their tasks."""
    for name, axes in AXES.items():
        if name not in arrays:
            present = ", ".join(arrays) or "nothing"
            raise BadInput(f"{path}: the array '{name}' is missing; it holds {present}", "see docs/multitask.md")
        if arrays[name].ndim != axes or arrays[name].shape[:2] != arrays["obs"].shape[:2]:
            raise BadInput(
                f"{path}: '{name}' has the shape {arrays[name].shape}, not (E, T, ...)", "see docs/multitask.md"
            )
        if arrays[name].dtype.kind not in ("iu" if name == "task" else "f"):
            raise BadInput(f"{path}: '{name}' holds numbers of the type {arrays[name].dtype}", "see docs/multitask.md")
    episodes, length = arrays["reward"].shape
    if episodes == 0 or length < 2:
        raise BadInput(f"{path}: holds no transition ({episodes} episodes of {length} rows)", "record more episodes")
    if not arrays["obs"].shape[2] or not arrays["action"].shape[2]:
        raise BadInput(f"{path}: its observations or actions have no columns", "check how it was made")
    rows = arrays.get("rows", np.full(episodes, length))
    if rows.dtype.kind not in "iu" or rows.shape != (episodes,) or rows.min() < 2 or rows.max() > length:
        raise BadInput(f"{path}: 'rows' is not one integer from 2 to {length} per episode", "check how it was made")
    ends = arrays.get("terminated", np.zeros(episodes, bool))
    if ends.dtype.kind not in "biuf" or ends.shape != (episodes,) or not np.isin(ends, (0, 1)).all():
        raise BadInput(f"{path}: 'terminated' is not one flag (0 or 1) per episode", "check how it was made")
    return _task_info(path, arrays)


def _task_info(path: Path, arrays: dict[str, np.ndarray]) -> TaskInfo | None:
    if "names" not in arrays:
        return None
    names, *sizes = (arrays.get(name) for name in TaskInfo._fields)
    assert names is not None
    if names.dtype.kind not in "US" or names.ndim != 1 or not len(names):
        raise BadInput(f"{path}: 'names' is no list of task names", "check how it was made")
    if any(part is None or part.dtype.kind not in "iu" or part.shape != names.shape for part in sizes):
        raise BadInput(f"{path}: its task names and sizes do not match its episodes", "check how it was made")
    seen, done = (tuple(int(size) for size in part) for part in sizes if part is not None)
    info = TaskInfo(tuple(map(str, names.astype(str))), seen, done)
    twice = repeated(info.names)
    if twice:
        raise BadInput(f"{path}: it names the task {', '.join(twice)} twice", "check how it was made")
    widths = (arrays["obs"].shape[2], arrays["action"].shape[2])
    for name, *own in zip(*info, strict=True):
        if not all(1 <= size <= width for size, width in zip(own, widths, strict=True)):
            raise BadInput(
                f"{path}: the sizes of '{name}' are {own[0]} and {own[1]}, its arrays obs and action have {widths[0]} "
                f"and {widths[1]} columns",
                "check how it was made",
            )
    return info


def conflicts(files: Sequence[EpisodeFile]) -> list[str]:
    """Why files do not belong together: one of them is given twice, or a task has other sizes in another file."""
    found: list[str] = []
    places: set[Path] = set()
    sizes: dict[str, tuple[str, Path]] = {}
    for file in files:
        place = real_path(file.path)
        if place in places:
            found.append(f"{file.path}: is given twice, so its episodes count twice")
        places.add(place)
        for name, observation, action in zip(*file.task_info, strict=True) if file.task_info is not None else ():
            own = f"{observation} and {action}"
            wanted, first = sizes.setdefault(name, (own, file.path))
            if own != wanted:
                found.append(f"{file.path}: '{name}' has the sizes {own}, and {wanted} in {first}")
    return found
