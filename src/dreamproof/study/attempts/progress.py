"""How far the cells of one attempt are, read cheaply enough to be asked every second."""

from pathlib import Path

from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.study.adapters.api import Adapter, Reading
from dreamproof.study.ledger.events import Work


class CellProgress:
    """The newest reading of one cell; read again only if the adapter may see a change."""

    def __init__(self, run: RunFolder, adapter: Adapter, work: Work, output: Path | None) -> None:
        self.run = run
        self.reading = Reading()
        self._adapter = adapter
        self._work = work
        self._output = output
        self._stamp: tuple[int, int] | None = None
        self._first: int | None = None

    @property
    def has_moved(self) -> bool:
        """Whether the steps are others than those that were there at first, which an earlier attempt may have left."""
        return self._first is not None and self.reading.agent_steps != self._first

    def refresh(self) -> Reading:
        """Reads again where something may have changed."""
        if self._work == "train":
            stamp = self._adapter.change_stamp(self.run)
            if stamp is not None and stamp == self._stamp:
                return self.reading
            self._stamp = stamp
        read = self._adapter.read if self._work == "train" else self._adapter.read_evaluation
        self.reading = read(self.run, self._output)
        self._first = self.reading.agent_steps if self._first is None else self._first
        return self.reading


class AttemptProgress:
    """All cells of an attempt: counters with the cell's name, and the phase of the first."""

    def __init__(self, cells: dict[Cell, CellProgress]) -> None:
        self.cells = cells

    def refresh(self) -> tuple[dict[str, float], str]:
        """Counters of all cells, and the phase that the attempt is in."""
        readings = {cell: progress.refresh() for cell, progress in self.cells.items()}
        first = next(iter(readings.values()))
        if len(readings) == 1:
            return first.counters, first.phase
        counters = {
            f"{name} of {cell}": value for cell, read in readings.items() for name, value in read.counters.items()
        }
        counters["agent_steps"] = sum(read.agent_steps for read in readings.values())
        return counters, first.phase
