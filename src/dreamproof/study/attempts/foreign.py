"""Runs that others started: watched like attempts, never signalled, adopted when they end."""

import os
from pathlib import Path

from dreamproof.base.text import duration_text, quoted
from dreamproof.runs.layout import Cell
from dreamproof.study.adapters.api import Reading
from dreamproof.study.attempts.observer import Observer
from dreamproof.study.attempts.progress import AttemptProgress, CellProgress
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.backends.local import activity_of
from dreamproof.study.diagnosis.liveness import Activity, Judgement, State, Watch
from dreamproof.study.ledger.events import Event
from dreamproof.study.ledger.outside_events import ForeignRunChanged, ForeignRunFound
from dreamproof.study.plan.gap import Selection
from dreamproof.study.plan.importing.attach import end_foreign
from dreamproof.study.plan.importing.candidates import Candidate
from dreamproof.study.plan.importing.found import Found
from dreamproof.study.plan.importing.living import find_writer
from dreamproof.study.plan.importing.record import foreign_run
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process.gpus import VISIBLE
from dreamproof.study.process.processes import ProcessFacts, ProcessIdentity, boot_id, process_facts


class ForeignRun:
    """One run of somebody else under watch."""

    def __init__(self, opened: OpenStudy, cell: Cell) -> None:
        known = opened.state.known_cell(str(cell)).foreign or {}
        self.process = ProcessIdentity.read(known.get("process"))
        output = known.get("output")
        self._progress = CellProgress(
            opened.run(cell), opened.adapter(cell), "train", Path(output) if output is not None else None
        )
        self._observer = Observer(AttemptProgress({cell: self._progress}), Watch(opened.study.liveness), self._activity)

    @property
    def reading(self) -> Reading:
        """How far it is, as last seen."""
        return self._progress.reading

    @property
    def watch(self) -> Watch:
        """What judges its progress."""
        return self._observer.watch

    @property
    def is_seen(self) -> bool:
        """Whether its process, if it lived, could be seen from here."""
        return self.process is not None and self.process.can_be_judged

    @property
    def facts(self) -> ProcessFacts | None:
        """The kernel's facts about its process; None if it is gone or cannot be seen."""
        return process_facts(self.process, boot_id()) if self.process is not None else None

    def observe(self, now: float) -> Judgement:
        """Judges its progress at this instant of a monotonic clock."""
        facts = self.facts
        state, process_id = (facts.state, self.process.process_id) if facts and self.process else (None, None)
        return self._observer.observe(now, Sighting(Presence.RUNNING, process_state=state, process_id=process_id))

    def _activity(self) -> Activity | None:
        if self.process is None or self.facts is None:
            return None
        return activity_of([self.process.process_id], os.environ.get(VISIBLE))


class ForeignRuns:
    """All runs of others that work on cells of a study."""

    def __init__(self, opened: OpenStudy) -> None:
        self._opened = opened
        self._runs: dict[Cell, ForeignRun] = {}

    def cells(self, selection: Selection) -> list[Cell]:
        """Selected cells that others work on."""
        found = (cell for cell, known in self._opened.state.cells.items() if known.foreign is not None)
        return [cell for cell in found if selection.holds(cell)]

    def run(self, cell: Cell) -> ForeignRun:
        """The foreign run of a cell."""
        if cell not in self._runs:
            self._runs[cell] = ForeignRun(self._opened, cell)
        return self._runs[cell]

    def count_here(self) -> int:
        """Foreign runs whose process lives on this machine: each takes the place of an attempt."""
        if not self._opened.study.backend.runs_here:
            return 0
        known = self._opened.state.cells
        return sum(known[cell].foreign is not None and run.facts is not None for cell, run in self._runs.items())

    def look(self, cell: Cell, now: float) -> list[Event]:
        """What changed: its liveness, its process, or that it is over, with what it left."""
        run = self.run(cell)
        if run.is_seen and run.facts is None:
            return self._successor(cell) or self._end(cell, "its process is gone")
        judgement = run.observe(now)
        if judgement.kill is not None and not run.is_seen:
            silent = duration_text(judgement.silent_seconds)
            return self._end(cell, f"no counter grew for {silent}, and its process cannot be seen from here")
        known = self._opened.state.known_cell(str(cell)).foreign or {}
        if judgement.state.value == known.get("liveness"):
            return []
        return [ForeignRunChanged(str(cell), judgement.state.value, self._reason(cell, judgement))]

    def _reason(self, cell: Cell, judgement: Judgement) -> str:
        if judgement.state is not State.STALLED:
            return judgement.reason
        ended = f"dreamproof attach {quoted(self._opened.file)} {cell} --ended"
        return f"no counter grew for {duration_text(judgement.silent_seconds)}; if it is over: {ended}"

    def _successor(self, cell: Cell) -> list[Event]:
        """Another process that writes the same folder, as behind a wrapper that ended."""
        found = _intruder(self._opened, cell)
        if found is not None:
            self._runs.pop(cell)
        return [found] if found is not None else []

    def _end(self, cell: Cell, reason: str) -> list[Event]:
        self._runs.pop(cell)
        return end_foreign(self._opened, cell, reason).events


def intruders(opened: OpenStudy, cells: list[Cell]) -> list[ForeignRunFound]:
    """Processes that no study started and that write the run folders of cells which are about to be trained."""
    return [found for cell in cells if (found := _intruder(opened, cell)) is not None]


def _intruder(opened: OpenStudy, cell: Cell) -> ForeignRunFound | None:
    run, adapter = opened.run(cell), opened.adapter(cell)
    living = find_writer(run.root)
    if living is None:
        return None
    steps = adapter.read(run, living.output).agent_steps
    return foreign_run(opened, Candidate(Found(cell, run.root), adapter.name, steps, ""), living)
