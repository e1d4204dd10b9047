"""What a study spent: time on the machine as useful, wasted and idle; in whole milliseconds, so that sums are exact.

Time is what the monotonic clock of each boot measured: a set clock or a suspended machine is shown and never billed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dreamproof.base.text import count_text, duration_text, money_text
from dreamproof.settings.running import Money
from dreamproof.settings.study import Study
from dreamproof.study.ledger.cells import AttemptState, CellState, ClockJump, SupervisorSpan
from dreamproof.study.ledger.clock import SUSPENDED, Moment, machine_seconds
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.ledger.status import SAVE_REMEDY, NotSavedCells, not_saved_cells
from dreamproof.study.ledger.totals import Totals
from dreamproof.study.plan.gap import Gap, find_gap
from dreamproof.study.plan.packs import count_jobs

LOST_CHECKPOINT = "checkpoint_lost"
RESTARTED = "restarted"
UNFINISHED = "unknown"
ABORTED = "aborted"
WITHOUT_EVALUATIONS = "without evaluations, none of which was measured yet"


@dataclass(slots=True)
class CellMoney:
    """Milliseconds of one cell; a pack's are shared by its cells."""

    useful_ms: int = 0
    wasted_ms: int = 0
    running_ms: int = 0
    """Part of the useful ones that no checkpoint covers yet, because the attempt still runs."""

    @property
    def seconds(self) -> float:
        return (self.useful_ms + self.wasted_ms) / 1000


@dataclass(frozen=True)
class Forecast:
    """The remaining time and money; None if no speed is known."""

    busy_seconds: float | None
    billed_seconds: float | None
    """Of all slots: on this machine those that stand idle are paid for too."""
    wall_seconds: float | None
    money: float | None
    cells: int
    eval_cells: int
    without_evaluations: bool = False
    """No evaluation was measured yet: time and money are those of training alone."""


@dataclass
class StudyMoney:
    """useful + wasted + idle = total; cells and causes are other cuts through the same time."""

    study: Study
    useful_ms: int = 0
    wasted_ms: int = 0
    idle_ms: int = 0
    running_ms: int = 0
    queue_seconds: float = 0.0
    """Time that attempts waited in a scheduler's queue; not paid for, not part of the total."""
    imported: dict[str, CellMoney] = field(default_factory=dict)
    """Runs made outside the study, by cell; not part of the total."""
    imported_wasted_by_cause: dict[str, int] = field(default_factory=dict)
    clock_jumps: list[ClockJump] = field(default_factory=list)
    """Suspensions and set clocks on record; not part of the total."""
    cells: dict[str, CellMoney] = field(default_factory=dict)
    wasted_by_cause: dict[str, int] = field(default_factory=dict)
    forecast: Forecast = field(default_factory=lambda: Forecast(None, None, None, None, 0, 0))
    proven_cells: int = 0
    proven_eval_cells: int = 0
    not_saved: NotSavedCells = field(default_factory=NotSavedCells)

    @property
    def imported_ms(self) -> int:
        return sum(part.useful_ms + part.wasted_ms for part in self.imported.values())

    @property
    def total_ms(self) -> int:
        return self.useful_ms + self.wasted_ms + self.idle_ms

    def money(self, milliseconds: float) -> float:
        """The price of time of one attempt's share of the machine."""
        return milliseconds * money_per_ms(self.study.money)

    @property
    def total_money(self) -> float:
        return self.money(self.total_ms)


def money_per_ms(money: Money) -> float:
    """Price of a millisecond of one attempt."""
    return money.price_per_gpu_hour * money.gpus_per_attempt / 3_600_000


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def share(milliseconds: int, count: int) -> list[int]:
    """Whole parts of a time that differ by at most one and add up to it exactly."""
    whole, rest = divmod(milliseconds, max(1, count))
    return [whole + (place < rest) for place in range(count)]


@dataclass(slots=True)
class _Segment:
    """Training that a checkpoint covered when its attempt ended."""

    start: int
    end: int
    ms: int


