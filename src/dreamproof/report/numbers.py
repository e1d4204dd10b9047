"""Every number a report may print: its key, its text, and the cells it came from."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dreamproof.report.analysis import Analysis
from dreamproof.report.data import FINAL, Group, TrainFacts
from dreamproof.report.limits import Constrained
from dreamproof.report.rounding import round_by, same_side, uncertain_decimals
from dreamproof.report.shifts import shifted_conditions
from dreamproof.report.tasks import over_tasks, task_metrics, task_tables
from dreamproof.report.validation import PARTS, fallen_cells, validation_part
from dreamproof.stats.describe import Interval

OPEN, CLOSE = "\ue000", "\ue001"
TOKEN = re.compile(f"{OPEN}([0-9]{{1,9}}){CLOSE}")
DASH = "–"
SMALLEST, MAX_DECIMALS = 1e-9, 9
KEY_PARTS = (  # an end of a named interval, an end of the interval that a key has by itself, any other number
    re.compile(r"(.+)\.((?:t|bootstrap|improvement|paired)_(?:low|high))"),
    re.compile(r"(.+)_(low|high)"),
    re.compile(r"(.*)\.(.*)"),
)


@dataclass(frozen=True)
class Number:
    """A value with its text and the eval cells (arm/seed@condition) or train cells (arm/seed) behind it."""

    key: str
    value: float | None
    text: str
    cells: tuple[str, ...]
    uncertainty: float | None = None
    beside: tuple[float, ...] = ()
    """What the value is compared with: its text shows on which side of it the value lies."""

    @property
    def is_one_seed(self) -> bool:
        """Whether the key itself names the only cell, as the key of one seed's value does."""
        return self.key.rpartition(".")[2].startswith("seed") and self.key[-1].isdigit() and len(self.cells) == 1

    @property
    def place_and_name(self) -> tuple[str, str]:
        """The key in two parts: whose number it is, and which. A condition's name may have a dot in it."""
        found = (pattern.fullmatch(self.key) for pattern in KEY_PARTS)
        return next(((parts[1], parts[2]) for parts in found if parts), ("", self.key))


@dataclass
class Numbers:
    """The register of one report; `token` gives a placeholder that a renderer replaces by text and evidence."""

    by_key: dict[str, Number] = field(default_factory=dict)
    order: list[Number] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    by_uncertainty: bool = False

    @property
    def rounded(self) -> "Numbers":
        """The same register, whose numbers are printed with the digits that their uncertainty allows."""
        return replace(self, by_uncertainty=True)

    def put(
        self,
        key: str,
        value: float | None,
        text: str,
        cells: Iterable[str],
        uncertainty: float | None = None,
        beside: tuple[float, ...] = (),
    ) -> str:
        """Registers a number once and returns its token."""
        if key not in self.places:
            number = Number(key, value, text, tuple(cells), uncertainty, beside)
            self.places[key] = len(self.order)
            self.order.append(number)
            self.by_key[key] = number
        return self.token(key)

    def token(self, key: str) -> str:
        """The placeholder of a registered number; a dash if it is not registered."""
        place = self.places.get(key)
        return DASH if place is None else f"{OPEN}{place}{CLOSE}"

    def at(self, place: str) -> Number:
        """The number behind a placeholder; a dash for an unknown one."""
        if int(place) >= len(self.order):
            return Number("", None, DASH, ())
        number = self.order[int(place)]
        if not self.by_uncertainty or number.uncertainty is None:
            return number
        return replace(number, text=round_by(number.text, number.value, number.uncertainty, number.beside))


def plain(text: str, numbers: Numbers) -> str:
    """A text with its tokens turned into bare numbers."""
    return TOKEN.sub(lambda found: numbers.at(found[1]).text, text)


