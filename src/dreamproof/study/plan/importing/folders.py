"""Finds run folders by their names."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import Unreadable, list_folder
from dreamproof.base.safe_text import printable
from dreamproof.base.text import quoted
from dreamproof.runs.layout import RunFolder
from dreamproof.settings.study import Study
from dreamproof.study.adapters import guess_adapter
from dreamproof.study.adapters.checkpoints import find_checkpoints
from dreamproof.study.adapters.folders import entries, file_times
from dreamproof.study.plan.importing.found import Found, ImportResult
from dreamproof.study.plan.importing.names import find_cell, make_pattern

# ARM/seed_0, or DATE/TIME/ARM_0 as Hydra makes them.
MAX_LEVELS = 3
PART_OF_RUN = re.compile(r"checkpoints?|ckpts?|models?|weights|logs?|replay|eval_replay|evaluations|tb|wandb|videos?")


def find_in_folder(study: Study, source: Path, pattern: str | None, result: ImportResult) -> Iterator[Found]:
    """Run folders below a folder, or the folder itself, whose paths name a declared cell."""
    expression = make_pattern(study, pattern) if pattern is not None else None
    depth = pattern.count("/") + 1 if pattern is not None else MAX_LEVELS
    above = {} if _holds_logs(source) else {f"{source.parent.name}/{source.name}": source}
    ways = (_below(source, depth), {source.name: source}, _below(source, depth, source.name), above)
    fits = (named for named in ways if any(find_cell(study, name, expression) for name in named))
    for name, path in next(fits, ways[0]).items():
        cell = find_cell(study, name, expression)
        if cell is None:
            result.unmatched.append(printable(name))
        else:
            yield Found(cell, path, wall_seconds=folder_seconds(path))


def _below(folder: Path, depth: int, before: str = "") -> dict[str, Path]:
    """By path: folders that may be runs; one that holds nothing but folders is looked into."""
    found: dict[str, Path] = {}
    for entry in _listed(folder):
        path, name = Path(entry.path), f"{before}/{entry.name}" if before else entry.name
        if entry.name.startswith(".") or not os.path.isdir(path):
            continue
        inner = _below(path, depth - 1, name) if depth > 1 and _is_container(path) else {}
        found |= inner or {name: path}
    return found


def _holds_logs(folder: Path) -> bool:
    """Whether a folder is one of logs of several runs, whose own names count."""
    return sum(entry.name.endswith((".out", ".err", ".log")) for entry in entries(folder)) > 1


def _is_container(folder: Path) -> bool:
    held = entries(folder)
    names = [folder.name, *(entry.name for entry in held)]
    return (
        bool(held) and all(os.path.isdir(entry.path) for entry in held) and not any(map(PART_OF_RUN.fullmatch, names))
    )


def _listed(source: Path) -> list[os.DirEntry[str]]:
    found = list_folder(source)
    if isinstance(found, Unreadable):
        raise BadInput(f"{source}: {found.reason}", f"ls -ld {quoted(source)}")
    return found


def folder_seconds(root: Path) -> float | None:
    """Time between the oldest and the newest file of a run folder; None if copying left no time between them."""
    times = file_times(root)
    seconds = max(times) - min(times) if times else 0.0
    return round(seconds, 3) if seconds >= 1.0 else None


def runs_below(folder: Path) -> list[Path]:
    """Folders in a folder that are runs of their own: what an adapter reads and a checkpoint; at most two are named."""
    found: list[Path] = []
    for inner in _below(folder, MAX_LEVELS).values():
        if len(found) < 2 and guess_adapter(RunFolder(inner)).matches(RunFolder(inner)) and find_checkpoints(inner):
            found.append(inner)
    return found
