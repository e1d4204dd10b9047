"""The status of train cells and eval cells. Pure."""

from dataclasses import dataclass, field

from dreamproof.base.text import duration_text
from dreamproof.study.ledger.cells import CellState, EvalState
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.state import StudyState

NOT_OURS = "running_not_ours"
NOT_SAVED = "not_saved"
# In the order in which they are counted for people.
STATUSES = (
    "proven", "running", NOT_OURS, "dead", "waiting", "reported", NOT_SAVED, "stopped", "quarantined", "unproven",
    "missing",
)  # fmt: skip
SEEN: dict[str | None, str] = {"dead": "dead", "finished": "waiting"}
PROOF_MISSING = "but the proof is missing: "
NOT_SAVED_TEXT = "trained to its end and not saved"
SAVE_REMEDY = (
    "let the trainer save when it ends, or at intervals far shorter than a run (save_every of embodied counts "
    "seconds); then run with --retry-stopped to train these cells again"
)


def status_text(status: str) -> str:
    """A status as people read it."""
    return "running (not ours)" if status == NOT_OURS else status.replace("_", " ")


def outside_text(run: Row) -> str:
    """A run made outside the study in one line: job, steps, time, values, cause, and whether it is used."""
    of_all = f" of {run['of_agent_steps']:,}" if run.get("of_agent_steps") else ""
    parts = [f"job {run['job']}"] if run.get("job") else []
    parts.append(f"{run.get('agent_steps') or 0:,}{of_all} agent steps")
    parts += [duration_text(run["wall_seconds"])] if run.get("wall_seconds") else []
    final, peak = run.get("final") or {}, run.get("peak") or {}
    parts += [f"{name} final {value:,.2f}, peak {peak.get(name, value):,.2f}" for name, value in final.items()]
    parts += [run["cause"]] if run.get("cause") else []
    parts += ["aborted, counted as waste"] if run.get("aborted") else []
    return "; ".join(parts)


@dataclass(frozen=True)
class NotSavedCells:
    """Cells that were trained to their end and not saved, and the time they took."""

    reasons: dict[str, str] = field(default_factory=dict)
    """By cell."""
    wall_seconds: float = 0.0


def not_saved_cells(state: StudyState) -> NotSavedCells:
    """The declared cells in this state."""
    found = [cell for cell in state.cells.values() if train_status(state, cell) == NOT_SAVED]
    reasons = {str(cell.cell): cell.stopped or "" for cell in found}
    return NotSavedCells(reasons, sum(cell.wall_seconds for cell in found))


def train_status(state: StudyState, cell: CellState) -> str:
    """One of proven, running, running_not_ours, quarantined, not_saved, stopped, unproven, waiting, missing."""
    if state.trained(cell):
        return "proven"
    if cell.running is not None:
        return _open_status(state, cell.running)
    if cell.foreign is not None:
        return NOT_OURS
    if state.quarantine(cell) is not None:
        return "quarantined"
    if cell.stopped is not None:
        return NOT_SAVED if cell.stopped_cause == NOT_SAVED else "stopped"
    if cell.unproven is not None:
        return "unproven"
    return "waiting" if cell.attempts else "missing"


def _open_status(state: StudyState, attempt: str) -> str:
    """An open attempt runs, or waits in a queue."""
    queued = state.study is not None and state.study.backend.has_queue
    return "waiting" if queued and state.attempts[attempt].placed is None else "running"


def eval_status(state: StudyState, eval_cell: EvalState) -> str:
    """One of proven, running, waiting (in a queue), quarantined, stopped, reported, unproven, missing."""
    if state.evaluated(eval_cell):
        return "proven"
    cell = state.known_cell(str(eval_cell.cell))
    if cell.eval_running is not None and eval_cell.condition in state.attempts[cell.eval_running].conditions:
        return _open_status(state, cell.eval_running)
    if state.quarantine(cell) is not None:
        return "quarantined"
    if cell.eval_stopped is not None:
        return "stopped"
    if eval_cell.reported is not None:
        return "reported"
    return "unproven" if eval_cell.unproven is not None else "missing"


def as_seen(status: str, liveness: str | None) -> str:
    """A status with the knowledge that the process of a running attempt is gone, which the ledger does not hold yet.

    What finished waits for the next run, which takes it in.
    """
    return SEEN.get(liveness, status) if status == "running" else status


def train_outcome(state: StudyState, cell: CellState) -> str:
    """The status of a cell in reports: proven, running, not_saved, stopped, unfinished or missing."""
    status = train_status(state, cell)
    if status in ("proven", NOT_SAVED):
        return status
    if cell.running is not None or cell.foreign is not None:
        return "running"
    if status in ("quarantined", "stopped") or cell.frozen is not None:
        return "stopped"
    return "unfinished" if cell.reached_agent_steps > 0 or cell.attempts else "missing"