def number_text(value: float | None, decimals: int) -> str:
    """A number as text; very large and very small ones in powers of ten; a dash for a missing one."""
    if value is None or not math.isfinite(value):
        return DASH
    if abs(value) >= (1e7 if decimals <= 2 else 1e15) or 0 < abs(value) < SMALLEST:
        return f"{value:.4g}".replace("-", "−")
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def _text_beside(value: float, decimals: int, beside: tuple[float, ...]) -> str:
    """A number with so many decimals, or more where it would be shown on another side of a number `beside` it."""
    texts = (number_text(value, more) for more in range(decimals, MAX_DECIMALS + 1))
    right = (text for text in texts if text == DASH or same_side(float(text.replace("−", "-")), value, beside))
    return next(right, number_text(value, decimals))


def p_text(p: float | None, level: float) -> str:
    """A p value with three decimals, or more to show on which side of a level it lies; tiny ones in powers of ten."""
    if p is None or not math.isfinite(p):
        return DASH
    return f"{p:.1e}" if p < 0.001 else _text_beside(p, 3, (level,))


def share_text(share: float | None) -> str:
    """A share in percent."""
    return DASH if share is None or not math.isfinite(share) else f"{share:.0%}"


def decimals_for(values: Iterable[float]) -> int:
    """Decimals that show about four digits of the largest value."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    largest = max(finite, default=1.0)
    if SMALLEST < largest < 0.1:
        return 3 - math.floor(math.log10(largest))
    return 3 if largest < 10 else 2 if largest < 10_000 else 0


def group_key(analysis: Analysis, group: Group) -> str:
    """arm.condition for the primary metric's final value, arm.condition.metric@checkpoint for others."""
    primary = group.metric == analysis.evidence.study.metric.name
    if primary and group.checkpoint == FINAL:
        return f"{group.arm}.{group.condition}"
    mark = "" if group.checkpoint == FINAL else f"@{group.checkpoint}"
    return f"{group.arm}.{group.condition}.{group.metric}{mark}"


def metric_decimals(analysis: Analysis) -> dict[str, int]:
    """Decimals of every metric, the same in all tables; more than its size asks for if seeds differ by less."""
    values: dict[str, list[float]] = {}
    spreads: dict[str, list[float]] = {}
    for group, summary in analysis.summaries.items():
        values.setdefault(group.metric, []).extend([summary.minimum, summary.maximum])
        spreads.setdefault(group.metric, []).append(summary.sd or 0.0)
    for group, known in analysis.evidence.means.items():
        values.setdefault(group.metric, []).append(known.mean)
    return {
        metric: max(decimals_for(found), _spread_decimals(spreads.get(metric, []))) for metric, found in values.items()
    }


def _spread_decimals(spreads: list[float]) -> int:
    """Decimals that show the largest sd; 0 without one."""
    largest = max((sd for sd in spreads if math.isfinite(sd)), default=0.0)
    return uncertain_decimals(largest) if largest > SMALLEST else 0


def register(analysis: Analysis) -> Numbers:
    """Registers every number that a document may contain."""
    numbers = Numbers()
    decimals = metric_decimals(analysis)
    for group in sorted({*analysis.summaries, *analysis.evidence.means}):
        _register_group(numbers, analysis, group, decimals[group.metric])
    for group in analysis.comparisons:
        _register_comparison(numbers, analysis, group, decimals[group.metric])
    for group, tail in analysis.tails.items():
        key, cells = f"main.{group_key(analysis, group)}", analysis.cells_of(group)
        numbers.put(f"{key}.zero_share", tail.zero_share, share_text(tail.zero_share), cells)
        sd = analysis.summaries[group].sd if group in analysis.summaries else None
        numbers.put(f"{key}.cvar90", tail.cvar90, number_text(tail.cvar90, decimals[group.metric]), cells, sd)
    for arm, plan in analysis.plans.items():
        if plan is not None:
            _register_plan(numbers, analysis, arm)
    _register_stopped(numbers, analysis, decimals)
    _register_limits(numbers, analysis, decimals)
    _register_shifted(numbers, analysis, decimals)
    _register_over_tasks(numbers, analysis, decimals)
    _register_validation(numbers, analysis)
    _register_coverage(numbers, analysis)
    return numbers


