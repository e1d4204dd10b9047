"""Better, worse, equivalent or cannot decide: at planned looks only, Holm over all arms, both directions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from scipy import special

from dreamproof.stats.compare import welch_interval
from dreamproof.stats.describe import LEVEL, Floats, Interval, t_interval
from dreamproof.stats.permutation import fewest_seeds, permutation_p, sign_flip_p, smallest_possible_p
from dreamproof.stats.power import POWER, sd_upper_bound, seeds_needed
from dreamproof.stats.sequential import LookPlan, shrinkage_after_stopping
from dreamproof.stats.shape import differences_mislead, mean_misleads

Arm = Mapping[int, float]


class Kind(StrEnum):
    """The verdict about an arm against the reference."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    CANNOT_DECIDE = "cannot_decide"


class Why(StrEnum):
    """Why nothing can be decided, or what decided."""

    DECIDED = "decided"
    NO_VALUES = "no_values"
    SEEDS_MISSING = "seeds_missing"
    TOO_FEW_SEEDS = "too_few_seeds"
    SHAPE = "shape"
    NOT_FINITE = "not_finite"
    INTERVAL_DISAGREES = "interval_disagrees"
    NOT_SIGNIFICANT = "not_significant"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class Question:
    """What was declared before the runs."""

    seeds: tuple[int, ...]
    plan: LookPlan
    smallest_difference: float
    higher_is_better: bool = True
    paired: bool = False


@dataclass(frozen=True)
class Verdict:
    """The verdict, its seeds per arm, its level, and why it is not stronger."""

    kind: Kind
    why: Why
    seeds: int
    level: float
    p: float | None = None
    interval: Interval | None = None
    blocked_by: tuple[str, ...] = ()
    stopped_early: bool = False
    """Whether it was decided at a look after which others were planned."""
    adjusted_difference: float | None = None
    """The difference corrected for stopping early; None if it was not, or if there is no spread to correct by."""


@dataclass(frozen=True)
class _Look:
    """One arm at one planned look; seed by seed if the study declares that seeds are paired."""

    treatment: Floats
    reference: Floats
    paired: bool

    @property
    def difference(self) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.treatment.mean() - self.reference.mean())

    @cached_property
    def p(self) -> float | None:
        if self.paired:
            return sign_flip_p(self.treatment - self.reference)
        return permutation_p(self.treatment, self.reference)

    @property
    def smallest_p(self) -> float:
        return smallest_possible_p(len(self.treatment), self.paired)

    @property
    def no_spread(self) -> bool:
        """Whether all seeds of an arm have one value, so that only the exact test can judge."""
        return bool(np.ptp(self.treatment) == 0 or np.ptp(self.reference) == 0)

    @property
    def misleading(self) -> bool:
        """Whether the shape of the seeds forbids a statement about means."""
        if self.paired:
            return differences_mislead(self.treatment - self.reference)
        return mean_misleads(self.treatment, self.reference)

    def interval(self, level: float) -> Interval | None:
        if self.paired:
            return t_interval(self.treatment - self.reference, level)
        return welch_interval(self.treatment, self.reference, level)

    def shows_difference(self, level: float) -> bool:
        """Whether the exact test rejects at `level` and the interval agrees; without spread the test alone counts."""
        p, interval = self.p, self.interval(1 - level)
        if p is None or p > level or self.difference == 0 or interval is None or not interval.finite:
            return False
        return self.no_spread or interval.excludes(0)

    def equivalence_p(self, margin: float) -> float:
        """The larger p of both one-sided tests against a difference of `margin`; 1 if there is none."""
        if self.paired:
            differences = self.treatment - self.reference
            above, below = sign_flip_p(differences + margin, "greater"), sign_flip_p(differences - margin, "less")
        else:
            above = permutation_p(self.treatment + margin, self.reference, "greater")
            below = permutation_p(self.treatment - margin, self.reference, "less")
        return 1.0 if above is None or below is None else max(above, below)


def _at_look(question: Question, arm: Arm, reference: Arm, seeds: Sequence[int]) -> _Look | None:
    """Both arms cut to the seeds of the look; None if one value is missing or not a number."""
    if any(seed not in arm or seed not in reference for seed in seeds):
        return None
    treatment, other = (np.array([values[seed] for seed in seeds], dtype=np.float64) for values in (arm, reference))
    look = _Look(treatment, other, question.paired)
    return look if np.isfinite(treatment).all() and np.isfinite(other).all() else None


def judge(question: Question, reference: Arm, arms: Mapping[str, Arm]) -> dict[str, Verdict]:
    """The verdict on every arm: the first planned look that decides counts, later ones change nothing."""
    verdicts: dict[str, Verdict] = {}
    withheld: dict[str, Verdict] = {}
    rejected: set[str] = set()
    for number, seeds_per_arm in enumerate(question.plan.looks):
        seeds = question.seeds[:seeds_per_arm]
        if len(seeds) < seeds_per_arm:
            break
        looks = {name: _at_look(question, arm, reference, seeds) for name, arm in arms.items() if name not in verdicts}
        here = {name: look for name, look in looks.items() if look is not None}
        found = _differences(question, number, here, len(arms) - len(rejected), rejected)
        rest = {name: here[name] for name in here if name not in found}
        equivalents = sum(verdict.kind is Kind.EQUIVALENT for verdict in verdicts.values())
        found |= _equivalents(question, number, rest, len(arms) - equivalents)
        for name, verdict in found.items():
            shaped = replace(verdict, kind=Kind.CANNOT_DECIDE, why=Why.SHAPE)
            (withheld if here[name].misleading else verdicts)[name] = shaped if here[name].misleading else verdict
    left = max(1, len(arms) - len(rejected))
    return {
        name: verdicts.get(name) or withheld.get(name) or _undecided(question, reference, arms[name], left)
        for name in arms
    }


