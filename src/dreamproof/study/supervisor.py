"""The supervisor of one study: scan, judge, remedy, start, sleep; until nothing is left that it may do."""

import errno
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import FaultKind, is_full, read_json, unless_full
from dreamproof.runs.layout import Cell
from dreamproof.study.attempts import launch, remedy, stalls
from dreamproof.study.attempts.foreign import ForeignRuns, intruders
from dreamproof.study.attempts.notifications import Notifier
from dreamproof.study.attempts.quarantine import (
    FIRST_LOOK_SECONDS,
    Quarantine,
    bare_end,
    changed_weights,
    contained,
    quarantined,
    quarantined_by,
    take_in_losses,
)
from dreamproof.study.attempts.restarts import restarts, restarts_in_logs
from dreamproof.study.attempts.settle import other_memory_kills, settle
from dreamproof.study.attempts.waits import Waits
from dreamproof.study.attempts.watched import Watched
from dreamproof.study.backends.api import Backend, Presence
from dreamproof.study.diagnosis.diagnose import Cause
from dreamproof.study.diagnosis.liveness import State
from dreamproof.study.ledger.cells import AttemptState, CellState
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment, read_moment
from dreamproof.study.ledger.events import (
    AttemptPlaced,
    BudgetReached,
    BudgetWarned,
    CellQuarantined,
    CellReleased,
    EvalProven,
    Event,
    Row,
    StopRequested,
)
from dreamproof.study.ledger.index import WORTH_EVENTS, write_index
from dreamproof.study.money.budget import STOP_GRACE_SECONDS, Budget
from dreamproof.study.plan.code_watch import CodeWatch
from dreamproof.study.plan.gap import EVERYTHING, PlannedAttempt, PlanQueries, Selection, find_gap, jobs
from dreamproof.study.plan.on_disk import cell_fault
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.plan.packs import pack_groups
from dreamproof.study.plan.provenance import NOTHING_ACCEPTED, Accepted
from dreamproof.study.process.machine import MIN_FREE_BYTES, disk_free_bytes
from dreamproof.study.views.manifests import ManifestWriter
from dreamproof.study.views.running import RunningCell, SightingsWriter, foreign_cell, running_cell, with_use

TICK_SECONDS = 1.0
BEGINNING_TICK_SECONDS = 0.1
MAX_LOSSES = 3
"""How often proofs that vanish during one run are taken in before it ends."""
ELSEWHERE = "the study folder was moved or copied while this attempt ran; it writes to the folder where it began"


def _inode(folder: Path) -> int | None:
    try:
        return folder.stat().st_ino
    except OSError:
        return None


class Ending(StrEnum):
    """Why a supervisor has nothing more to do."""

    COMPLETE = "everything is proven"
    SELECTION_DONE = "the selected cells are proven"
    NOTHING_CAN_RUN = "no missing cell can run"
    STOPPED = "stopped"
    BUDGET = "the budget is reached"
    BREAKER = "the breaker tripped"
    CODE_CHANGED = "the trainer's code or settings changed; nothing more was started"
    LEFT = "the supervisor exited; attempts keep running"


LOOKS_AGAIN = (Ending.COMPLETE, Ending.SELECTION_DONE, Ending.NOTHING_CAN_RUN)
"""Before such an end, everything proven is looked at once more."""


@dataclass
class SupervisorOptions:
    """How one call of `run` differs from another."""

    selection: Selection = EVERYTHING
    accepted: Accepted = NOTHING_ACCEPTED
    """Changes of settings and code that somebody accepted."""
    drain: bool = False
    """Start nothing; stop what runs and record how it ended."""
    from_lost_host: bool = False
    """Attempts that were started on a machine or in a container that is gone are over."""
    tick_seconds: float = TICK_SECONDS
    stop_grace_seconds: float = STOP_GRACE_SECONDS
    on_tick: Callable[["Supervisor"], None] | None = None
    on_event: Callable[[Row], None] | None = None