def _register_group(numbers: Numbers, analysis: Analysis, group: Group, decimals: int) -> None:
    key, cells = f"main.{group_key(analysis, group)}", analysis.cells_of(group)
    summary = analysis.summaries.get(group)
    if summary is None:
        known = analysis.evidence.means[group]
        error = _error(known.sd, len(known.seeds))
        numbers.put(f"{key}.mean", known.mean, number_text(known.mean, decimals), cells, error)
        if known.sd is not None:
            numbers.put(f"{key}.sd", known.sd, number_text(known.sd, decimals), cells, error)
        numbers.put(f"{key}.seeds", len(cells), str(len(cells)), cells)
        return
    numbers.put(f"{key}.seeds", summary.seeds, str(summary.seeds), cells)
    error, limit = _error(summary.sd, summary.seeds), analysis.evidence.study.limit_of(group.metric)
    for name in ("mean", "iqm", "median", "sd", "minimum", "maximum"):
        value = getattr(summary, name)
        if value is not None:
            beside = (limit,) if name == "mean" and limit is not None else ()
            numbers.put(f"{key}.{name}", value, _text_beside(value, decimals, beside), cells, error, beside)
    _put_interval(numbers, f"{key}.t", summary.t_interval, decimals, cells)
    _put_interval(numbers, f"{key}.bootstrap", summary.bootstrap_interval, decimals, cells)
    for seed, value in analysis.evidence.values[group].items():
        cell = f"{group.arm}/{seed}@{group.condition}"
        numbers.put(f"{key}.seed{seed}", value, number_text(value, decimals), (cell,), summary.sd)


def _put_interval(
    numbers: Numbers,
    key: str,
    interval: Interval | None,
    decimals: int,
    cells: tuple[str, ...],
    beside: tuple[float, ...] = (),
) -> None:
    if interval is not None and interval.finite and interval.low < interval.high:
        for name, end in (("low", interval.low), ("high", interval.high)):
            numbers.put(f"{key}_{name}", end, _text_beside(end, decimals, beside), cells, _half(interval), beside)


def _excluded(analysis: Analysis, group: Group, interval: Interval | None) -> tuple[float, ...]:
    """What the interval of a difference excludes of 0 and the smallest difference that matters in both directions."""
    metric = analysis.evidence.study.metric
    margin = metric.smallest_difference
    compared = (0.0, -margin, margin) if group.metric == metric.name else (0.0,)
    return tuple(value for value in compared if interval is None or interval.excludes(value))


def _error(sd: float | None, seeds: int) -> float | None:
    """The standard error of a mean: the uncertainty that its digits, and those of the sd beside it, are chosen by."""
    return None if sd is None else sd / math.sqrt(seeds)


def _half(interval: Interval | None) -> float | None:
    """Half the width of an interval: the uncertainty of what lies in its middle."""
    return None if interval is None else (interval.high - interval.low) / 2


def _register_comparison(numbers: Numbers, analysis: Analysis, group: Group, decimals: int) -> None:
    found = analysis.comparisons[group]
    key = f"versus.{group_key(analysis, group)}"
    reference = Group(analysis.evidence.study.reference, group.condition, group.metric, group.checkpoint)
    seeds = analysis.look_seeds(group.arm) if group == analysis.primary(group.arm) else None
    cells = analysis.cells_of(group, seeds) + analysis.cells_of(reference, seeds)
    beside, level = _excluded(analysis, group, found.interval), analysis.look_plan.alpha
    text = _signed(found.difference, decimals, beside)
    numbers.put(f"{key}.difference", found.difference, text, cells, _half(found.interval), beside)
    _put_interval(numbers, key, found.interval, decimals, cells, beside)
    adjusted = analysis.adjusted.get(group)
    for name, p in (
        ("p", found.permutation_p),
        ("holm_p", adjusted),
        ("welch_p", found.welch_p),
        ("smallest_p", found.smallest_p),
    ):
        if p is not None and found.smallest_p < 1:  # p of one seed per arm is 1, whatever was measured
            numbers.put(f"{key}.{name}", p, p_text(p, level), cells)
    if found.improvement_interval is not None:  # one seed per arm gives 0 or 1, which carries no information
        numbers.put(f"{key}.improvement", found.improvement, f"{found.improvement:.2f}", cells)
    _put_interval(numbers, f"{key}.improvement", found.improvement_interval, 2, cells)
    if found.effect_size is not None:
        numbers.put(f"{key}.effect", found.effect_size, number_text(found.effect_size, 2), cells)
    if found.paired is not None:
        beside = _excluded(analysis, group, found.paired.interval)
        text = _signed(found.paired.difference, decimals, beside)
        numbers.put(f"{key}.paired", found.paired.difference, text, cells, _half(found.paired.interval), beside)
        _put_interval(numbers, f"{key}.paired", found.paired.interval, decimals, cells, beside)
        if found.paired.sign_flip_p is not None:
            numbers.put(f"{key}.paired_p", found.paired.sign_flip_p, p_text(found.paired.sign_flip_p, level), cells)


