"""What an import finds: runs made outside a study, and what is recorded about them."""

from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.runs.imported import ImportedValue
from dreamproof.runs.layout import Cell
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
