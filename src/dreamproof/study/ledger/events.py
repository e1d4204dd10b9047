"""What may stand in a ledger: one small typed class per event; `outside_events` has those of runs made outside.

`study/ledger/state.py` replays them.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from dreamproof.runs.reader import EvalProof, TrainProof

Row = dict[str, Any]
Work = Literal["train", "evaluate"]


@dataclass(frozen=True)
class Event:
    """Something that happened; fields that are None are left out of the row."""

    name: ClassVar[str] = ""

    def row(self) -> Row:
        """The event as the ledger writes it, without number, time and hashes."""
        row: Row = {"event": self.name}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                row[field.name] = value
        return row


@dataclass(frozen=True)
class StudyDeclared(Event):
    """The first event: what was declared, before anything is spent."""

    name: ClassVar[str] = "study_declared"
    declaration_hash: str
    declaration: dict[str, Any]
    beside: str | None = None
    """Folder of the study file, seen from the study folder; commands run there."""


@dataclass(frozen=True)
class DeclarationChanged(Event):
    """The study file means something else than before."""

    name: ClassVar[str] = "declaration_changed"
    old_hash: str
    new_hash: str
    changes: list[str]
    declaration: dict[str, Any]
    beside: str | None = None


@dataclass(frozen=True)
class SupervisorStarted(Event):
    name: ClassVar[str] = "supervisor_started"
    boot_id: str
    process_id: int
    start_ticks: int
    host: str
    version: str
    commit: str | None = None
    dirty: bool | None = None


@dataclass(frozen=True)
class SupervisorEnded(Event):
    name: ClassVar[str] = "supervisor_ended"
    reason: str


@dataclass(frozen=True)
class SupervisorLost(Event):
    """The newest supervisor left no end on record, and its lease was free; its time ends with its own last event."""

    name: ClassVar[str] = "supervisor_lost"


@dataclass(frozen=True)
class ClockJumped(Event):
    """The wall clock moved otherwise than time passed: `suspended`, or `clock_set` (negative: set back). Not billed."""

    name: ClassVar[str] = "clock_jumped"
    kind: str
    seconds: float
    reason: str | None = None


@dataclass(frozen=True)
class PreflightPassed(Event):
    name: ClassVar[str] = "preflight_passed"
    fingerprint: str


@dataclass(frozen=True)
class PreflightFailed(Event):
    name: ClassVar[str] = "preflight_failed"
    fingerprint: str
    reason: str


@dataclass(frozen=True)
class AttemptStarted(Event):
    """One start of one process; cells are written arm/seed."""

    name: ClassVar[str] = "attempt_started"
    attempt: str
    work: Work
    cells: list[str]
    conditions: list[str]
    command: list[str]
    from_agent_steps: dict[str, int]
    pack_cells: int = 1
    micro_batches: int = 1
    resolved: dict[str, str] | None = None
    """By arm: hash of every setting after defaults."""
    code: str | None = None
    """Hash of the code that the attempt starts."""


@dataclass(frozen=True)
class SettingsResolved(Event):
    """Every setting of an arm after defaults, if they are first seen or other than before."""

    name: ClassVar[str] = "settings_resolved"
    arm: str
    resolved_hash: str
    resolved: dict[str, Any]


@dataclass(frozen=True)
class CodeRecorded(Event):
    """The trainer's code, if it is first seen or other than before; its files are listed in a manifest."""

    name: ClassVar[str] = "code_recorded"
    code_hash: str
    facts: dict[str, Any]
    """Kind, folder, number of files, commit, hash of the edits since, hash of untracked files."""
    same_as: str | None = None
    """The code before it, where only comments or layout changed."""


@dataclass(frozen=True)
class ChangesAccepted(Event):
    """A user accepted other settings or other code."""

    name: ClassVar[str] = "changes_accepted"
    what: Literal["settings", "code"]
    changes: list[str]
    flag: str


