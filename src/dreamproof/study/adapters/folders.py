"""Files of a run folder by name, size and time. What cannot be read counts as not there."""

import os
from collections.abc import Iterator
from pathlib import Path

from dreamproof.base.files import Unreadable, list_folder, open_regular
from dreamproof.runs.layout import AttemptFolder

MAX_DEPTH = 4
MAX_FILES = 20_000
# Large folders whose files are neither logs nor weights.
LEFT_OUT = ("replay", "eval_replay", "episodes", "evaluations", "buffer", "videos", "__pycache__")
# File systems keep times no better than this.
CLOCK_SECONDS = 2.0


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder; empty if it cannot be read."""
    found = list_folder(folder)
    return [] if isinstance(found, Unreadable) else found


def files_below(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """Files of a folder and of the folders in it, without replay, recorded episodes and hidden folders."""
    for entry in entries(folder)[:MAX_FILES]:
        path = Path(entry.path)
        if os.path.isfile(path):
            yield path
        elif depth > 1 and os.path.isdir(path) and entry.name not in LEFT_OUT and entry.name[0] != ".":
            yield from files_below(path, depth - 1)


def head_of(path: Path, limit_bytes: int) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return b""
    with os.fdopen(opened, "rb") as file:
        try:
            return file.read(limit_bytes)
        except OSError:
            return b""


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def modified(path: Path) -> float | None:
    """When a file was last written, in Unix seconds; None if there is none."""
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return None


def newest(paths: list[Path]) -> Path | None:
    """The file that was written last."""
    return max(paths, key=lambda path: (modified(path) or 0.0, path), default=None)


def newest_file(root: Path, *endings: str) -> Path | None:
    """The file of a folder whose name ends so and that was written last."""
    return newest([path for path in files_below(root, 1) if path.name.endswith(endings)])


def file_times(folder: Path) -> list[float]:
    """When each of a folder's own files was last written."""
    return [time for path in files_below(folder, 1) if (time := modified(path)) is not None]


def change_times(folder: Path, depth: int = MAX_DEPTH) -> list[float]:
    """When the files of a folder and of the folders in it were written, replay and recorded episodes included."""
    times: list[float] = []
    for entry in entries(folder)[:MAX_FILES]:
        path = Path(entry.path)
        if os.path.isdir(path):
            times += change_times(path, depth - 1) if depth > 1 else []
        elif os.path.isfile(path) and (time := modified(path)) is not None:
            times.append(time)
    return times


def oldest_time(folder: Path) -> float | None:
    """The oldest time among a folder's own files: what was written once, when the run began."""
    return min(file_times(folder), default=None)


def attempt_began(output: Path | None) -> float | None:
    """When the attempt that prints to `output` was ordered, by the clock that dates files; None if there is none."""
    return modified(AttemptFolder(output.parent).order) if output is not None else None
