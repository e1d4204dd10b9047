"""Finds trainers that begin again although a checkpoint was there: the steps before it are paid for twice."""

from dreamproof.runs.layout import Cell
from dreamproof.study.attempts.progress import CellProgress
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.events import CellRestarted
from dreamproof.study.plan.open_study import OpenStudy

# The step of a foreign checkpoint may be estimated from file times: a little less is no restart.
RESUMED_FRACTION = 0.9
FROM_ZERO_FRACTION = 0.5


def restarts(attempt: AttemptState, cells: dict[Cell, CellProgress]) -> list[CellRestarted]:
    """Cells whose progress in this attempt lies before the step that the attempt was to continue from."""
    if attempt.work != "train":
        return []
    found = [_restart(attempt, str(cell), progress) for cell, progress in cells.items()]
    return [event for event in found if event is not None]


def restarts_in_logs(opened: OpenStudy, attempt: AttemptState) -> list[CellRestarted]:
    """The same of an attempt that is over, by the first rows of its log.

    A trainer that logs rarely shows no step before the one that it was to continue from.
    """
    cells = [text for text in attempt.cells if text not in attempt.restarted and attempt.work == "train"]
    found = {text: _began(opened, attempt, Cell.parse(text)) for text in cells}
    kept = attempt.from_agent_steps
    return [
        CellRestarted(text, attempt.name, 0, kept[text])
        for text, began in found.items()
        if began is not None and began < FROM_ZERO_FRACTION * kept.get(text, 0)
    ]


def _began(opened: OpenStudy, attempt: AttemptState, cell: Cell) -> int | None:
    return opened.adapter(cell).began_agent_steps(opened.run(cell), opened.folder.attempt(attempt.name).output)


def _restart(attempt: AttemptState, text: str, progress: CellProgress) -> CellRestarted | None:
    kept, seen = attempt.from_agent_steps.get(text, 0), progress.reading.agent_steps
    if text in attempt.restarted or not progress.has_moved or not 0 < seen < RESUMED_FRACTION * kept:
        return None
    began = 0 if seen < FROM_ZERO_FRACTION * kept else seen
    return CellRestarted(text, attempt.name, began, kept)