def _signed(value: float, decimals: int, beside: tuple[float, ...]) -> str:
    """A difference with its sign; none if it shows as zero."""
    text = _text_beside(value, decimals, beside)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def _register_plan(numbers: Numbers, analysis: Analysis, arm: str) -> None:
    plan = analysis.plans[arm]
    assert plan is not None
    reference = analysis.primary(analysis.evidence.study.reference)
    cells = analysis.cells_of(analysis.primary(arm)) + analysis.cells_of(reference)
    numbers.put(f"plan.{arm}.sd", plan.sd, number_text(plan.sd, 3), cells)
    numbers.put(f"plan.{arm}.sd_upper", plan.sd_upper, number_text(plan.sd_upper, 3), cells)
    if plan.seeds_per_arm is not None:
        numbers.put(f"plan.{arm}.seeds", plan.seeds_per_arm, f"{plan.seeds_per_arm:,}", cells)
    if plan.seeds_per_arm_at_sd is not None:
        numbers.put(f"plan.{arm}.seeds_at_sd", plan.seeds_per_arm_at_sd, f"{plan.seeds_per_arm_at_sd:,}", cells)


def _register_stopped(numbers: Numbers, analysis: Analysis, decimals: dict[str, int]) -> None:
    """Of verdicts at an early look: the interval at the level of that look, and the corrected difference."""
    metric, reference = analysis.evidence.study.metric.name, analysis.evidence.study.reference
    for arm, verdict in analysis.verdicts.items():
        adjusted = verdict.adjusted_difference
        if adjusted is None:
            continue
        seeds = analysis.look_seeds(arm)
        cells = analysis.cells_of(analysis.primary(arm), seeds) + analysis.cells_of(analysis.primary(reference), seeds)
        text = number_text(adjusted, decimals[metric])
        beside = _excluded(analysis, analysis.primary(arm), verdict.interval)
        numbers.put(f"stopped.{arm}", adjusted, text, cells, _half(verdict.interval))
        _put_interval(numbers, f"stopped.{arm}", verdict.interval, decimals[metric], cells, beside)


def _register_limits(numbers: Numbers, analysis: Analysis, decimals: dict[str, int]) -> None:
    for arm in analysis.evidence.arms:
        for found in [*analysis.limits.get(arm, []), *analysis.elsewhere.get(arm, {}).values()]:
            group = Group(arm, found.condition, found.metric, found.checkpoint)
            _register_bounds(numbers, analysis, group, found, decimals[found.metric])


def _register_bounds(numbers: Numbers, analysis: Analysis, group: Group, found: Constrained, decimals: int) -> None:
    """Both bounds with enough digits to see on which side of the limit they lie."""
    bounds, key = found.verdict.bounds, f"limit.{group_key(analysis, group)}"
    if bounds is None or not bounds.finite or bounds.low >= bounds.high:
        return
    for name, end in (("low", bounds.low), ("high", bounds.high)):
        digits, beside = min((bounds.high - bounds.low) / 2, abs(end - found.limit) or math.inf), (found.limit,)
        text = _text_beside(end, decimals, beside)
        numbers.put(f"{key}_{name}", end, text, analysis.cells_of(group), digits, beside)


