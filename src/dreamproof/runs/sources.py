"""What cells started with, recorded episodes and world models, compared between the cells of a study."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dreamproof.base.files import Unreadable, list_folder
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.reader import read_checkpoint, read_settings

Sources = Mapping[str, str]
"""Hashes of files and world models by the names under which the settings have them."""


class OtherSource(NamedTuple):
    """Two cells that had to start with the same source and did not; `name` is that of the second cell."""

    name: str
    first: Cell
    second: Cell

    def __str__(self) -> str:
        return f"{self.name} was not the same when {self.first} and {self.second} started with it (its hash differs)"


def read_sources(run: RunFolder) -> Sources:
    """What a run started with, by its newest readable checkpoint; nothing if it has none."""
    records = (read_checkpoint(folder) for folder in reversed(run.checkpoint_folders()))
    return next((record.sources for record in records if record is not None), {})


def sources_beside(run: RunFolder) -> dict[Cell, Sources]:
    """What the cells of the same study started with whose run folders lie beside this one."""
    entries, own = list_folder(run.root.parent), read_settings(run)
    if isinstance(entries, Unreadable) or own is None:
        return {}
    found: dict[Cell, Sources] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        other = RunFolder(Path(entry.path))
        settings = read_settings(other)
        if settings is not None and settings.study == own.study and entry.name != run.root.name:
            found[Cell(settings.arm, settings.seed)] = read_sources(other)
    return found


def different_sources(started: Mapping[Cell, Sources]) -> list[OtherSource]:
    """Each cell whose sources are not those of the first cell that has the same name for them, or is of its arm."""
    first: dict[str, Cell] = {}
    found: list[OtherSource] = []
    for cell, sources in started.items():
        before = dict.fromkeys(first.setdefault(key, cell) for key in (*sources, f"arm {cell.arm}") if sources)
        changes = ((other, _changed(other, started[other], cell, sources)) for other in before)
        found += [OtherSource(name, other, cell) for other, name in changes if name is not None][:1]
    return found


def _changed(other: Cell, theirs: Sources, cell: Cell, own: Sources) -> str | None:
    """The first source of a cell that another cell had otherwise; None if there is none."""
    same_name = (name for name, value in own.items() if theirs.get(name, value) != value)
    unknown = (name for name, value in own.items() if value not in theirs.values())
    return next(same_name, None) or (next(unknown, None) if cell.arm == other.arm else None)
