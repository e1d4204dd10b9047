"""Finds run folders by their names."""

import os
from collections.abc import Iterator
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import Unreadable, list_folder
from dreamproof.base.safe_text import printable
from dreamproof.settings.study import Study
from dreamproof.study.adapters.folders import file_times
from dreamproof.study.plan.importing.found import Found, ImportResult, make_pattern, matched_cell


def find_in_folder(study: Study, source: Path, pattern: str | None, result: ImportResult) -> Iterator[Found]:
    """Run folders in a folder, or the folder itself, whose names name a declared cell."""
    expression = make_pattern(study, pattern)
    listed = [Path(entry.path) for entry in _listed(source) if os.path.isdir(entry.path)]
    folders = [path for path in listed if not path.name.startswith(".")]
    if not any(expression.match(path.name) for path in folders) and expression.match(source.name):
        folders = [source]
    for path in folders:
        cell = matched_cell(study, expression.match(path.name))
        if cell is None:
            result.unmatched.append(printable(path.name))
        else:
            yield Found(cell, path, wall_seconds=folder_seconds(path))


def _listed(source: Path) -> list[os.DirEntry[str]]:
    found = list_folder(source)
    if isinstance(found, Unreadable):
        raise BadInput(f"{source}: {found.reason}", f"ls -ld {source}")
    return found


def folder_seconds(root: Path) -> float | None:
    """Time between the oldest and the newest file of a run folder; None if copying left no time between them."""
    times = file_times(root)
    seconds = max(times) - min(times) if times else 0.0
    return round(seconds, 3) if seconds >= 1.0 else None
