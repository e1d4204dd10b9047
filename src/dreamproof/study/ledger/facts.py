"""The facts of a study from its ledger, and questions about them. `state.py` fills them from events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from dreamproof.runs.layout import Cell
from dreamproof.settings.study import Study
from dreamproof.study.ledger.cells import AttemptState, CellState, ClockJump, EvalState, SupervisorSpan
from dreamproof.study.ledger.clock import Moment, Timeline
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.totals import Totals

EvalCell = tuple[Cell, str]
MAX_DOUBLINGS = 6
MAX_DOUBLINGS_OF_STUDY = 3


@dataclass
class StudyFacts:
    """Everything the ledger holds, for the declared matrix and all earlier attempts; the questions it answers."""

    study: Study | None = None
    declaration_hash: str | None = None
    understood_hash: str | None = None
    """Of the recorded declaration as this version reads it: a setting that is new since changes nothing."""
    study_file: str | None = None
    cells: dict[Cell, CellState] = field(default_factory=dict)
    eval_cells: dict[EvalCell, EvalState] = field(default_factory=dict)
    attempts: dict[str, AttemptState] = field(default_factory=dict)
    open_attempts: dict[str, AttemptState] = field(default_factory=dict)
    supervisors: list[SupervisorSpan] = field(default_factory=list)
    preflight_fingerprint: str | None = None
    preflight_failure: str | None = None
    totals: Totals = field(default_factory=Totals)
    quick_failures: int = 0
    breaker: str | None = None
    budget_reached: float | None = None
    budget_warned: float | None = None
    """The budget of which most was spent when that was recorded last."""
    notify_failures: list[str] = field(default_factory=list)
    """Messages that could not be sent, newest last."""
    remedies: list[Row] = field(default_factory=list)
    resolved: dict[str, Row] = field(default_factory=dict)
    """By arm: its newest settings after defaults, as recorded."""
    codes: dict[str, Row] = field(default_factory=dict)
    """By hash: every code that was recorded, oldest first."""
    code: str | None = None
    """Hash of the code that was recorded last."""
    accepted: list[Row] = field(default_factory=list)
    """Accepted changes of settings or code."""
    reports: list[str] = field(default_factory=list)
    report_failures: list[str] = field(default_factory=list)
    """What the last reports lack, and why."""
    imported_values: dict[str, int] = field(default_factory=dict)
    """By table: how many of its results were imported."""
    false_alarms: dict[str, str] = field(default_factory=dict)
    """Attempts that were killed for silence although they were healthy, with the reason to think so."""
    stop_requested: str | None = None
    shutdown: str | None = None
    shortened: list[str] = field(default_factory=list)
    """Where the ledger was found with fewer events than were recorded."""
    shutdown_boot: str | None = None
    """The boot in which the last shutdown command was started, until new work begins."""
    shutdown_done: bool = False
    """Whether a shutdown succeeded after the newest work."""
    shutdown_failed: bool = False
    event_count: int = 0
    first_event: float | None = None
    last_event: float | None = None
    last_moment: Moment | None = None
    timeline: Timeline = field(default_factory=Timeline)
    clock_jumps: list[ClockJump] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    """By cell: file and reason, where a look at the disk found what the ledger does not hold yet."""
    lost_evals: set[tuple[str, str]] = field(default_factory=set)
    """Cell and condition of evaluations whose file is gone, found in the same way."""

    def __post_init__(self) -> None:
        self._known: dict[str, CellState] = {}
        self._known_evals: dict[tuple[str, str], EvalState] = {}

    def attempt_span(self, attempt: AttemptState, now: Moment) -> tuple[float, float]:
        """When an attempt ran, on the line of its boot: as long as it is billed, up to `now` while it is open."""
        start = self.timeline.seconds(attempt.began)
        if attempt.ended_at is None or attempt.wall_seconds is None:
            return start, max(start, self.timeline.reach(attempt.began.boot, now))
        if attempt.ended_at.boot == attempt.began.boot:
            # A start that a torn ledger lost is recorded again later than it was.
            start = min(start, self.timeline.seconds(attempt.ended_at) - attempt.wall_seconds)
        return start, start + attempt.wall_seconds

    def redeclare(self, study: Study) -> None:
        """Lays the matrix of `study` over what is known; nothing known is forgotten."""
        self.study = study
        self.cells, self.eval_cells = {}, {}
        for arm in study.arms:
            for seed in study.seeds:
                cell = Cell(arm, seed)
                text = str(cell)
                self.cells[cell] = self._known.get(text) or self._known.setdefault(text, CellState(cell))
                for condition in study.conditions:
                    key = (text, condition.name)
                    known = self._known_evals.get(key)
                    if known is None:
                        known = self._known_evals[key] = EvalState(cell, condition.name)
                    self.eval_cells[cell, condition.name] = known

    def known_cell(self, text: str) -> CellState:
        """The state of the cell written `arm/seed`, declared or not."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = CellState(Cell.parse(text))
        return known

    def known_eval(self, text: str, condition: str) -> EvalState:
        """The state of an eval cell, declared or not."""
        known = self._known_evals.get((text, condition))
        if known is None:
            known = self._known_evals[text, condition] = EvalState(self.known_cell(text).cell, condition)
        return known

    def known_cells(self) -> dict[str, CellState]:
        """Every cell ever seen, declared or not, by its text."""
        return self._known

    def known_evals(self) -> dict[tuple[str, str], EvalState]:
        """Every eval cell ever seen, declared or not, by cell text and condition."""
        return self._known_evals

    def quarantine(self, cell: CellState) -> str | None:
        """The file of a cell that cannot be read or is gone, and why; None if there is none."""
        return cell.quarantined or (self.unreadable.get(str(cell.cell)) if self.unreadable else None)

    def trained(self, cell: CellState) -> bool:
        """Whether the cell's proof covers the declared steps, less the declared tolerance, and can be read."""
        needed = self.study.needed_agent_steps if self.study is not None else 0
        covered = cell.proof is not None and cell.proof.agent_steps >= needed
        return covered and self.quarantine(cell) is None

    def evaluated(self, eval_cell: EvalState) -> bool:
        """Whether the eval cell's proof covers the declared episodes on the proven checkpoint."""
        text = str(eval_cell.cell)
        cell = self._known[text]
        if eval_cell.proof is None or cell.proof is None or not self.trained(cell):
            return False
        if self.lost_evals and (text, eval_cell.condition) in self.lost_evals:
            return False
        enough = self.study is None or eval_cell.proof.episodes >= self.study.evaluation_episodes
        return enough and eval_cell.proof.parameter_hash == cell.proof.parameter_hash

    @property
    def supervisor(self) -> SupervisorSpan | None:
        """The newest supervisor on record; the lease shows whether it is alive."""
        return self.supervisors[-1] if self.supervisors else None

    @property
    def false_alarm_factor(self) -> float:
        """How many times longer the limits of the whole study are because of false alarms."""
        return float(2 ** min(len(self.false_alarms), MAX_DOUBLINGS_OF_STUDY))

    def stall_factor(self, attempt: AttemptState) -> float:
        """How many times longer the limits of an attempt are: doubled by every earlier kill and false alarm."""
        stalls = max((self.known_cell(text).stalls.get(attempt.work, 0) for text in attempt.cells), default=0)
        return self.false_alarm_factor * float(2 ** min(stalls, MAX_DOUBLINGS))

    def killed_before(self, attempt: AttemptState, text: str) -> AttemptState | None:
        """The attempt before this one at the same cell, if it was killed for silence."""
        name = self.known_cell(text).killed_for_silence.get(attempt.work)
        return self.attempts.get(name) if name is not None and name != attempt.name else None

    def proven_by(self, attempt: AttemptState, text: str) -> int:
        """Conditions of a cell that this attempt proved."""
        known = [self.known_eval(text, condition) for condition in attempt.conditions]
        return sum(one.proof is not None and attempt.name in one.attempts[-1:] for one in known)