class _Counter:
    """Walks through the attempts of a study in order."""

    def __init__(self, state: StudyState, study: Study, now: Moment) -> None:
        self.state, self.now = state, now
        self.spending = StudyMoney(study)
        self._segments: dict[str, list[_Segment]] = {}

    def attempt(self, attempt: AttemptState) -> int:
        """Takes one attempt in; returns its milliseconds."""
        wall = attempt.wall_seconds
        whole = _ms(wall if wall is not None else open_seconds(self.state, attempt, self.now))
        texts = attempt.cells
        take = self._running if attempt.open else self._trained if attempt.work == "train" else self._evaluated
        for text, part in zip(texts, [whole] if len(texts) == 1 else share(whole, len(texts)), strict=True):
            cell = self.spending.cells.get(text)
            if cell is None:
                cell = self.spending.cells[text] = CellMoney()
            take(attempt, text, part, cell)
        return whole if texts else 0

    def add_up(self) -> None:
        """The sums over all cells."""
        parts = self.spending.cells.values()
        self.spending.useful_ms = sum([part.useful_ms for part in parts])
        self.spending.wasted_ms = sum([part.wasted_ms for part in parts])
        self.spending.running_ms = sum([part.running_ms for part in parts])

    def _waste(self, cell: CellMoney, ms: int, cause: str) -> None:
        if ms:
            cell.wasted_ms += ms
            self.spending.wasted_by_cause[cause] = self.spending.wasted_by_cause.get(cause, 0) + ms

    def _running(self, attempt: AttemptState, text: str, ms: int, cell: CellMoney) -> None:
        if attempt.work == "train":
            self._fall_back(attempt, text, cell)
        cell.useful_ms += ms
        cell.running_ms += ms

    def _trained(self, attempt: AttemptState, text: str, ms: int, cell: CellMoney) -> None:
        """Time up to the last checkpoint is useful; the rest must be repeated."""
        first = attempt.first_agent_steps(text)
        if text in self._segments:
            self._fall_back(attempt, text, cell)
        kept = max(first, attempt.kept_agent_steps.get(text, first))
        if text in attempt.restarted and kept < self.spending.study.needed_agent_steps:
            self._waste(cell, ms, attempt.cause_for(text))  # what it saved will not be continued from either
            return
        reached = max(kept, attempt.reached_agent_steps.get(text, kept))
        useful = self._kept_ms(attempt, text, ms, (first, kept, reached))
        cell.useful_ms += useful
        self._waste(cell, ms - useful, attempt.cause_for(text))
        if kept > first:
            self._segments.setdefault(text, []).append(_Segment(first, kept, useful))

    def _kept_ms(self, attempt: AttemptState, text: str, ms: int, steps: tuple[int, int, int]) -> int:
        """Time until the last checkpoint was written; by its share of the steps where that time is not on record."""
        first, kept, reached = steps
        if kept <= first:
            return 0
        if kept >= self.spending.study.needed_agent_steps:
            return ms
        seconds = attempt.kept_wall_seconds.get(text)
        if seconds is not None and attempt.wall_seconds:
            return min(ms, int(ms * seconds / attempt.wall_seconds))
        return ms * (kept - first) // (reached - first)

    def _fall_back(self, attempt: AttemptState, text: str, cell: CellMoney) -> None:
        """Turns time into waste whose checkpoint is lost or was not used: the cell begins again before it."""
        start, segments = attempt.first_agent_steps(text), self._segments.get(text, [])
        cause = RESTARTED if text in attempt.restarted else LOST_CHECKPOINT
        while segments and segments[-1].end > start:
            last = segments[-1]
            lost = last.ms * (last.end - max(start, last.start)) // (last.end - last.start)
            cell.useful_ms -= lost
            self._waste(cell, lost, cause)
            if last.start >= start:
                segments.pop()
            else:
                last.end, last.ms = start, last.ms - lost

    def _evaluated(self, attempt: AttemptState, text: str, ms: int, cell: CellMoney) -> None:
        """The part of the conditions that this attempt proved."""
        count = len(attempt.conditions)
        useful = ms * self.state.proven_by(attempt, text) // count if count else 0
        cell.useful_ms += useful
        self._waste(cell, ms - useful, attempt.cause or UNFINISHED)

    def give_up(self, cell: CellState) -> None:
        """A cell that was stopped for good has bought nothing so far."""
        known = self.spending.cells.get(str(cell.cell))
        if known is not None and cell.proof is None:
            lost = known.useful_ms - known.running_ms
            known.useful_ms -= lost
            self._waste(known, lost, cell.stopped_cause or UNFINISHED)


def open_seconds(state: StudyState, attempt: AttemptState, now: Moment) -> float:
    """How long an open attempt has had its place; none while it waits in a queue."""
    assert state.study is not None
    if state.study.backend.runs_here:
        start, end = state.attempt_span(attempt, now)
        return end - start
    return machine_seconds(attempt.placed_at, now) if attempt.placed_at is not None else 0.0


