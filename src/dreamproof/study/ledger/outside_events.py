"""Events of runs that were made outside the study, and of values that others report."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dreamproof.study.ledger.events import Event


@dataclass(frozen=True)
class Imported(Event):
    """A run made outside the study that is over; `source` is its folder or log, nothing was copied."""

    name: ClassVar[str] = "imported"
    cell: str
    source: str
    adapter: str | None = None
    agent_steps: int | None = None
    wall_seconds: float | None = None
    of_agent_steps: int | None = None
    """The length that the run itself names."""
    job: str | None = None
    """The job of a scheduler that ran it."""
    final: dict[str, float] | None = None
    """By name: the last value that its log holds."""
    peak: dict[str, float] | None = None
    """By name: the highest value that its log holds."""
    cause: str | None = None
    """How it ended, where its log or its error file shows it."""
    evidence: list[str] | None = None
    aborted: bool | None = None
    """Whether another run of the same cell is used instead, so that its time is wasted."""


@dataclass(frozen=True)
class Unproven(Event):
    """A run made outside the study that does not prove its cell."""

    name: ClassVar[str] = "unproven"
    cell: str
    source: str
    reason: str
    condition: str | None = None


@dataclass(frozen=True)
class ForeignRunFound(Event):
    """A run that this study did not start works on one of its cells; nothing is started on the cell while it lives."""

    name: ClassVar[str] = "foreign_run_found"
    cell: str
    source: str
    evidence: str
    adapter: str | None = None
    agent_steps: int | None = None
    process: dict[str, Any] | None = None
    """Identity of its process; None if none can be seen from here."""
    started: float | None = None
    """Unix seconds at which that process started."""
    output: str | None = None
    """The file that it prints to, if there is one."""


@dataclass(frozen=True)
class ForeignRunChanged(Event):
    """A foreign run makes progress again, or none."""

    name: ClassVar[str] = "foreign_run_changed"
    cell: str
    state: str
    reason: str


@dataclass(frozen=True)
class ForeignRunEnded(Event):
    """A foreign run is over; what it left follows as `imported`, `train_proven` or `unproven`."""

    name: ClassVar[str] = "foreign_run_ended"
    cell: str
    reason: str


@dataclass(frozen=True)
class ValuesImported(Event):
    """Results of a table that somebody else made were written to `imported/`; reported, not proven."""

    name: ClassVar[str] = "values_imported"
    source: str
    file: str
    values: int
    eval_cells: list[str]
    """Written arm/seed condition."""