def _register_shifted(numbers: Numbers, analysis: Analysis, decimals: dict[str, int]) -> None:
    metric, shifted = analysis.evidence.study.metric.name, shifted_conditions(analysis.evidence)
    for arm, (middle, interval) in analysis.shifted.items():
        cells = tuple(cell for name in shifted for cell in analysis.cells_of(Group(arm, name, metric)))
        numbers.put(f"shifted.{arm}.iqm", middle, number_text(middle, decimals[metric]), cells, _half(interval))
        _put_interval(numbers, f"shifted.{arm}", interval, decimals[metric], cells)
    for arm, summary in analysis.elsewhere_scores.items():
        cells = tuple(c for name in analysis.other_conditions[1] for c in analysis.cells_of(Group(arm, name, metric)))
        for name, value in (("mean", summary.mean), ("sd", summary.sd)):
            if value is not None:
                error = _error(summary.sd, summary.seeds)
                numbers.put(f"other.{arm}.{name}", value, number_text(value, decimals[metric]), cells, error)


def _register_over_tasks(numbers: Numbers, analysis: Analysis, decimals: dict[str, int]) -> None:
    """Mean and IQM of an arm over all its seeds and tasks, by metric; the cells are those of the joined value."""
    for metric in task_metrics(analysis.evidence) if analysis.evidence.study.tasks is not None else ():
        for arm, table in task_tables(analysis, metric).items():
            found, key = over_tasks(table), f"over_tasks.{arm}.{metric}"
            cells = analysis.cells_of(Group(arm, analysis.evidence.primary_condition, metric))
            for name, value in (("mean", found.mean), ("iqm", found.iqm)):
                text = number_text(value, decimals[metric])
                numbers.put(f"{key}.{name}", value, text, cells, _half(found.interval))
            _put_interval(numbers, key, found.interval, decimals[metric], cells)


def _register_validation(numbers: Numbers, analysis: Analysis) -> None:
    fallen = fallen_cells(analysis.evidence)
    seen = [
        validation_part(summary, part)
        for found in analysis.validation.values()
        for summary in found.summaries.values()
        for part in PARTS
    ]
    decimals = decimals_for([*seen, *(fall.best_return for facts in fallen for fall in facts.collapses)])
    for arm, found in analysis.validation.items():
        key, cells = f"validation.{arm}", tuple(map(str, found.summaries))
        numbers.put(f"{key}.seeds", len(cells), str(len(cells)), cells)
        for part, (mean, sd) in found.spreads.items():
            numbers.put(f"{key}.{part}", mean, number_text(mean, decimals), cells, sd)
            if sd is not None:
                numbers.put(f"{key}.{part}_sd", sd, number_text(sd, decimals), cells, sd)
            for cell, summary in found.summaries.items():
                value = validation_part(summary, part)
                numbers.put(f"{key}.{part}.seed{cell.seed}", value, number_text(value, decimals), (str(cell),))
    for facts in fallen:
        _register_falls(numbers, facts, decimals)


def _register_falls(numbers: Numbers, facts: TrainFacts, decimals: int) -> None:
    for count, fall in enumerate(facts.collapses, start=1):
        for name, value in (("to", fall.validation_return), ("from", fall.best_return)):
            key = f"validation.{facts.cell.arm}.fall{count}_{name}.seed{facts.cell.seed}"
            numbers.put(key, value, number_text(value, decimals), (str(facts.cell),))


def _register_coverage(numbers: Numbers, analysis: Analysis) -> None:
    evidence = analysis.evidence
    trained = [str(cell) for cell, facts in evidence.cells.items() if facts.trained]
    evaluated = [f"{cell}@{name}" for (cell, name), facts in evidence.evals.items() if facts.evaluated]
    for key, proven, declared in (
        ("train", trained, len(evidence.cells)),
        ("eval", evaluated, len(evidence.evals)),
    ):
        numbers.put(f"coverage.{key}.proven", len(proven), f"{len(proven):,}", proven)
        numbers.put(f"coverage.{key}.declared", declared, f"{declared:,}", ())
        numbers.put(f"coverage.{key}.missing", declared - len(proven), f"{declared - len(proven):,}", ())
