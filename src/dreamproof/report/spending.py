"""Hours and money: useful, wasted and idle parts, and the price of completing and deciding."""

from dataclasses import dataclass, field

from dreamproof.report.data import StudyEvidence
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.clock import SUSPENDED
from dreamproof.study.ledger.status import NOT_SAVED
from dreamproof.study.money.budget import money_reserve
from dreamproof.study.money.spending import Forecast, count_money, forecast_seeds
from dreamproof.study.preflight.measured import read_measured


@dataclass
class Use:
    """GPU-seconds of one cell or cause."""

    useful_seconds: float = 0.0
    wasted_seconds: float = 0.0


@dataclass
class Spending:
    """All in GPU-seconds and the declared currency; None if unknown."""

    price_per_hour: float = 0.0
    currency: str | None = None
    budget: float | None = None
    kept_back: float = 0.0
    """Money of the budget that a run keeps back for saving and reports."""
    imported_seconds: float = 0.0
    """Of runs made outside the study that its ledger knows; they are not paid out of its budget."""
    useful_seconds: float = 0.0
    wasted_seconds: float = 0.0
    idle_seconds: float = 0.0
    suspended_seconds: float = 0.0
    """Time in which the machine was suspended while the study was open; not billed."""
    clock_changes: list[float] = field(default_factory=list)
    """Seconds by which the clock was changed, negative for backwards; not billed."""
    by_cell: dict[Cell, Use] = field(default_factory=dict)
    by_cause: dict[str, float] = field(default_factory=dict)
    paid: float | None = None
    seconds_per_cell: float | None = None
    seconds_per_eval: float | None = None
    missing_cells: int = 0
    missing_evals: int = 0
    conditions: int = 0
    attempts: int = 0
    forecast: Forecast | None = None
    """Of everything declared and not proven, by the study's own ledger; None without one, or if nothing is missing."""
    not_saved_cells: int = 0
    """Cells that were trained to their end and not saved, and the hours that they took."""
    not_saved_seconds: float = 0.0

    def money(self, seconds: float) -> float:
        """The price of these GPU-seconds."""
        return seconds / 3600 * self.price_per_hour

    @property
    def recorded_seconds(self) -> float:
        return self.useful_seconds + self.wasted_seconds + self.idle_seconds

    @property
    def spent(self) -> float:
        """Money of all recorded seconds."""
        return self.money(self.recorded_seconds)

    @property
    def unaccounted(self) -> float | None:
        """Money on the bill that no record explains."""
        return None if self.paid is None else max(0.0, self.paid - self.spent)

    @property
    def money_left(self) -> float | None:
        """Of the budget, for further work: without runs made outside, and without what a run keeps back."""
        if self.budget is None:
            return None
        spent = self.spent - self.money(self.imported_seconds)
        return max(0.0, self.budget - max(spent, self.paid or 0.0) - self.kept_back)

    @property
    def price_per_cell(self) -> float | None:
        """One more train cell with all its conditions."""
        seconds = self.seconds_per_fresh_cell
        return None if seconds is None else self.money(seconds)

    @property
    def seconds_per_fresh_cell(self) -> float | None:
        """GPU-seconds of work on one more train cell with all its conditions."""
        if self.seconds_per_cell is None:
            return None
        return self.seconds_per_cell + self.conditions * (self.seconds_per_eval or 0.0)

    @property
    def completion_seconds(self) -> float | None:
        """GPU-seconds that closing the gap is billed with; the study's own forecast if it has one."""
        if self.forecast is not None and self.forecast.billed_seconds is not None:
            return self.forecast.billed_seconds
        if self.missing_cells and self.seconds_per_cell is None:
            return None
        return self.missing_cells * (self.seconds_per_cell or 0.0) + self.missing_evals * (self.seconds_per_eval or 0.0)


def seconds_of_seeds(evidence: StudyEvidence, spending: Spending, count: int) -> float | None:
    """GPU-seconds that so many further seeds in all arms are billed with; None if unknown."""
    if evidence.state is not None:
        forecast = forecast_seeds(evidence.state, count, read_measured(evidence.folder.preflight).rates)
        if forecast.billed_seconds is not None:
            return forecast.billed_seconds
    each = spending.seconds_per_fresh_cell
    return None if each is None else each * count * len(evidence.arms)