@dataclass(frozen=True)
class AttemptPlaced(Event):
    """A scheduler gave an attempt its place; from here on it is paid for."""

    name: ClassVar[str] = "attempt_placed"
    attempt: str
    job: str
    nodes: str
    queue_seconds: float | None = None
    restarts: int | None = None


@dataclass(frozen=True)
class AttemptEnded(Event):
    """How an attempt ended; `kept_agent_steps` is each cell's last good checkpoint."""

    name: ClassVar[str] = "attempt_ended"
    attempt: str
    cause: str
    evidence: list[str]
    wall_seconds: float
    reached_agent_steps: dict[str, int]
    kept_agent_steps: dict[str, int]
    transient: bool = False
    exit: dict[str, Any] | None = None
    cell_causes: dict[str, str] | None = None
    """Cells of a pack that ended otherwise than the attempt, e.g. one that stopped being finite."""
    kept_wall_seconds: dict[str, float] | None = None
    """Seconds of the attempt after which each cell's last good checkpoint was written."""
    placement: dict[str, Any] | None = None
    """From the scheduler: job, nodes, state, reason, queue and allocated seconds, restarts."""
    memory_trend: str | None = None
    """`grows` or `level`, if memory was the cause and the trace shows it."""
    cancelled_outside: bool | None = None
    """Whether the job was cancelled with the scheduler's own command."""


@dataclass(frozen=True)
class LivenessChanged(Event):
    name: ClassVar[str] = "liveness_changed"
    attempt: str
    state: str
    reason: str
    stacks: str | None = None


@dataclass(frozen=True)
class FalseAlarm(Event):
    """An attempt was killed for silence, and its successor progressed past that point."""

    name: ClassVar[str] = "false_alarm"
    attempt: str
    successor: str
    reason: str


@dataclass(frozen=True)
class CellRestarted(Event):
    """A trainer began again at `agent_steps` although a checkpoint of `kept_agent_steps` was there."""

    name: ClassVar[str] = "cell_restarted"
    cell: str
    attempt: str
    agent_steps: int
    kept_agent_steps: int


@dataclass(frozen=True)
class TrainProven(Event):
    name: ClassVar[str] = "train_proven"
    cell: str
    agent_steps: int
    gradient_steps: int
    parameter_hash: str
    checkpoint: str
    attempt: str | None = None
    gradient_steps_at_least: bool | None = None
    """Whether the log shows that updates were made and not how many."""
    proof_bytes: int | None = None

    @classmethod
    def of(cls, cell: str, proof: TrainProof, attempt: str | None = None) -> "TrainProven":
        """The event of a proof."""
        found = (proof.agent_steps, proof.gradient_steps, proof.parameter_hash, proof.checkpoint)
        return cls(cell, *found, attempt, proof.gradient_steps_at_least or None, proof.proof_bytes)


@dataclass(frozen=True)
class EvalProven(Event):
    name: ClassVar[str] = "eval_proven"
    cell: str
    condition: str
    episodes: int
    parameter_hash: str
    attempt: str | None = None
    file_bytes: int | None = None
    file_hash: str | None = None

    @classmethod
    def of(cls, cell: str, condition: str, proof: EvalProof, attempt: str | None = None) -> "EvalProven":
        """The event of a proof."""
        return cls(cell, condition, proof.episodes, proof.parameter_hash, attempt, proof.file_bytes, proof.file_hash)


@dataclass(frozen=True)
class ProofLost(Event):
    """What was proven is no longer on disk; without a condition it is the training's proof."""

    name: ClassVar[str] = "proof_lost"
    cell: str
    reason: str
    condition: str | None = None


@dataclass(frozen=True)
class Remedy(Event):
    """What is done about a death, and why."""

    name: ClassVar[str] = "remedy"
    cells: list[str]
    action: str
    reason: str
    attempt: str | None = None
    wait_seconds: float | None = None
    pack_cells: int | None = None
    micro_batches: int | None = None
    moved: str | None = None
    memory_bytes: int | None = None
    evidence: str | None = None
    """Why a stalled attempt is killed: stopped, deadlock or silent."""


