"""Cells with unreadable files: which, why, and when to check them again."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dreamproof.base.errors import DreamproofError
from dreamproof.base.files import FaultKind, Unreadable, free_name, is_full
from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import Cell
from dreamproof.study.backends.api import Sighting
from dreamproof.study.diagnosis.diagnose import Cause
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.chain import LedgerFailure
from dreamproof.study.ledger.events import AttemptEnded, CellQuarantined, Event, ProofLost
from dreamproof.study.plan.on_disk import cell_fault, disk_faults, misplaced
from dreamproof.study.plan.open_study import OpenStudy

FIRST_LOOK_SECONDS = 2.0
LONGEST_LOOK_SECONDS = 600.0
PASSING_SECONDS = 15.0
"""A network disk that was lost for a moment is back by then."""


class CellUnreadable(Exception):
    """A file of a cell cannot be read, so that nothing may be concluded from it and nothing started on it."""

    def __init__(self, fault: Unreadable) -> None:
        super().__init__(str(fault))
        self.fault = fault


def take_in_losses(opened: OpenStudy) -> list[Event]:
    """What is proven and no longer on disk: such evaluations are to be made again, such cells are quarantined.

    A file that is not the proven one is put aside: it must not become a proof.
    """
    found, known = disk_faults(opened, for_work=True), opened.state.cells
    events: list[Event] = [
        quarantined(opened, cell, fault)
        for cell, fault in found.cells.items()
        if known[cell].proof is not None and known[cell].quarantined is None
    ]
    return events + [
        ProofLost(str(cell), put_aside(fault), condition) for (cell, condition), fault in found.evals.items()
    ]


def changed_weights(opened: OpenStudy, cells: list[Cell]) -> list[CellQuarantined]:
    """Which of some cells have other weights than the proven ones, read as a whole; these are put aside."""
    events = []
    for cell in cells:
        proof = opened.state.known_cell(str(cell)).proof
        if proof is None or misplaced(opened, cell) is not None:  # nothing is renamed in the folder of another cell
            continue
        fault = opened.adapter(cell).changed_proof(opened.run(cell), proof, True)
        if fault is not None:
            events.append(quarantined(opened, cell, replace(fault, reason=f"{fault.reason}{move_aside(fault)}")))
    return events


def put_aside(fault: Unreadable) -> str:
    """Renames a file that is not the proven one, if that is the fault; what happened, for people."""
    return f"{fault.path} {fault.reason}{move_aside(fault)}"


def move_aside(fault: Unreadable) -> str:
    """The same; where the file is now."""
    if fault.fault is not FaultKind.MALFORMED or not os.path.lexists(fault.path):
        return ""
    aside = free_name(fault.path.with_name(f"{fault.path.name}.changed"))
    fault.path.rename(aside)
    return f"; moved to {aside.name}"


def require_readable(opened: OpenStudy, cell: Cell) -> None:
    """Raises CellUnreadable if a file of the cell's run folder cannot be read."""
    fault = cell_fault(opened, cell)
    if fault is not None:
        raise CellUnreadable(fault)


def quarantined(opened: OpenStudy, cell: Cell, fault: Unreadable) -> CellQuarantined:
    """The event that a cell is quarantined for a file."""
    return CellQuarantined(str(cell), printable(opened.folder.relative(fault.path)), printable(fault.reason))


def quarantined_by(opened: OpenStudy, cells: list[Cell], error: Exception) -> list[CellQuarantined]:
    """Which of some cells are quarantined after an error: those with a file that shows it, or all of them."""
    if isinstance(error, CellUnreadable):
        fault = error.fault
        owners = [cell for cell in cells if fault.path.is_relative_to(opened.run(cell).root)]
        return [quarantined(opened, cell, fault) for cell in owners or cells]
    faults = {cell: found for cell in cells if (found := cell_fault(opened, cell)) is not None}
    if faults:
        return [quarantined(opened, cell, found) for cell, found in faults.items()]
    system = error.strerror if isinstance(error, OSError) else None
    reason = printable(system or f"{type(error).__name__}: {error}")[:500]
    return [CellQuarantined(str(cell), _place(opened, cell, error), reason) for cell in cells]


def _place(opened: OpenStudy, cell: Cell, error: Exception) -> str:
    named = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else None
    return printable(opened.folder.relative(Path(named) if named else opened.run(cell).root))


def bare_end(attempt: AttemptState, sighting: Sighting) -> AttemptEnded:
    """The end of an attempt whose files cannot be read: what the backend saw, and nothing else."""
    seconds = sighting.exit.wall_seconds if sighting.exit is not None else 0.0
    kept = {text: attempt.from_agent_steps.get(text, 0) for text in attempt.cells}
    quotes = ["its files could not be read when it ended; its cells are quarantined"]
    return AttemptEnded(attempt.name, Cause.UNKNOWN.value, quotes, seconds, dict(kept), kept, transient=True)


@contextmanager
def contained(on_error: Callable[[Exception], None]) -> Iterator[None]:
    """Hands an error to whom it concerns; a ledger that cannot be written and a full disk concern the whole study."""
    try:
        yield
    except (LedgerFailure, DreamproofError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and is_full(error):
            raise
        on_error(error)


class Quarantine:
    """When each quarantined cell is looked at again; the wait doubles each time it comes back."""

    def __init__(self) -> None:
        self._look_at: dict[Cell, float] = {}
        self._waits: dict[Cell, float] = {}
        self._newest: float | None = None

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._look_at

    def add(self, cell: Cell, now: float) -> bool:
        """Takes a cell in; False if it is in already."""
        if cell in self._look_at:
            return False
        wait = self._waits.get(cell, FIRST_LOOK_SECONDS)
        self._waits[cell] = min(2 * wait, LONGEST_LOOK_SECONDS)
        self._look_at[cell] = now + wait
        self._newest = now
        return True

    def due(self, now: float) -> list[Cell]:
        """Cells to look at; each is due again after its wait."""
        found = [cell for cell, look_at in self._look_at.items() if now >= look_at]
        self._look_at |= dict.fromkeys(found, now + FIRST_LOOK_SECONDS)
        return found

    def is_fresh(self, now: float) -> bool:
        """Whether a cell was added so recently that its fault may be temporary."""
        return bool(self._look_at) and self._newest is not None and now - self._newest < PASSING_SECONDS

    def release(self, cell: Cell) -> None:
        """Lets a cell go."""
        self._look_at.pop(cell, None)
