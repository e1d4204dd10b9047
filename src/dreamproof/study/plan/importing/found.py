"""What an import finds: runs made outside a study, and what is recorded about them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.runs.imported import ImportedValue
from dreamproof.runs.layout import Cell
from dreamproof.settings.study import Study
from dreamproof.study.ledger.events import Event


@dataclass(frozen=True)
class Found:
    """One run made outside the study: its folder, and what a table reports about it."""

    cell: Cell
    root: Path | None
    status: str = ""
    condition: str | None = None
    wall_seconds: float | None = None
    output: Path | None = None
    """The file that it printed to, if that is known."""
    errors: Path | None = None
    """The file of its error output, if that is another one."""
    job: str | None = None


@dataclass
class ImportResult:
    """Events for the ledger, and the same as text."""

    events: list[Event] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    unproven: dict[str, str] = field(default_factory=dict)
    not_saved: dict[str, float] = field(default_factory=dict)
    """Those of the unproven that were trained to their end and not saved: their seconds."""
    living: dict[str, str] = field(default_factory=dict)
    """Runs that others started and that still live, with the evidence."""
    aborted: dict[str, list[str]] = field(default_factory=dict)
    """By cell: runs of which another one is used."""
    reported: list[ImportedValue] = field(default_factory=list)
    """Values for `imported/results.csv`."""
    causes: list[str] = field(default_factory=list)
    """How runs ended whose logs show it."""
    missing: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    """What was found and belongs to no declared cell."""
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ImportOptions:
    """How runs are recognised: by which names, and read by which adapter."""

    pattern: str | None = None
    adapter: str | None = None
    jobs: Path | None = None
    """A table that gives the cells of a scheduler's jobs."""
    seeds: tuple[int, ...] = ()
    """The seeds over which a table without a column for them gives means."""


ARM_AND_SEED = "--pattern '*_{arm}_*_{seed}'"


def arm_expression(study: Study) -> str:
    """A group of a regular expression that finds a declared arm; longer names first."""
    return rf"(?P<arm>{'|'.join(re.escape(arm) for arm in sorted(study.arms, key=len, reverse=True))})"


def condition_expression(study: Study) -> str:
    """The same for a declared condition."""
    names = sorted((one.name for one in study.conditions), key=len, reverse=True)
    return rf"(?P<condition>{'|'.join(map(re.escape, names))})"


def make_pattern(study: Study, pattern: str | None) -> re.Pattern[str]:
    """A regular expression over names.

    `{arm}` is a declared arm, `{condition}` a declared condition, `{seed}` and `{job}` are numbers, `*` anything.
    """
    if pattern is None:
        return re.compile(
            rf"^(?:.*[^A-Za-z0-9])?{arm_expression(study)}(?:[^A-Za-z0-9].*)?[-_.](?:seed[-_=]?)?(?P<seed>[0-9]{{1,18}})$"
        )
    needed = ["{arm}"] if len(study.seeds) == 1 or "{job}" in pattern else ["{arm}", "{seed}"]
    missing = [name for name in needed if pattern.count(name) != 1]
    if missing:
        raise BadInput(f"--pattern '{pattern}': {missing[0]} must occur exactly once", ARM_AND_SEED)
    parts = re.split(r"(\{arm\}|\{seed\}|\{job\}|\{condition\}|\*)", pattern)
    groups = {name: f"(?P<{name[1:-1]}>[0-9]{{1,18}})" for name in ("{seed}", "{job}")}
    groups |= {"{arm}": arm_expression(study), "{condition}": condition_expression(study), "*": ".*"}
    return re.compile("^" + "".join(groups.get(part, re.escape(part)) for part in parts) + "$")


def matched_cell(study: Study, match: re.Match[str] | None) -> Cell | None:
    """The declared cell that a name names; without a seed in it, that of the study's only seed."""
    if match is None:
        return None
    seed = match.groupdict().get("seed")
    if seed is None and len(study.seeds) > 1:
        return None
    cell = Cell(match["arm"], int(seed) if seed is not None else study.seeds[0])
    return cell if cell.seed in study.seeds else None