def _queue_seconds(state: StudyState, study: Study, now: Moment) -> float:
    """Time in the queue, by the scheduler's clock where it is known."""
    if study.backend.runs_here:
        return 0.0
    waiting = [machine_seconds(one.began, now) for one in state.open_attempts.values() if one.placed is None]
    return sum(waiting) + sum([one.queue_seconds for one in state.attempts.values()])


def count_money(
    state: StudyState, now: Moment, supervisor_alive: bool = False, probed_rates: Mapping[str, float] | None = None
) -> StudyMoney:
    """Counts a study up to `now`; `probed_rates` are agent steps per second by arm, from the preflight."""
    assert state.study is not None
    counter = _Counter(state, state.study, now)
    busy = sum([counter.attempt(attempt) for attempt in state.attempts.values()])
    spending = counter.spending
    _count_imported(state, spending)
    spending.queue_seconds = _queue_seconds(state, state.study, now)
    spending.clock_jumps = list(state.clock_jumps)
    for cell in state.cells.values():
        if cell.stopped is not None:
            counter.give_up(cell)
    counter.add_up()
    if state.study.backend.runs_here:
        spending.idle_ms = max(0, _slot_ms(state, now, supervisor_alive) - busy)
    spending.proven_cells = sum(state.trained(cell) for cell in state.cells.values())
    spending.proven_eval_cells = sum(state.evaluated(one) for one in state.eval_cells.values())
    spending.not_saved = not_saved_cells(state)
    spending.forecast = _forecast(state, known_rates(state), probed_rates or {})
    return spending


def spent_and_forecast(
    state: StudyState, now: Moment, supervisor_alive: bool = False, probed_rates: Mapping[str, float] | None = None
) -> tuple[float, Forecast]:
    """Money spent up to `now` and the forecast, from running totals: without the details of `count_money`."""
    assert state.study is not None
    opened = state.open_attempts.values()
    total_ms = state.totals.busy_ms + sum(_ms(open_seconds(state, attempt, now)) for attempt in opened)
    if state.study.backend.runs_here:
        total_ms = max(total_ms, state.totals.slot_ms(_spans(state, opened, now, supervisor_alive)))
    return total_ms * money_per_ms(state.study.money), _forecast(state, known_rates(state), probed_rates or {})


def forecast_seeds(state: StudyState, count: int, probed_rates: Mapping[str, float] | None = None) -> Forecast:
    """What so many further seeds take, trained and evaluated in all arms as `run --until-decided` does."""
    assert state.study is not None
    first = max(state.study.seeds) + 1
    ahead = StudyState(totals=state.totals)
    ahead.redeclare(state.study.model_copy(update={"seeds": list(range(first, first + count))}))
    return _forecast(ahead, known_rates(state), probed_rates or {})


def _count_imported(state: StudyState, spending: StudyMoney) -> None:
    """Time that cells spent outside the study: useful if it proved them or still runs, else wasted by its cause."""
    for known in state.cells.values():
        own = [state.attempts[name] for name in known.attempts]
        inside = sum([(one.wall_seconds or 0.0) / len(one.cells) for one in own if one.ended is not None])
        used = known.wall_seconds - inside
        part = CellMoney()
        if used > 0.001 and (state.trained(known) or known.foreign is not None):
            part.useful_ms = _ms(used)
        elif used > 0.001:
            _waste_imported(spending, part, used, known.stopped_cause or known.last_cause or UNFINISHED)
        for run in known.outside:
            if run["aborted"]:
                _waste_imported(spending, part, run["wall_seconds"] or 0.0, run["cause"] or ABORTED)
        if part != CellMoney():
            spending.imported[str(known.cell)] = part


def _waste_imported(spending: StudyMoney, part: CellMoney, seconds: float, cause: str) -> None:
    by_cause = spending.imported_wasted_by_cause
    part.wasted_ms += _ms(seconds)
    by_cause[cause] = by_cause.get(cause, 0) + _ms(seconds)


Span = tuple[tuple[str, int], float, float]
"""Boot and slots, and start and end on the boot's timeline."""


def _slot_ms(state: StudyState, now: Moment, supervisor_alive: bool) -> int:
    """Slots times the time in which a supervisor or an attempt was there: what a rented machine is paid for."""
    return Totals().slot_ms(_spans(state, state.attempts.values(), now, supervisor_alive))


