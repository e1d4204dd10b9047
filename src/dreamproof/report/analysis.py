"""From evidence to statements: summaries, comparisons, verdicts, seeds still needed and their price."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from dreamproof.report.data import Group, StudyEvidence
from dreamproof.report.limits import Constrained, arm_limits, limits_elsewhere, worst
from dreamproof.report.lints import find_lints
from dreamproof.report.lints.lint import BLOCK, LEVELS, WARN, Lint
from dreamproof.report.rounding import digits_apart
from dreamproof.report.shifts import mean_scores, other_conditions, over_shifted_conditions
from dreamproof.report.spending import Spending, count_spending, seconds_of_seeds
from dreamproof.report.validation import ArmValidation, validation_by_arm
from dreamproof.runs.layout import Cell
from dreamproof.stats.compare import Comparison, compare, holm
from dreamproof.stats.describe import Interval, Summary, finite_values, summarise, tail_mean, zero_share
from dreamproof.stats.permutation import fewest_seeds, smallest_possible_p
from dreamproof.stats.sequential import BatchQuestion, LookPlan, NextBatch, make_look_plan, next_batch
from dreamproof.stats.verdict import Kind, Question, SeedsPlan, Verdict, Why, judge, plan_seeds

WAITS_FOR_CELLS = ("incomplete_training", "incomplete_evaluation")
WAITS_FOR_SEEDS = (*WAITS_FOR_CELLS, "one_seed", "never_significant")
"""Lints that forbid a verdict until more is trained and evaluated."""
INCOMPLETE = (Why.NO_VALUES, Why.SEEDS_MISSING, Why.NOT_FINITE)


@dataclass(frozen=True)
class CostTail:
    """Tail statistics of a cost: share of episodes without any, and the mean of the worst tenth."""

    zero_share: float
    cvar90: float
    episodes: int


@dataclass(frozen=True)
class ShownDifference:
    """The difference that a verdict rests on, with its 95 % interval and the p of the exact test."""

    mean: float
    interval: Interval | None
    p: float | None


@dataclass
class Analysis:
    """Everything that the documents state, as numbers."""

    evidence: StudyEvidence
    summaries: dict[Group, Summary] = field(default_factory=dict)
    tails: dict[Group, CostTail] = field(default_factory=dict)
    shifted: dict[str, tuple[float, Interval | None]] = field(default_factory=dict)
    other_conditions: tuple[str, list[str]] = ("unknown", [])
    """Kind and names of the conditions that the one page shows beside the deciding one."""
    elsewhere_scores: dict[str, Summary] = field(default_factory=dict)
    """By arm: the deciding metric's mean over those conditions, seed by seed."""
    validation: dict[str, ArmValidation] = field(default_factory=dict)
    comparisons: dict[Group, Comparison] = field(default_factory=dict)
    adjusted: dict[Group, float | None] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    plans: dict[str, SeedsPlan | None] = field(default_factory=dict)
    limits: dict[str, list[Constrained]] = field(default_factory=dict)
    """Every arm against each limit where it decides, as far as it has values there."""
    elsewhere: dict[str, dict[tuple[str, str], Constrained]] = field(default_factory=dict)
    """The same by limited metric and condition, everywhere else."""
    lints: list[Lint] = field(default_factory=list)
    look_plan: LookPlan = field(default_factory=lambda: make_look_plan(1))
    spending: Spending = field(default_factory=Spending)
    next: NextBatch | None = None

    @property
    def treatments(self) -> list[str]:
        """Arms that are compared with the reference."""
        return self.evidence.study.treatments

    @property
    def arms_on_other_tasks(self) -> list[str]:
        """Arms that nothing is compared with, because they were trained on another task than the reference."""
        return self.evidence.study.arms_on_other_tasks

    def primary(self, arm: str) -> Group:
        """The group that decides for an arm."""
        return Group(arm, self.evidence.primary_condition, self.evidence.study.metric.name)

    @property
    def seeds_planned(self) -> int | None:
        """The largest number of seeds per arm that an undecided comparison needs."""
        plans = {arm: plan for arm, plan in self.plans.items() if plan is not None}
        needed = [plans[arm].seeds_per_arm for arm in self.open_arms if arm in plans]
        known = [seeds for seeds in needed if seeds is not None]
        return max(known) if known and len(known) == len(needed) else None

    @property
    def open_arms(self) -> list[str]:
        """Undecided arms whose means more seeds could compare; not those whose shape forbids it."""
        return [arm for arm in self.verdicts if self.undecided(arm) and self.verdicts[arm].why is not Why.SHAPE]

    @property
    def constrained(self) -> dict[str, Constrained]:
        """Every arm against the limit that speaks most against it; not arms that might keep a limit without a value."""
        needed = len(self.evidence.study.limits)
        against = {arm: (worst(found), len(found)) for arm, found in self.limits.items()}
        return {arm: each for arm, (each, known) in against.items() if known == needed or each.breaks}

    @property
    def winners(self) -> list[str]:
        """Arms that are better and, if there are limits, shown to keep them all."""
        limited = bool(self.evidence.study.limits)
        better = [arm for arm, verdict in self.verdicts.items() if verdict.kind is Kind.BETTER]
        return [arm for arm in better if not limited or (arm in self.constrained and self.constrained[arm].keeps)]

    def undecided(self, arm: str) -> bool:
        return self.verdicts[arm].kind is Kind.CANNOT_DECIDE

    def look_seeds(self, arm: str) -> list[int]:
        """The seeds that the verdict on an arm rests on; all declared ones if it rests on none."""
        seeds, verdict = self.evidence.study.seeds, self.verdicts[arm]
        return seeds if verdict.why in INCOMPLETE else seeds[: verdict.seeds]

    def difference(self, arm: str) -> ShownDifference | None:
        """What the verdict on an arm rests on: seed by seed if the study declares that seeds are paired."""
        found = self.comparisons.get(self.primary(arm))
        if found is None:
            return None
        if self.evidence.study.paired_seeds and found.paired is not None:
            return ShownDifference(found.paired.difference, found.paired.interval, found.paired.sign_flip_p)
        return ShownDifference(found.difference, found.interval, found.permutation_p)

    def cells_of(self, group: Group, among: Collection[int] | None = None) -> tuple[str, ...]:
        """The eval cells behind a group, as arm/seed@condition; only those `among` some seeds."""
        mean = self.evidence.means.get(group)
        seeds = mean.seeds if mean is not None and group not in self.evidence.values else None
        numbers = seeds if seeds is not None else sorted(self.evidence.values.get(group, {}))
        chosen = [seed for seed in numbers if among is None or seed in among]
        return tuple(f"{group.arm}/{seed}@{group.condition}" for seed in chosen)