def _differences(
    question: Question, number: int, looks: Mapping[str, _Look], hypotheses: int, rejected: set[str]
) -> dict[str, Verdict]:
    """Holm's steps at one look: the smallest p first, each against the level shared by what is not yet rejected."""
    found: dict[str, Verdict] = {}
    order = sorted((p, name) for name, look in looks.items() if (p := look.p) is not None)
    for p, name in order:
        level, look = question.plan.level(number, max(1, hypotheses)), looks[name]
        if not look.shows_difference(level):
            break
        if name not in rejected:
            hypotheses -= 1
        rejected.add(name)
        interval = look.interval(1 - level)
        assert interval is not None
        if interval.inside(-question.smallest_difference, question.smallest_difference):
            continue
        kind = Kind.BETTER if (look.difference > 0) == question.higher_is_better else Kind.WORSE
        early = number + 1 < len(question.plan.looks)
        adjusted = _after_stopping(look.difference, interval, level) if early else None
        seeds = len(look.treatment)
        verdict = Verdict(kind, Why.DECIDED, seeds, level, p, interval)
        found[name] = replace(verdict, stopped_early=early, adjusted_difference=adjusted)
    return found


def _after_stopping(difference: float, interval: Interval, level: float) -> float | None:
    """The difference, corrected for having been large enough to stop at this look.

    None where seeds have no spread to correct by: an interval without width, or one that includes 0 because the exact
    test alone decided.
    """
    half = (interval.high - interval.low) / 2
    if half == 0 or not interval.excludes(0):
        return None
    edge = float(-special.ndtri(level / 2))
    return difference * shrinkage_after_stopping(edge * abs(difference) / half, edge)


def _equivalents(question: Question, number: int, looks: Mapping[str, _Look], hypotheses: int) -> dict[str, Verdict]:
    """Arms whose difference is shown to be smaller than what matters, by intervals and shifted tests; Holm's steps."""
    found: dict[str, Verdict] = {}
    margin, widest = question.smallest_difference, 1 - 2 * question.plan.level(number)
    near = {
        name: look
        for name, look in looks.items()
        if (interval := look.interval(widest)) is not None and interval.inside(-margin, margin)
    }
    for p, name in sorted((look.equivalence_p(margin), name) for name, look in near.items()):
        level, look = question.plan.level(number, max(1, hypotheses)), looks[name]
        interval = look.interval(1 - 2 * level)
        if p > level or interval is None or not interval.inside(-margin, margin):
            break
        hypotheses -= 1
        found[name] = Verdict(Kind.EQUIVALENT, Why.DECIDED, len(look.treatment), level, p, interval)
    return found


def _undecided(question: Question, reference: Arm, arm: Arm, hypotheses: int) -> Verdict:
    """Why this arm has no verdict, at the latest look that its seeds reach."""
    look, reached = None, 0
    for number, seeds_per_arm in enumerate(question.plan.looks):
        seeds = question.seeds[:seeds_per_arm]
        here = _at_look(question, arm, reference, seeds) if len(seeds) == seeds_per_arm else None
        if here is not None:
            look, reached = here, number
    level = question.plan.level(reached, hypotheses)
    shared = [seed for seed in question.seeds if seed in arm and seed in reference]
    numbers = [seed for seed in shared if np.isfinite(arm[seed]) and np.isfinite(reference[seed])]
    if not numbers:
        why = Why.NOT_FINITE if shared else Why.NO_VALUES
        return Verdict(Kind.CANNOT_DECIDE, why, 0, level)
    if look is None:
        why = Why.NOT_FINITE if len(numbers) < len(shared) else Why.SEEDS_MISSING
        return Verdict(Kind.CANNOT_DECIDE, why, len(numbers), level)
    count, interval = len(look.treatment), look.interval(LEVEL)
    if look.smallest_p > level:
        return Verdict(Kind.CANNOT_DECIDE, Why.TOO_FEW_SEEDS, count, level, look.p, interval)
    if interval is None or not interval.finite:
        return Verdict(Kind.CANNOT_DECIDE, Why.NOT_FINITE, count, level)
    return Verdict(Kind.CANNOT_DECIDE, _why_not(look, level), count, level, look.p, interval)


def _why_not(look: _Look, level: float) -> Why:
    """Why seeds that are enough show no difference: their shape, or one of the two tests."""
    if look.misleading:
        return Why.SHAPE
    separated = look.p is not None and look.p <= level and not look.shows_difference(level)
    return Why.INTERVAL_DISAGREES if separated else Why.NOT_SIGNIFICANT


@dataclass(frozen=True)
class SeedsPlan:
    """How many seeds per arm the question needs, planned with the upper bound of the spread."""

    sd: float
    sd_upper: float
    seeds_per_arm: int | None
    seeds_per_arm_at_sd: int | None
    power: float = POWER


def plan_seeds(pooled: float | None, degrees_of_freedom: int, question: Question, hypotheses: int) -> SeedsPlan | None:
    """Seeds per arm to find the smallest difference that matters; None if the spread is unknown or zero."""
    if pooled is None or degrees_of_freedom < 1 or not np.isfinite(pooled) or pooled <= 0:
        return None
    upper = sd_upper_bound(pooled, degrees_of_freedom)
    alpha = question.plan.planning_level(hypotheses)
    margin, floor = question.smallest_difference, fewest_seeds(alpha, question.paired)
    planned, at_sd = seeds_needed(margin, upper, alpha), seeds_needed(margin, pooled, alpha)
    return SeedsPlan(
        sd=pooled,
        sd_upper=upper,
        seeds_per_arm=None if planned is None else max(floor, planned),
        seeds_per_arm_at_sd=None if at_sd is None else max(floor, at_sd),
    )
