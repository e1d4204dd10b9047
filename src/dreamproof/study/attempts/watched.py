"""One open attempt as a supervisor sees it: its last sighting, its judgement, and what observes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.study.attempts.observer import Observer
from dreamproof.study.attempts.progress import AttemptProgress, CellProgress
from dreamproof.study.backends.api import Backend, Presence, Sighting
from dreamproof.study.diagnosis.liveness import Judgement, Watch
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.plan.open_study import OpenStudy


@dataclass
class Watched:
    """An open attempt under supervision."""

    attempt: AttemptState
    folder: AttemptFolder
    observer: Observer
    sighting: Sighting = field(default_factory=lambda: Sighting(Presence.WAITING))
    judgement: Judgement | None = None
    stopping: str | None = None

    @classmethod
    def of(
        cls, opened: OpenStudy, backend: Backend, attempt: AttemptState, known_gaps: Mapping[str, float]
    ) -> "Watched":
        """An attempt that was just started or adopted."""
        folder = opened.folder.attempt(attempt.name)
        cells = {
            cell: CellProgress(opened.run(cell), opened.adapter(cell), attempt.work, folder.output)
            for cell in map(Cell.parse, attempt.cells)
        }
        watch = Watch(opened.study.liveness, known_gaps, opened.state.stall_factor(attempt))
        return cls(attempt, folder, Observer(AttemptProgress(cells), watch, lambda: backend.activity(folder)))

    @property
    def arms(self) -> set[str]:
        """The arms of its cells; only attempts of the same arms have comparable speeds."""
        return {cell.arm for cell in self.cells}

    @property
    def cells(self) -> dict[Cell, CellProgress]:
        """The progress of its cells."""
        return self.observer.progress.cells