def analyse(evidence: StudyEvidence) -> Analysis:
    """All statements that the evidence allows."""
    analysis = Analysis(evidence, lints=find_lints(evidence), look_plan=_look_plan(evidence))
    analysis.lints += _hopeless_plan(analysis)
    analysis.lints = [_without_verdict(analysis, lint) for lint in analysis.lints]
    analysis.lints.sort(key=lambda lint: LEVELS.index(lint.level))
    for group, values in evidence.values.items():
        summary = summarise(np.array([values[seed] for seed in sorted(values)]))
        if summary is not None:
            analysis.summaries[group] = summary
    analysis.tails = _tails(evidence)
    analysis.shifted = over_shifted_conditions(evidence)
    analysis.other_conditions = other_conditions(evidence)
    analysis.elsewhere_scores = mean_scores(evidence, analysis.other_conditions[1])
    analysis.validation = validation_by_arm(evidence)
    question = _question(analysis)
    _judge(analysis, question)
    _compare_all(analysis)
    _plan(analysis, question)
    _constrain(analysis)
    analysis.spending = count_spending(evidence)
    analysis.next = _next_batch(analysis)
    return analysis


def _without_verdict(analysis: Analysis, lint: Lint) -> Lint:
    """A warning instead of a lint that forbids verdicts, where none of its arms is judged."""
    evidence = analysis.evidence
    judged = evidence.arms if evidence.study.limits else analysis.treatments
    forbids = any(arm in judged for arm in lint.arms or evidence.arms)
    return replace(lint, level=WARN) if lint.level == BLOCK and not forbids else lint


def _look_plan(evidence: StudyEvidence) -> LookPlan:
    """The plan that was declared before any result was known; a later one cannot give spent error back."""
    declared = evidence.declared_before_results or evidence.study
    return make_look_plan(len(declared.seeds), declared.maximum_seeds)