@dataclass(frozen=True)
class CellStopped(Event):
    """This cell is not tried again until it is reopened."""

    name: ClassVar[str] = "cell_stopped"
    cell: str
    reason: str
    cause: str
    work: Work = "train"


@dataclass(frozen=True)
class CellReopened(Event):
    name: ClassVar[str] = "cell_reopened"
    cell: str
    reason: str


@dataclass(frozen=True)
class CellQuarantined(Event):
    """A file of this cell cannot be read: nothing starts on it until it can, and nothing else waits for it."""

    name: ClassVar[str] = "cell_quarantined"
    cell: str
    file: str
    reason: str


@dataclass(frozen=True)
class CellReleased(Event):
    """The files of a quarantined cell can be read again."""

    name: ClassVar[str] = "cell_released"
    cell: str


@dataclass(frozen=True)
class LedgerShortened(Event):
    """The ledger was found with fewer events than its head file recorded: its end was lost or cut off."""

    name: ClassVar[str] = "ledger_shortened"
    recorded: int
    found: int


@dataclass(frozen=True)
class ReplicaFrozen(Event):
    """One cell of a pack stopped being finite; the others continue."""

    name: ClassVar[str] = "replica_frozen"
    cell: str
    agent_steps: int
    gradient_steps: int
    reason: str
    attempt: str | None = None


@dataclass(frozen=True)
class StopRequested(Event):
    name: ClassVar[str] = "stop_requested"
    by: str


@dataclass(frozen=True)
class BudgetReached(Event):
    name: ClassVar[str] = "budget_reached"
    spent: float
    budget: float


@dataclass(frozen=True)
class BudgetWarned(Event):
    """Most of the budget is spent; recorded once for each budget, for notifications."""

    name: ClassVar[str] = "budget_warned"
    spent: float
    budget: float


@dataclass(frozen=True)
class Notified(Event):
    """A message was sent, or why not."""

    name: ClassVar[str] = "notified"
    on: str
    way: str
    sent: bool
    reason: str | None = None


@dataclass(frozen=True)
class BreakerTripped(Event):
    name: ClassVar[str] = "breaker_tripped"
    reason: str


@dataclass(frozen=True)
class ShutdownPlanned(Event):
    name: ClassVar[str] = "shutdown_planned"
    reason: str
    grace_seconds: float
    command: list[str]


@dataclass(frozen=True)
class ShutdownCancelled(Event):
    name: ClassVar[str] = "shutdown_cancelled"
    by: str


@dataclass(frozen=True)
class ShutdownRefused(Event):
    """The machine is still needed, or the evidence is broken."""

    name: ClassVar[str] = "shutdown_refused"
    reason: str


@dataclass(frozen=True)
class ShutdownStarted(Event):
    """Stands before the command runs, which may end everything at once."""

    name: ClassVar[str] = "shutdown_started"
    command: list[str]


@dataclass(frozen=True)
class ShutdownDone(Event):
    """The command returned 0; `evidence` is what showed that the machine stops, where anything did."""

    name: ClassVar[str] = "shutdown_done"
    command: list[str]
    exit_code: int | None = None
    evidence: list[str] | None = None


@dataclass(frozen=True)
class ShutdownFailed(Event):
    """No command of the chain succeeded: the machine is still on."""

    name: ClassVar[str] = "shutdown_failed"
    evidence: list[str]
    """By command: why it failed."""


@dataclass(frozen=True)
class ReportWritten(Event):
    name: ClassVar[str] = "report_written"
    files: list[str]
    failures: list[str] | None = None
    """What could not be written or updated, and why."""
    answer: str | None = None
    """The answer to the declared question, where somebody is notified of it."""