def _spans(state: StudyState, attempts: Iterable[AttemptState], now: Moment, supervisor_alive: bool) -> Iterable[Span]:
    """Spans of these attempts and of all supervisors, each with the slots that were declared when it began."""
    for attempt in attempts:
        yield (attempt.began.boot, attempt.slots), *state.attempt_span(attempt, now)
    for supervisor in state.supervisors:
        end = state.timeline.seconds(supervisor.last_seen)
        if supervisor.ended is None and supervisor_alive and supervisor is state.supervisors[-1]:
            end = _alive_until(state, supervisor, now)
        yield (supervisor.boot, supervisor.slots), state.timeline.seconds(supervisor.began), end


def _alive_until(state: StudyState, supervisor: SupervisorSpan, now: Moment) -> float:
    """Where `now` is on a supervisor's timeline; on another host's, by the time since its last event."""
    if supervisor.boot == now.boot:
        return state.timeline.seconds(now)
    return state.timeline.seconds(supervisor.last_seen) + machine_seconds(supervisor.last_seen, now)


def _forecast(state: StudyState, rates: Mapping[str, float], probed: Mapping[str, float]) -> Forecast:
    """What is missing takes, by the speed of every arm: known, else probed, else that of all arms together."""
    study, gap = state.study, find_gap(state)
    assert study is not None
    counts = (len(gap.train), len(gap.evaluate))
    each_evaluation = state.totals.seconds_per_evaluation()
    if not any(counts):
        return Forecast(0.0, 0.0, 0.0, 0.0, 0, 0)
    busy = 0.0
    for cell in gap.train:
        rate = rates.get(cell.cell.arm) or probed.get(cell.cell.arm) or rates.get("")
        if rate is None:
            return Forecast(None, None, None, None, *counts)
        busy += max(0, study.agent_steps - cell.kept_agent_steps) / rate
    if gap.evaluate and each_evaluation is None and gap.train == []:
        return Forecast(None, None, None, None, *counts)
    busy += len(gap.evaluate) * (each_evaluation or 0.0)
    names = [cell.running for cell in gap.train] + [state.cells[one.cell].eval_running for one in gap.evaluate]
    attempts = len({name for name in names if name is not None}) + count_jobs(state, gap)
    wall = busy / max(1, min(study.backend.max_parallel, attempts))
    billed = wall * study.backend.slots if study.backend.runs_here else busy
    price = billed * 1000 * money_per_ms(study.money)
    return Forecast(busy, billed, wall, price, *counts, without_evaluations(state, gap))


def without_evaluations(state: StudyState, gap: Gap) -> bool:
    """Whether evaluations are missing and none was measured yet."""
    return bool(gap.evaluate) and state.totals.seconds_per_evaluation() is None


def cell_seconds(state: StudyState, arm: str, probed: Mapping[str, float]) -> float | None:
    """How long one cell of an arm takes to train and evaluate; None if no speed is known."""
    assert state.study is not None
    rates = known_rates(state)
    rate = rates.get(arm) or probed.get(arm) or rates.get("")
    if rate is None:
        return None
    each_evaluation = state.totals.seconds_per_evaluation() or 0.0
    return state.study.agent_steps / rate + each_evaluation * len(state.study.conditions)


def known_rates(state: StudyState) -> dict[str, float]:
    """Agent steps per second by arm, and under '' for all, over attempts that got somewhere and runs made outside."""
    steps: dict[str, float] = dict(state.totals.agent_steps)
    seconds = dict(state.totals.training_seconds)
    for cell in state.cells.values():
        made = cell.proof.agent_steps if cell.proof is not None else cell.reached_agent_steps
        if made and not cell.attempts and cell.wall_seconds > 0:
            arm = cell.cell.arm
            steps[arm] = steps.get(arm, 0.0) + made
            seconds[arm] = seconds.get(arm, 0.0) + cell.wall_seconds
    rates = {arm: steps[arm] / seconds[arm] for arm in steps}
    return {**rates, "": sum(steps.values()) / sum(seconds.values())} if steps else {}