def _hopeless_plan(analysis: Analysis) -> list[Lint]:
    """A lint if even the last planned look has too few seeds for any verdict."""
    last = len(analysis.look_plan.looks) - 1
    seeds, arms = analysis.look_plan.maximum, max(1, len(analysis.treatments))
    level, paired = analysis.look_plan.level(last, arms), analysis.evidence.study.paired_seeds
    smallest = smallest_possible_p(seeds, paired)
    if smallest <= level or not analysis.treatments:
        return []
    digits = digits_apart(smallest, level, 3)
    p = {"level": f"{level:.{max(4, digits)}f}", "smallest_p": f"{smallest:.{digits}f}"}
    return [Lint("hopeless_plan", WARN, {"seeds": seeds, "arms": arms, "needed": fewest_seeds(level, paired), **p})]


def _tails(evidence: StudyEvidence) -> dict[Group, CostTail]:
    """Share of zero and CVaR90 of costs over all episodes, with equal weight per seed."""
    costs = _costs(evidence)
    found: dict[Group, CostTail] = {}
    for group, seeds in evidence.episodes.items():
        if group.metric not in costs:
            continue
        tables = [finite_values(values) for values in seeds.values()]
        shares = [zero_share(values) for values in tables if len(values)]
        tails = [tail_mean(values) for values in tables if len(values)]
        if shares:
            share = float(np.mean([value for value in shares if value is not None]))
            tail = float(np.mean([value for value in tails if value is not None]))
            found[group] = CostTail(share, tail, sum(map(len, tables)))
    return found


def _compare_all(analysis: Analysis) -> None:
    evidence = analysis.evidence
    study, treatments = evidence.study, analysis.treatments
    for group in sorted(analysis.summaries):
        if group.arm not in treatments:
            continue
        reference = replace(group, arm=study.reference)
        if reference not in evidence.values:
            continue
        primary = group == analysis.primary(group.arm)
        paired = primary and (study.paired_seeds or _paired(evidence, group, reference))
        sign = _direction(evidence, group.metric)
        left, right = evidence.values[group], evidence.values[reference]
        if primary:
            left, right = (_among(values, analysis.look_seeds(group.arm)) for values in (left, right))
        found = compare(left, right, sign, paired)
        if found is not None:
            analysis.comparisons[group] = found
    families: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for group, comparison in analysis.comparisons.items():
        family = families.setdefault((group.condition, group.metric, group.checkpoint), {})
        decides = study.paired_seeds and group == analysis.primary(group.arm)
        family[group.arm] = comparison.permutation_p
        if decides and comparison.paired is not None:
            family[group.arm] = comparison.paired.sign_flip_p
    for (condition, metric, checkpoint), family in families.items():
        complete = {arm: family.get(arm) for arm in analysis.treatments}
        for arm, p in holm(complete).items():
            analysis.adjusted[Group(arm, condition, metric, checkpoint)] = p


def _among(values: dict[int, float], seeds: Collection[int]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if seed in seeds}


def _direction(evidence: StudyEvidence, metric: str) -> float:
    """1 if higher values of a metric count as an improvement, -1 for costs and what is declared as lower."""
    if metric == evidence.study.metric.name:
        return 1.0 if evidence.study.metric.direction == "higher" else -1.0
    return -1.0 if metric in _costs(evidence) else 1.0


def _costs(evidence: StudyEvidence) -> set[str]:
    return {"cost", *(limit.name for limit in evidence.study.limits)}


def _paired(evidence: StudyEvidence, group: Group, reference: Group) -> bool:
    """Whether both arms were evaluated here on the same layouts with equally many episodes."""
    left, right = evidence.episodes.get(group, {}), evidence.episodes.get(reference, {})
    shared = left.keys() & right.keys()
    if not shared or any(len(left[seed]) != len(right[seed]) for seed in shared):
        return False
    keys = [(Cell(arm, seed), group.condition) for arm in (group.arm, reference.arm) for seed in shared]
    return len({evidence.evals[key].layouts for key in keys if key in evidence.evals}) == 1


def _question(analysis: Analysis) -> Question:
    study = analysis.evidence.study
    return Question(
        tuple(study.seeds),
        analysis.look_plan,
        study.metric.smallest_difference,
        study.metric.direction == "higher",
        study.paired_seeds,
    )


