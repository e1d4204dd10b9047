"""Better, worse, equivalent or cannot decide: at planned looks only, Holm over all arms, both directions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dreamproof.stats.compare import welch_interval
from dreamproof.stats.describe import Floats, Interval
from dreamproof.stats.permutation import fewest_seeds, permutation_p, smallest_p
from dreamproof.stats.power import POWER, sd_upper_bound, seeds_needed
from dreamproof.stats.sequential import LookPlan

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
    NO_SPREAD = "no_spread"
    NOT_FINITE = "not_finite"
    NOT_SIGNIFICANT = "not_significant"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class Question:
    """What was declared before the runs."""

    seeds: tuple[int, ...]
    plan: LookPlan
    smallest_difference: float
    higher_is_better: bool = True


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


@dataclass(frozen=True)
class _Look:
    """One arm at one planned look."""

    treatment: Floats
    reference: Floats

    @property
    def p(self) -> float | None:
        return permutation_p(self.treatment, self.reference)

    @property
    def no_spread(self) -> bool:
        return bool(np.ptp(self.treatment) == 0 or np.ptp(self.reference) == 0)


def _at_look(arm: Arm, reference: Arm, seeds: Sequence[int]) -> _Look | None:
    """Both arms cut to the seeds of the look; None if one value is missing or not a number."""
    if any(seed not in arm or seed not in reference for seed in seeds):
        return None
    pair = (np.array([values[seed] for seed in seeds], dtype=np.float64) for values in (arm, reference))
    look = _Look(*pair)
    return look if np.isfinite(look.treatment).all() and np.isfinite(look.reference).all() else None


def judge(question: Question, reference: Arm, arms: Mapping[str, Arm]) -> dict[str, Verdict]:
    """The verdict on every arm: the first planned look that decides counts, later ones change nothing."""
    verdicts: dict[str, Verdict] = {}
    rejected: set[str] = set()
    for number, seeds_per_arm in enumerate(question.plan.looks):
        seeds = question.seeds[:seeds_per_arm]
        if len(seeds) < seeds_per_arm:
            break
        looks = {name: _at_look(arm, reference, seeds) for name, arm in arms.items() if name not in verdicts}
        here = {name: look for name, look in looks.items() if look is not None and not look.no_spread}
        verdicts |= _differences(question, number, here, len(arms) - len(rejected), rejected)
        verdicts |= _equivalents(question, number, {name: here[name] for name in here if name not in verdicts})
    return {name: verdicts.get(name) or _undecided(question, reference, arms[name], len(arms)) for name in arms}


def _differences(
    question: Question, number: int, looks: Mapping[str, _Look], hypotheses: int, rejected: set[str]
) -> dict[str, Verdict]:
    """Holm's steps at one look: the smallest p first, each against the level shared by what is not yet rejected."""
    found: dict[str, Verdict] = {}
    order = sorted((p, name) for name, look in looks.items() if (p := look.p) is not None)
    for p, name in order:
        level = question.plan.level(number, hypotheses)
        interval = welch_interval(looks[name].treatment, looks[name].reference, 1 - level)
        if p > level or interval is None or not interval.finite or not interval.excludes(0):
            break
        hypotheses -= 1
        rejected.add(name)
        if interval.inside(-question.smallest_difference, question.smallest_difference):
            continue
        kind = Kind.BETTER if (interval.low > 0) == question.higher_is_better else Kind.WORSE
        seeds = len(looks[name].treatment)
        found[name] = Verdict(kind, Why.DECIDED, seeds, level, p, interval)
    return found


def _equivalents(question: Question, number: int, looks: Mapping[str, _Look]) -> dict[str, Verdict]:
    """Arms whose difference is shown to be smaller than what matters, by intervals and by shifted permutations."""
    found: dict[str, Verdict] = {}
    level = question.plan.level(number)
    margin = question.smallest_difference
    for name, look in looks.items():
        interval = welch_interval(look.treatment, look.reference, 1 - 2 * level)
        if interval is None or not interval.inside(-margin, margin):
            continue
        above = permutation_p(look.treatment + margin, look.reference, "greater")
        below = permutation_p(look.treatment - margin, look.reference, "less")
        if above is None or below is None or max(above, below) > level:
            continue
        seeds = len(look.treatment)
        found[name] = Verdict(Kind.EQUIVALENT, Why.DECIDED, seeds, level, max(above, below), interval)
    return found


def _undecided(question: Question, reference: Arm, arm: Arm, hypotheses: int) -> Verdict:
    """Why this arm has no verdict, at the latest look that its seeds reach."""
    reached = 0
    for number, seeds_per_arm in enumerate(question.plan.looks):
        seeds = question.seeds[:seeds_per_arm]
        if len(seeds) == seeds_per_arm and _at_look(arm, reference, seeds) is not None:
            reached = number + 1
    level = question.plan.level(max(0, reached - 1), hypotheses)
    shared = [seed for seed in question.seeds if seed in arm and seed in reference]
    numbers = [seed for seed in shared if np.isfinite(arm[seed]) and np.isfinite(reference[seed])]
    if not numbers:
        why = Why.NOT_FINITE if shared else Why.NO_VALUES
        return Verdict(Kind.CANNOT_DECIDE, why, 0, level)
    if reached == 0:
        why = Why.NOT_FINITE if len(numbers) < len(shared) else Why.SEEDS_MISSING
        return Verdict(Kind.CANNOT_DECIDE, why, len(numbers), level)
    seeds = question.seeds[: question.plan.looks[reached - 1]]
    look = _at_look(arm, reference, seeds)
    assert look is not None
    interval = welch_interval(look.treatment, look.reference)
    if smallest_p(len(seeds), len(seeds)) > level:
        return Verdict(Kind.CANNOT_DECIDE, Why.TOO_FEW_SEEDS, len(seeds), level, look.p, interval)
    if look.no_spread:
        return Verdict(Kind.CANNOT_DECIDE, Why.NO_SPREAD, len(seeds), level, look.p)
    if interval is None or not interval.finite:
        return Verdict(Kind.CANNOT_DECIDE, Why.NOT_FINITE, len(seeds), level)
    return Verdict(Kind.CANNOT_DECIDE, Why.NOT_SIGNIFICANT, len(seeds), level, look.p, interval)


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
    alpha = question.plan.alpha / max(1, hypotheses)
    margin, floor = question.smallest_difference, fewest_seeds(alpha)
    planned, at_sd = seeds_needed(margin, upper, alpha), seeds_needed(margin, pooled, alpha)
    return SeedsPlan(
        sd=pooled,
        sd_upper=upper,
        seeds_per_arm=None if planned is None else max(floor, planned),
        seeds_per_arm_at_sd=None if at_sd is None else max(floor, at_sd),
    )