def count_spending(evidence: StudyEvidence) -> Spending:
    """Counts what the attempts and imported runs used, and prices what is missing."""
    money = evidence.study.money
    spending = Spending(
        price_per_hour=money.price_per_gpu_hour * money.gpus_per_attempt,
        currency=money.currency,
        budget=money.budget,
        kept_back=money_reserve(evidence.study).money,
        missing_cells=sum(not facts.trained for facts in evidence.cells.values()),
        missing_evals=sum(not facts.evaluated for facts in evidence.evals.values()),
        conditions=len(evidence.study.conditions),
        attempts=len(evidence.attempts),
    )
    if evidence.bill:
        spending.paid = sum(line.amount for line in evidence.bill)
    _count_attempts(evidence, spending)
    _count_imported(evidence, spending)
    whole = [facts for facts in evidence.cells.values() if facts.trained or facts.state == NOT_SAVED]
    trained = [facts.wall_seconds for facts in whole if facts.wall_seconds]
    lost = [facts for facts in whole if facts.state == NOT_SAVED]
    spending.not_saved_cells, spending.not_saved_seconds = len(lost), sum(facts.wall_seconds or 0.0 for facts in lost)
    spending.seconds_per_cell = sum(trained) / len(trained) if trained else None
    if evidence.state is not None:
        spending.seconds_per_eval = evidence.state.totals.seconds_per_evaluation()
    return spending


def _count_attempts(evidence: StudyEvidence, spending: Spending) -> None:
    """Copies the study's own totals up to its last event."""
    state = evidence.state
    if state is None or state.study is None or state.last_moment is None:
        return
    costs = count_money(state, state.last_moment, probed_rates=read_measured(evidence.folder.preflight).rates)
    spending.imported_seconds = costs.imported_ms / 1000
    spending.useful_seconds, spending.wasted_seconds = costs.useful_ms / 1000, costs.wasted_ms / 1000
    spending.idle_seconds = costs.idle_ms / 1000
    jumps = costs.clock_jumps
    spending.suspended_seconds = sum(jump.seconds for jump in jumps if jump.kind == SUSPENDED)
    spending.clock_changes = [jump.seconds for jump in jumps if jump.kind != SUSPENDED]
    spending.by_cause = {cause: ms / 1000 for cause, ms in costs.wasted_by_cause.items()}
    for text, cost in costs.cells.items():
        spending.by_cell[Cell.parse(text)] = Use(cost.useful_ms / 1000, cost.wasted_ms / 1000)
    if spending.missing_cells or spending.missing_evals:
        spending.forecast = costs.forecast
    for text, part in costs.imported.items():
        use = spending.by_cell.setdefault(Cell.parse(text), Use())
        use.useful_seconds += part.useful_ms / 1000
        use.wasted_seconds += part.wasted_ms / 1000
        spending.useful_seconds += part.useful_ms / 1000
        spending.wasted_seconds += part.wasted_ms / 1000
    for cause, ms in costs.imported_wasted_by_cause.items():
        spending.by_cause[cause] = spending.by_cause.get(cause, 0.0) + ms / 1000


def _count_imported(evidence: StudyEvidence, spending: Spending) -> None:
    """Runs that only a table reports; the ledger's own are counted already."""
    for cell, facts in evidence.cells.items():
        if not facts.imported or facts.attempts or not facts.wall_seconds or cell in spending.by_cell:
            continue
        use = spending.by_cell.setdefault(cell, Use())
        if facts.state in ("proven", "reported", "running"):
            use.useful_seconds += facts.wall_seconds
            spending.useful_seconds += facts.wall_seconds
        else:
            cause = facts.cause or "unknown"
            use.wasted_seconds += facts.wall_seconds
            spending.wasted_seconds += facts.wall_seconds
            spending.by_cause[cause] = spending.by_cause.get(cause, 0.0) + facts.wall_seconds