def _judge(analysis: Analysis, question: Question) -> None:
    evidence = analysis.evidence
    study = evidence.study
    reference = evidence.values.get(analysis.primary(study.reference), {})
    arms = {arm: evidence.values.get(analysis.primary(arm), {}) for arm in analysis.treatments}
    for arm, verdict in judge(question, reference, arms).items():
        looked_at = set(study.seeds if verdict.kind is Kind.CANNOT_DECIDE else study.seeds[: verdict.seeds])
        blocking = tuple(
            lint.code
            for lint in analysis.lints
            if lint.level == BLOCK and _blocks(lint, arm) and not _lies_behind(lint, (arm, study.reference), looked_at)
        )
        if blocking and verdict.kind is not Kind.CANNOT_DECIDE:
            verdict = Verdict(
                Kind.CANNOT_DECIDE, Why.BLOCKED, verdict.seeds, verdict.level, verdict.p, verdict.interval
            )
        analysis.verdicts[arm] = replace(verdict, blocked_by=blocking)


def _lies_behind(lint: Lint, arms: Collection[str], seeds: Collection[int]) -> bool:
    """Whether only seeds behind those of a decided analysis are missing, which change its verdict no more."""
    if lint.code not in WAITS_FOR_CELLS:
        return False
    cells = [Cell.parse(name.split("@")[0]) for name in lint.cells]
    return not any(cell.arm in arms and cell.seed in seeds for cell in cells)


def _plan(analysis: Analysis, question: Question) -> None:
    """Seeds per arm that the smallest difference that matters needs, by the spread seen."""
    for arm in analysis.treatments:
        found = analysis.comparisons.get(analysis.primary(arm))
        spread = None if found is None else _spread(found, question.paired)
        analysis.plans[arm] = None if spread is None else plan_seeds(*spread, question, len(analysis.treatments))


def _spread(comparison: Comparison, paired: bool) -> tuple[float | None, int]:
    """The sd that plans are made with and its degrees of freedom; of paired differences, as that of one arm."""
    if not paired or comparison.paired is None:
        return comparison.pooled_sd, comparison.degrees_of_freedom
    sd = comparison.paired.sd
    return None if sd is None else sd / 2**0.5, comparison.paired.pairs - 1


def _blocks(lint: Lint, arm: str) -> bool:
    return not lint.arms or arm in lint.arms


def _constrain(analysis: Analysis) -> None:
    """Every arm against the declared limits, if there are any."""
    evidence, plan, lints = analysis.evidence, analysis.look_plan, analysis.lints
    if not evidence.study.limits:
        return
    for arm in evidence.arms:
        found = arm_limits(evidence, plan, lints, arm)
        if found:
            analysis.limits[arm] = found
        shown = dict.fromkeys((limit.name for limit in evidence.study.limits), evidence.primary_condition)
        shown |= {each.metric: each.condition for each in found}
        analysis.elsewhere[arm] = limits_elsewhere(evidence, plan, lints, arm, shown)


def group_mean(analysis: Analysis, group: Group) -> float | None:
    """The mean of a group, also if only the mean was imported."""
    if group in analysis.summaries:
        return analysis.summaries[group].mean
    known = analysis.evidence.means.get(group)
    return known.mean if known is not None and np.isfinite(known.mean) else None


def _next_batch(analysis: Analysis) -> NextBatch:
    evidence = analysis.evidence
    if not analysis.treatments:
        return NextBatch(False, len(evidence.study.seeds), "not_compared")
    undecided = [arm for arm in analysis.treatments if analysis.undecided(arm)]
    lasting = [lint for lint in analysis.lints if lint.level == BLOCK and lint.code not in WAITS_FOR_SEEDS]
    lasting += [lint for lint in analysis.lints if lint.code == "hopeless_plan"]
    open_arms = tuple(arm for arm in undecided if not any(_blocks(lint, arm) for lint in lasting))
    blocking = () if open_arms else tuple(lint.code for lint in lasting)
    done = len(evidence.study.seeds)
    missing = analysis.spending.missing_cells + analysis.spending.missing_evals
    question = BatchQuestion(
        analysis.look_plan,
        done,
        open_arms or tuple(undecided),
        blocking,
        missing,
        lambda seeds: _price_of_seeds(analysis, seeds),
        analysis.spending.money_left,
    )
    return next_batch(question)


def _price_of_seeds(analysis: Analysis, count: int) -> float | None:
    seconds = seconds_of_seeds(analysis.evidence, analysis.spending, count)
    return None if seconds is None else analysis.spending.money(seconds)
