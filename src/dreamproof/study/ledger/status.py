"""The status of train cells and eval cells. Pure."""

from dreamproof.study.ledger.cells import CellState, EvalState
from dreamproof.study.ledger.state import StudyState


def train_status(state: StudyState, cell: CellState) -> str:
    """One of proven, running, quarantined, stopped, unproven, waiting (begun or queued), missing."""
    if state.trained(cell):
        return "proven"
    if cell.running is not None:
        return _open_status(state, cell.running)
    if cell.quarantined is not None:
        return "quarantined"
    if cell.stopped is not None:
        return "stopped"
    if cell.unproven is not None:
        return "unproven"
    return "waiting" if cell.attempts else "missing"


def _open_status(state: StudyState, attempt: str) -> str:
    """An open attempt runs, or waits in a queue."""
    queued = state.study is not None and state.study.backend.has_queue
    return "waiting" if queued and state.attempts[attempt].placed is None else "running"


def eval_status(state: StudyState, eval_cell: EvalState) -> str:
    """One of proven, running, waiting (in a queue), quarantined, stopped, unproven, missing."""
    if state.evaluated(eval_cell):
        return "proven"
    cell = state.known_cell(str(eval_cell.cell))
    if cell.eval_running is not None and eval_cell.condition in state.attempts[cell.eval_running].conditions:
        return _open_status(state, cell.eval_running)
    if cell.quarantined is not None:
        return "quarantined"
    if cell.eval_stopped is not None:
        return "stopped"
    return "unproven" if eval_cell.unproven is not None else "missing"


def as_seen(status: str, is_dead: bool) -> str:
    """A status with the knowledge that the process of a running attempt is gone, which the ledger does not hold yet."""
    return "dead" if is_dead and status == "running" else status


def train_outcome(state: StudyState, cell: CellState) -> str:
    """The status of a cell in reports: proven, running, stopped, unfinished or missing."""
    status = train_status(state, cell)
    if status == "proven":
        return status
    if cell.running is not None:
        return "running"
    if status in ("quarantined", "stopped") or cell.frozen is not None:
        return "stopped"
    return "unfinished" if cell.reached_agent_steps > 0 or cell.attempts else "missing"
