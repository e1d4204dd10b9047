"""Finds trainers that begin again although a checkpoint was there: the steps before it are paid for twice."""

from dreamproof.runs.layout import Cell
from dreamproof.study.attempts.progress import CellProgress
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.events import CellRestarted

# The step of a foreign checkpoint may be estimated from file times: a little less is no restart.
RESUMED_FRACTION = 0.9
FROM_ZERO_FRACTION = 0.5


def restarts(attempt: AttemptState, cells: dict[Cell, CellProgress]) -> list[CellRestarted]:
    """Cells whose progress in this attempt lies before the step that the attempt was to continue from."""
    if attempt.work != "train":
        return []
    found = [_restart(attempt, str(cell), progress) for cell, progress in cells.items()]
    return [event for event in found if event is not None]


def _restart(attempt: AttemptState, text: str, progress: CellProgress) -> CellRestarted | None:
    kept, seen = attempt.from_agent_steps.get(text, 0), progress.reading.agent_steps
    if text in attempt.restarted or not progress.has_moved or not 0 < seen < RESUMED_FRACTION * kept:
        return None
    began = 0 if seen < FROM_ZERO_FRACTION * kept else seen
    return CellRestarted(text, attempt.name, began, kept)
