"""What the ledger knows of one cell, one attempt, one supervisor. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dreamproof.runs.layout import Cell
from dreamproof.runs.reader import EvalProof, TrainProof
from dreamproof.study.ledger.clock import NOT_KNOWN, Moment
from dreamproof.study.ledger.events import Work


@dataclass(slots=True)
class CellState:
    """What the ledger knows of one train cell."""

    cell: Cell
    proof: TrainProof | None = None
    running: str | None = None
    attempts: list[str] = field(default_factory=list)
    last_cause: str | None = None
    last_evidence: list[str] = field(default_factory=list)
    reached_agent_steps: int = 0
    kept_agent_steps: int = 0
    wall_seconds: float = 0.0
    """Wall seconds of its ended train attempts; a pack's are shared equally."""
    stopped: str | None = None
    stopped_cause: str | None = None
    deaths: dict[str, int] = field(default_factory=dict)
    """Deaths by cause since the cell was last opened."""
    fruitless: int = 0
    """Transient deaths in a row that left no newer checkpoint."""
    pack_limit: int | None = None
    micro_batches: int = 1
    memory_bytes: int | None = None
    """Host memory to ask a cluster for, if it was raised."""
    frozen: str | None = None
    source: str | None = None
    """Folder of a run made outside the study."""
    source_adapter: str | None = None
    outside: list[dict[str, Any]] = field(default_factory=list)
    """Every run of the cell that was made outside the study and is over, as its `imported` event holds it."""
    foreign: dict[str, Any] | None = None
    """The run of somebody else that works on the cell: evidence, process, start, output, liveness and its reason."""
    unproven: str | None = None
    quarantined: str | None = None
    """File and reason, while a file of the cell cannot be read."""
    eval_running: str | None = None
    eval_deaths: dict[str, int] = field(default_factory=dict)
    eval_fruitless: int = 0
    eval_stopped: str | None = None
    eval_last_cause: str | None = None
    stalls: dict[str, int] = field(default_factory=dict)
    """By work: attempts that were killed because they stalled; every one lengthens the limits of the next."""
    killed_for_silence: dict[str, str] = field(default_factory=dict)
    """By work: the attempt that was killed for silence last, until its successor shows whether that was right."""
    resolved_hash: str | None = None
    """Of the settings after defaults in its last training; None before they were recorded."""
    code_hash: str | None = None

    @property
    def aborted_seconds(self) -> float:
        """Time of runs made outside the study of which another one is used."""
        return sum(one.get("wall_seconds") or 0.0 for one in self.outside if one.get("aborted"))

    @property
    def reads_source(self) -> bool:
        """Whether its run folder is the one outside the study: proven there, or worked on by somebody else."""
        return self.source is not None and (self.proof is not None or self.foreign is not None)


@dataclass(slots=True)
class EvalState:
    """What the ledger knows of one eval cell."""

    cell: Cell
    condition: str
    proof: EvalProof | None = None
    attempts: list[str] = field(default_factory=list)
    unproven: str | None = None
    reported: str | None = None
    """The table or folder in which somebody else reports its result."""


@dataclass(slots=True)
class AttemptState:
    """One start of one process, and how it ended."""

    name: str
    work: Work
    cells: list[str]
    conditions: list[str]
    command: list[str]
    started: float
    from_agent_steps: dict[str, int]
    pack_cells: int = 1
    micro_batches: int = 1
    ended: float | None = None
    cause: str | None = None
    transient: bool = False
    evidence: list[str] = field(default_factory=list)
    wall_seconds: float | None = None
    reached_agent_steps: dict[str, int] = field(default_factory=dict)
    kept_agent_steps: dict[str, int] = field(default_factory=dict)
    exit: dict[str, Any] | None = None
    cell_causes: dict[str, str] = field(default_factory=dict)
    kept_wall_seconds: dict[str, float] = field(default_factory=dict)
    liveness: str | None = None
    liveness_reason: str | None = None
    stacks: str | None = None
    placed: float | None = None
    """When a scheduler gave it its place; None on this machine, or while it waits in a queue."""
    job: str | None = None
    nodes: str = ""
    queue_seconds: float = 0.0
    placement: dict[str, Any] = field(default_factory=dict)
    memory_trend: str | None = None
    cancelled_outside: bool = False
    killed_for: str | None = None
    """Which evidence had it killed: stopped, deadlock or silent."""
    began: Moment = NOT_KNOWN
    """`started` by all clocks."""
    placed_at: Moment | None = None
    """`placed` by all clocks."""
    ended_at: Moment | None = None
    resolved: dict[str, str] = field(default_factory=dict)
    code: str | None = None
    restarted: dict[str, int] = field(default_factory=dict)
    """By cell: where the trainer began again instead of continuing from its checkpoint."""
    slots: int = 1
    """Those of the supervisor that started it."""

    def first_agent_steps(self, cell: str) -> int:
        """The step at which the attempt began to train a cell."""
        return self.restarted.get(cell, self.from_agent_steps.get(cell, 0))

    @property
    def open(self) -> bool:
        """Whether no end is on record."""
        return self.ended is None

    def cause_for(self, cell: str) -> str:
        """How the attempt ended for one of its cells."""
        return self.cell_causes.get(cell, self.cause or "unknown")

    @property
    def gained(self) -> bool:
        """Whether a cell has a newer checkpoint than the attempt began with."""
        return any(kept > self.from_agent_steps.get(cell, 0) for cell, kept in self.kept_agent_steps.items())


NO_END = "no end on record"
"""The reason of a supervisor that was killed, or whose machine went away."""


@dataclass(slots=True)
class SupervisorSpan:
    """One supervisor from its start to its end, or to the last event before the next one started."""

    started: float
    identity: dict[str, Any]
    last_event: float
    ended: float | None = None
    reason: str | None = None
    began: Moment = NOT_KNOWN
    """`started` by all clocks, as `last_seen` is for `last_event` and `ended`."""
    last_seen: Moment = NOT_KNOWN
    slots: int = 1
    """Those of the study when it started: the places that the machine was rented for."""

    @property
    def boot(self) -> str:
        """The boot of the machine on which it ran."""
        return self.began.boot


@dataclass(frozen=True)
class ClockJump:
    """A mark of the ledger: the wall clock moved otherwise than time passed."""

    unix_seconds: float
    kind: str
    seconds: float