class Supervisor:
    """Works on the gap of one study. Whoever builds it holds the lease."""

    def __init__(self, opened: OpenStudy, ledger: Ledger, backend: Backend, options: SupervisorOptions) -> None:
        self.opened = opened
        self.state = opened.state
        self.study = opened.study
        self.ledger = ledger
        self.backend = backend
        self.options = options
        self.watched: dict[str, Watched] = {}
        self.asked: str | None = None
        """Why this supervisor is to stop, if it is."""
        self._asked_by: str | None = None
        self.notice: str | None = None
        """What a person should know now, e.g. that the disk is full."""
        self.finishing = False
        """Whether the attempts are over and reports or a shutdown follow."""
        self.leave = False
        """Whether to end at once and let the attempts run on."""
        self.monotonic: Callable[[], float] = time.monotonic
        self.read_moment: Callable[[], Moment] = read_moment
        self._waits = Waits()
        self._kept: dict[Cell, int] = {}
        self._quarantine = Quarantine()
        self._foreign = ForeignRuns(opened)
        self._known_gaps: dict[str, float] = {}
        self._over: list[Watched] = []
        self._manifests = ManifestWriter(opened)
        self._budget = Budget(opened.study)
        self._indexed_events = 0
        self._groups = pack_groups(opened.study)
        self._starved = False
        self._losses = 0
        self._sightings = SightingsWriter(opened.folder)
        self.notifier = Notifier(opened.study)
        self._place = _inode(opened.folder.root)
        self.code_watch = CodeWatch(opened, self.monotonic(), options.accepted)

    def run(self) -> Ending:
        """Supervises until nothing is left that this call may do."""
        self.recover()
        while (ending := self.ending()) is None or (ending in LOOKS_AGAIN and self._take_in_losses()):
            with self.waiting_for_disk():
                self.scan()
                self.judge()
                self.remedy()
                self.start()
            self.sleep()
        self._manifests.write(self.state, force=True)
        self._write_index(WORTH_EVENTS // 20)
        return ending

    def _take_in_losses(self) -> bool:
        """Looks whether everything proven is still on disk; False if it is, or was lost again and again."""
        if self._losses == MAX_LOSSES:
            return False
        events = take_in_losses(self.opened)
        self._losses += bool(events)
        self._starved = False
        self.record(*events)
        for event in events:
            if isinstance(event, CellQuarantined):
                self._quarantine.add(Cell.parse(event.cell), self.monotonic())
        return bool(events)

    def recover(self) -> None:
        """Adopts what an earlier supervisor left: open attempts, those that a torn ledger lost, stops that were due."""
        self._budget.begin(self.state, self.read_moment(), self.monotonic(), self.options.stop_grace_seconds)
        self.record(*launch.orphaned_events(self.state, self.opened.folder))
        self.record(*launch.forgotten_proofs(self.opened))
        for attempt in self.state.open_attempts.values():
            watched = self.watched[attempt.name] = self._watch(attempt)
            if launch.works_elsewhere(self.opened, attempt):
                self._stop(watched, ELSEWHERE, self.options.stop_grace_seconds)
        for known in self.state.cells.values():
            if known.quarantined is not None:
                self._quarantine.add(known.cell, self.monotonic() - FIRST_LOOK_SECONDS)
        self.record(*remedy.overdue_stops(self.state))

    @contextmanager
    def waiting_for_disk(self) -> Iterator[None]:
        """A full disk ends nothing: what could not be written is done in a later tick, when there is room.

        Any other failure ends the run; if the folder was moved meanwhile, that is its cause.
        """
        try:
            yield
            self.notice = None
        except OSError as error:
            if not is_full(error):
                self._require_place()
                raise
            self.notice = f"the disk is full: {error.filename or self.opened.folder.root}"
            self._starved = False

    def scan(self) -> None:
        """Looks at every open attempt and at what people ask for."""
        self._require_place()
        for watched in self.watched.values():
            with self._contained(watched.cells):
                watched.sighting = self.backend.look(watched.folder)
        for cell in self._foreign.cells(self.options.selection):
            with self._contained([cell]):
                self.record(*self._foreign.look(cell, self.monotonic()))
        self._release_repaired()
        request = read_json(self.opened.folder.stop_request)
        if self.asked is None and isinstance(request, dict):
            self.ask_to_stop(str(request.get("by", "somebody")))
        if self._asked_by is not None:
            self.record(StopRequested(self._asked_by))
            self._asked_by = None

    def _require_place(self) -> None:
        """A study folder that was moved away is supervised from its new place: writing here would split it in two."""
        root = self.opened.folder.root
        if _inode(root) == self._place:
            return
        for watched in self.watched.values():
            self.backend.stop(watched.folder, ELSEWHERE, self.options.stop_grace_seconds)
        raise BadInput(
            f"{root}: the study folder was moved or replaced while attempts ran; they write to the old folder, so they "
            "were asked to save and end",
            "dreamproof run NEW_FOLDER (it continues from the checkpoints there); move a study only while nothing runs",
        )

    def judge(self) -> None:
        """Ends what is over, with its cause; judges the liveness of the rest."""
        for watched in list(self.watched.values()):
            with self._contained(watched.cells):
                if watched.sighting.presence in (Presence.ENDED, Presence.LOST):
                    self._end(watched)
                elif watched.sighting.presence is Presence.RUNNING:
                    self._record_place(watched)
                    self._judge_liveness(watched)

    def remedy(self) -> None:
        """Does something about deaths, stalls, wishes to stop and money."""
        while self._over:
            events = remedy.decide(self.state, self._over[0].attempt)
            self.record(*events)
            self._waits.add(events, self.monotonic())
            self._over.pop(0)
        self._stop_finished()
        self._kill_stalled()
        self._guard_budget()
        if self.asked is not None or self.options.drain:
            self._stop_all(self.asked or "stop by user", self.options.stop_grace_seconds)

    def start(self) -> None:
        """Starts attempts for the gap while slots are free."""
        if not self._may_start():
            return
        free = self.study.backend.slots - len(self.watched) - self._foreign.count_here()
        if free <= 0:
            return
        self.record(*self.code_watch.look(self.monotonic()))
        if self.code_watch.refusal is not None:
            return
        self._require_disk_space()
        self._waits.drop_over(self.monotonic())
        gap = find_gap(self.state, self.options.selection)
        self._starved = True
        for job in jobs(self.state, gap, PlanQueries(self._is_ready, self._kept_steps, self._groups)):
            self._starved = False
            with self._contained(job.cells):
                free -= self._start_job(job)
            if free <= 0:
                break

    def sleep(self) -> None:
        """Writes the manifests now and then, shows progress, and waits for the next death or tick."""
        self._manifests.write(self.state)
        self._write_index(WORTH_EVENTS)
        self._sightings.write(self.monotonic(), self._progress_ages())
        self.record(*self.notifier.outcomes())
        if self.options.on_tick is not None:
            self.options.on_tick(self)
        if self.ending() is None:
            self.backend.wait(self._tick_seconds())

    def _write_index(self, after_events: int) -> None:
        """Spares readers the replay of a long ledger."""
        if self.state.event_count >= WORTH_EVENTS and self.state.event_count - self._indexed_events >= after_events:
            with unless_full():
                write_index(self.opened.folder, self.state, self.ledger.position)
            self._indexed_events = self.state.event_count

    def _progress_ages(self) -> dict[Cell, float]:
        """Seconds since the last progress of every cell that is worked on, as far as this supervisor sees it."""
        visible = [one for one in self.watched.values() if one.sighting.unseen is None]
        watched = {cell: one.observer.watch for one in visible for cell in one.cells}
        foreign = {cell: self._foreign.run(cell).watch for cell in self._foreign.cells(EVERYTHING)}
        ages = {cell: watch.progress_age_seconds(self.monotonic()) for cell, watch in (watched | foreign).items()}
        return {cell: age for cell, age in ages.items() if age is not None}

    def _tick_seconds(self) -> float:
        """Short while an attempt is about to begin: its death cannot be heard before its shim is known."""
        beginning = any(watched.sighting.presence is Presence.WAITING for watched in self.watched.values())
        return min(self.options.tick_seconds, BEGINNING_TICK_SECONDS if beginning else self._next_ready_seconds())

    def ending(self) -> Ending | None:
        """Why there is nothing more to do; None while there is."""
        if self.leave:
            return Ending.LEFT
        if self.watched or self._over:
            return None
        if self.asked is not None or self.options.drain:
            return Ending.STOPPED
        if not find_gap(self.state, self.options.selection):
            return Ending.SELECTION_DONE if find_gap(self.state) else Ending.COMPLETE
        if self.state.budget_reached is not None:
            return Ending.BUDGET
        if self.state.breaker is not None:
            return Ending.BREAKER
        if self.code_watch.refusal is not None:
            return Ending.CODE_CHANGED
        waits = self._waits or self._foreign.cells(self.options.selection)
        if self._starved and not waits and not self._quarantine.is_fresh(self.monotonic()):
            return Ending.NOTHING_CAN_RUN
        return None

    def record(self, *events: Event) -> None:
        """Writes events and takes them into the state."""
        if not events:
            return
        for row in self.ledger.append_all(list(events)):
            self.state.apply(row)
            self.notifier.take(row)
            if self.options.on_event is not None:
                self.options.on_event(row)
        self._manifests.dirty = True

    def ask_to_stop(self, by: str) -> None:
        """Saves and stops everything; safe to call from a signal handler."""
        self.asked = f"stop by {by}"
        self._asked_by = by

    def running_cells(self) -> list[RunningCell]:
        """Every cell that is worked on, from the newest readings."""
        now = self.read_moment()
        own = [
            running_cell(self.opened, watched.attempt, cell, progress.reading, now)
            for watched in self.watched.values()
            for cell, progress in watched.cells.items()
        ]
        others = self._foreign.cells(EVERYTHING)
        own += [foreign_cell(self.opened, cell, self._foreign.run(cell).reading, now) for cell in others]
        return with_use(self.opened, own, supervised=True)

    def _contained(self, cells: Iterable[Cell]) -> AbstractContextManager[None]:
        """Whatever the files of some cells provoke ends nothing but the work on these cells."""
        return contained(lambda error: self._quarantine_cells(quarantined_by(self.opened, list(cells), error)))

    def _quarantine_cells(self, events: Iterable[CellQuarantined]) -> None:
        now = self.monotonic()
        self.record(*(event for event in events if self._quarantine.add(Cell.parse(event.cell), now)))

    def _release_repaired(self) -> None:
        """Lets cells go whose files can be read again."""
        for cell in self._quarantine.due(self.monotonic()):
            if cell_fault(self.opened, cell) is None:
                self.record(CellReleased(str(cell)))
                self._quarantine.release(cell)
                self._kept.pop(cell, None)

    def _watch(self, attempt: AttemptState) -> Watched:
        return Watched.of(self.opened, self.backend, attempt, self._known_gaps)

    def _record_place(self, watched: Watched) -> None:
        """Records where a scheduler put an attempt, once it runs there."""
        place = watched.sighting.placement
        if place is not None and place.nodes and watched.attempt.placed is None:
            queue_seconds = round(place.queue_seconds or 0.0, 3)
            self.record(
                AttemptPlaced(watched.attempt.name, place.job, place.nodes, queue_seconds, place.restarts or None)
            )

    def _follow(self, successor: str) -> None:
        """Watches the attempt that continues the job; it is stopped if nothing is left to do."""
        if successor not in self.state.attempts:
            self.record(*launch.orphaned_events(self.state, self.opened.folder))
        attempt = self.state.open_attempts.get(successor)
        if attempt is not None and successor not in self.watched:
            self.watched[successor] = self._watch(attempt)

    def _end(self, watched: Watched) -> None:
        others = other_memory_kills(self.state, self.study, watched.sighting)
        events: list[Event] = []
        with self._contained(watched.cells):
            self.record(*restarts_in_logs(self.opened, watched.attempt))
            events = settle(self.opened, watched.attempt, watched.sighting, others)
        self.record(*(events or [bare_end(watched.attempt, watched.sighting)]))
        proven = {event.cell for event in events if isinstance(event, EvalProven)}
        self.record(*stalls.false_alarms(self.state, watched.attempt, sorted(proven)))
        exited = watched.sighting.exit
        if watched.attempt.work == "evaluate" and exited is not None and exited.exit_code is not None:
            with self._contained(watched.cells):
                vain = [cell for cell in watched.cells if str(cell) not in proven]
                self._quarantine_cells(changed_weights(self.opened, vain))
        del self.watched[watched.attempt.name]
        self._over.append(watched)
        if watched.sighting.successor is not None:
            self._follow(watched.sighting.successor)
        for text in watched.attempt.cells:
            self._kept.pop(Cell.parse(text), None)
        if watched.attempt.cause != Cause.STALLED.value:
            for phase, gap in watched.observer.watch.gaps.items():
                self._known_gaps[phase] = max(gap, self._known_gaps.get(phase, 0.0))

    def _judge_liveness(self, watched: Watched) -> None:
        if watched.sighting.unseen is not None:
            self.record(*stalls.unseen(self.opened, watched.attempt, watched.sighting.unseen))
            return
        alike = [one for one in self.watched.values() if one is not watched and one.arms == watched.arms]
        judged = [one.judgement for one in alike if one.judgement is not None]
        other_rates = [rate for one in judged if (rate := one.agent_steps_per_second)]
        judgement = watched.observer.observe(self.monotonic(), watched.sighting, other_rates)
        for cell, progress in watched.cells.items():
            fault = progress.reading.fault
            if fault is not None and fault.fault is FaultKind.BLOCKED:
                self._quarantine_cells([quarantined(self.opened, cell, fault)])
        before = watched.judgement.state if watched.judgement is not None else State.RUNNING
        watched.judgement = judgement
        if judgement.state is not before:
            self.record(stalls.changed(self.opened, watched.attempt, watched.sighting, judgement))
        cells = watched.cells
        self.record(*stalls.false_alarms_in_training(self.state, watched.attempt, cells))
        self.record(*restarts(watched.attempt, cells))

    def _stop_finished(self) -> None:
        """Stops attempts that a scheduler began again although their cells are proven or given up."""
        for watched in self.watched.values():
            cells = [self.state.known_cell(text) for text in watched.attempt.cells]
            again = "r" in watched.attempt.name and watched.attempt.work == "train"
            if again and all(self.state.trained(cell) or cell.stopped is not None for cell in cells):
                self._stop(watched, "stop: nothing is left to do", self.options.stop_grace_seconds)

    def _kill_stalled(self) -> None:
        """Stops attempts that will not recover; they are resumed from their checkpoints with longer limits."""
        if self.study.liveness.stalled_action != "restart":
            return
        for watched in self.watched.values():
            judgement = watched.judgement
            if judgement is None or judgement.kill is None or watched.stopping is not None:
                continue
            kill = stalls.kill(watched.attempt, judgement)
            self.record(kill)
            self._stop(watched, kill.reason, self.options.stop_grace_seconds)

    def _guard_budget(self) -> None:
        """Stops everything while the money still covers the stopping."""
        budget = self.study.money.budget
        if budget is None:
            return
        placed = sum(watched.attempt.placed is not None for watched in self.watched.values())
        self._budget.meter(self.monotonic(), placed)
        warns = any("budget" in one.on for one in self.study.notify) and self.state.budget_warned != budget
        if warns and self._budget.is_mostly_spent(self.monotonic()):
            self.record(BudgetWarned(round(self._budget.spent(self.monotonic()), 6), budget))
        if self.state.budget_reached is None and self._budget.is_reached(self.monotonic()):
            self.record(BudgetReached(round(self._budget.spent(self.monotonic()), 6), budget))
        if self.state.budget_reached is not None:
            self._stop_all("budget reached", self._budget.reserve.grace_seconds)

    def _stop_all(self, reason: str, grace_seconds: float) -> None:
        for watched in self.watched.values():
            self._stop(watched, reason, grace_seconds)

    def _stop(self, watched: Watched, reason: str, grace_seconds: float) -> None:
        if watched.stopping is None:
            with self._contained(watched.cells):
                self.backend.stop(watched.folder, reason, grace_seconds)
                watched.stopping = reason

    def _is_ready(self, cell: Cell) -> bool:
        return cell not in self._waits and cell not in self._quarantine

    def _next_ready_seconds(self) -> float:
        if not self._waits or not self._starved:
            return self.options.tick_seconds
        return max(0.01, self._waits.next_seconds(self.monotonic()))

    def _may_start(self) -> bool:
        blocked = self.asked is not None or self.options.drain or self.leave
        return not blocked and self.state.breaker is None and self.state.budget_reached is None

    def _require_disk_space(self) -> None:
        """An attempt that begins on a full disk can leave no evidence, so it does not begin."""
        root = self.opened.folder.root
        free_bytes = disk_free_bytes(root)
        if free_bytes is not None and free_bytes < MIN_FREE_BYTES:
            raise OSError(errno.ENOSPC, "not enough disk space to start an attempt", str(root))

    def _kept_steps(self, known: CellState) -> int:
        """The step from which a cell resumes; settles its checkpoints on the first call."""
        if known.cell not in self._kept:
            with self._contained([known.cell]):
                readiness = launch.ready_cell(self.opened, known.cell)
                self.record(*readiness.events)
                self._kept[known.cell] = readiness.kept_agent_steps
        return self._kept.get(known.cell, 0)

    def _start_job(self, job: PlannedAttempt) -> bool:
        """Starts one attempt; False if the disk already proves some of the job, which is then planned again."""
        if any(cell in self._quarantine for cell in job.cells):
            return False
        if job.work == "train" and any(self.state.trained(self.state.cells[cell]) for cell in job.cells):
            return False
        others = intruders(self.opened, job.cells) if job.work == "train" else []
        if others:
            self.record(*others)
            return False
        if job.work == "evaluate":
            proven = launch.ready_evaluations(self.opened, job)
            if proven:
                self.record(*proven)
                return False
        name = launch.next_attempt_name(self.state, self.opened.folder)
        folder, event = launch.prepare(self.opened, job, name, self.options.stop_grace_seconds)
        try:
            self.record(event)
        except OSError:
            folder.order.unlink()
            raise
        self.watched[name] = self._watch(self.state.attempts[name])
        self.backend.start(folder)
        return True