def money_lines(spending: StudyMoney) -> list[str]:
    """What the money bought, as text."""
    study = spending.study
    currency = study.money.currency

    def line(label: str, ms: float) -> str:
        percent = f"{ms / spending.total_ms:6.1%}" if spending.total_ms else "     –"
        return f"{label:<24}{duration_text(ms / 1000):>14}{money_text(spending.money(ms), currency):>12}  {percent}"

    cells, evals = len(study.arms) * len(study.seeds), len(study.arms) * len(study.seeds) * len(study.conditions)
    lines = [
        line("total", spending.total_ms),
        line("  useful", spending.useful_ms),
        line("  wasted", spending.wasted_ms),
    ]
    if spending.running_ms:
        lines.insert(2, line("    still running", spending.running_ms))
    lines += [line(f"    {cause}", ms) for cause, ms in sorted(spending.wasted_by_cause.items(), key=_largest_first)]
    if study.backend.runs_here:
        lines.append(line("  idle", spending.idle_ms))
    else:
        lines.append(f"in the queue            {duration_text(spending.queue_seconds):>14}    not paid for")
    bought = f"{spending.proven_cells} of {count_text(cells, 'cell')} trained"
    if evals:
        bought += f", {spending.proven_eval_cells} of {count_text(evals, 'evaluation')} done"
    spent = f"{money_text(spending.total_money, currency)} " if study.money.price_per_gpu_hour else ""
    lines.append(f"{spent}bought: {bought}")
    if spending.proven_cells and spending.total_money:
        each = spending.total_money / spending.proven_cells
        lines.append(f"money per trained cell: {money_text(each, currency)}, including waste and idle time")
    lines += _outside_lines(spending) + _not_saved_lines(spending) + _jump_lines(spending.clock_jumps)
    lines.append(_forecast_line(spending))
    if study.money.budget is not None:
        left = study.money.budget - spending.total_money
        lines.append(f"budget {money_text(study.money.budget, currency)}, {money_text(left, currency)} left")
    return lines


def _largest_first(pair: tuple[str, int]) -> int:
    return -pair[1]


def _outside_lines(spending: StudyMoney) -> list[str]:
    """Runs made outside the study: their time, their price, what of it is wasted, and the sum with the study's own."""
    if not spending.imported_ms:
        return []
    currency = spending.study.money.currency

    def priced(ms: float) -> str:
        return f"{duration_text(ms / 1000)}, {money_text(spending.money(ms), currency)}"

    wasted = [f"{cause} {priced(ms)}" for cause, ms in sorted(spending.imported_wasted_by_cause.items()) if ms]
    parts = f"; wasted of it: {'; '.join(wasted)}" if wasted else ""
    together = money_text(spending.money(spending.total_ms + spending.imported_ms), currency)
    return [
        f"runs made outside the study: {priced(spending.imported_ms)} at this price, not part of the total{parts}",
        f"together with them: {together}",
    ]


def _not_saved_lines(spending: StudyMoney) -> list[str]:
    """What was trained to its end and is on no disk, inside or outside the study."""
    lost = spending.not_saved
    if not lost.reasons:
        return []
    worth = money_text(spending.money(lost.wall_seconds * 1000), spending.study.money.currency)
    cells = count_text(len(lost.reasons), "cell")
    return [f"trained to the end and not saved: {cells}, {duration_text(lost.wall_seconds)}, {worth}; {SAVE_REMEDY}"]


def _jump_lines(jumps: list[ClockJump]) -> list[str]:
    """Time on the wall clock that is not paid for."""
    suspended = [jump.seconds for jump in jumps if jump.kind == SUSPENDED]
    forward = [jump.seconds for jump in jumps if jump.kind != SUSPENDED and jump.seconds > 0]
    back = [-jump.seconds for jump in jumps if jump.kind != SUSPENDED and jump.seconds < 0]
    jumps_by_kind = (("the machine was suspended", suspended), ("the clock was set forward", forward))
    return [
        f"{what} {count_text(len(found), 'time')}, {duration_text(sum(found))} in all: not billed"
        for what, found in (*jumps_by_kind, ("the clock was set back", back))
        if found
    ]


def _forecast_line(spending: StudyMoney) -> str:
    forecast = spending.forecast
    if not forecast.cells and not forecast.eval_cells:
        return "nothing is left to do"
    left = f"{count_text(forecast.cells, 'cell')} and {count_text(forecast.eval_cells, 'evaluation')} left"
    if forecast.wall_seconds is None:
        return f"{left}: duration unknown until something has run"
    money = money_text(forecast.money, spending.study.money.currency)
    alone = f", {WITHOUT_EVALUATIONS}" if forecast.without_evaluations else ""
    return f"{left}: about {duration_text(forecast.wall_seconds)}, {money}{alone}"
