"""Keeps, breaks or cannot tell: the mean of one arm's seeds against a limit, by one-sided bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from dreamproof.stats.describe import Floats, Interval
from dreamproof.stats.sequential import LookPlan

BOUND_DRAWS = 10_000
BOUND_SEED = 20240303
MAX_SEEDS = 100
# What an unseen seed may have, in units of the limit or of the largest seed seen. More, and five seeds could never show
# that a limit is kept; less, and skewed costs are called kept too often (benchmarks/CALIBRATION.md).
UNSEEN_FACTOR = 2.0


class LimitKind(StrEnum):
    """The verdict about an arm against a limit."""

    KEEPS = "keeps"
    BREAKS = "breaks"
    CANNOT_TELL = "cannot_tell"


class LimitWhy(StrEnum):
    """Why it cannot be decided, or that it is shown."""

    SHOWN = "shown"
    LIMIT_BETWEEN_BOUNDS = "limit_between_bounds"
    TOO_FEW_SEEDS = "too_few_seeds"
    SEEDS_MISSING = "seeds_missing"
    MEAN_ONLY = "mean_only"
    NOT_FINITE = "not_finite"
    NEGATIVE = "negative"
    ZERO_LIMIT = "zero_limit"
    NOT_FINAL = "not_final"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class LimitVerdict:
    """The verdict, its seeds, the one-sided level, and the lower and the upper bound at that level."""

    kind: LimitKind
    why: LimitWhy
    seeds: int
    level: float
    bounds: Interval | None = None


@lru_cache(maxsize=8)
def _shares(count: int) -> Floats:
    """(draws, count): random shares of the probability that lie on each seed seen; the rest to one is unseen.

    Uniform over all shares (Dirichlet); the sum of the seen ones is stratified, so equal seeds give exact bounds.
    """
    generator = np.random.default_rng((BOUND_SEED, count))
    shares = generator.standard_exponential((BOUND_DRAWS, count))
    seen = ((np.arange(BOUND_DRAWS) + 0.5) / BOUND_DRAWS) ** (1 / count)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True) * seen[:, None])


def mean_bounds(values: Floats, limit: float, level: float, factor: float = UNSEEN_FACTOR) -> Interval:
    """Lower and upper bound of the mean of what is never negative, each wrong in at most `level` of studies.

    Gaffke's (2005) bounds: unseen seeds count as 0 below, and above as `factor` times the limit or the largest
    seed. The lower bound needs no assumption about the distribution; the upper one holds if no seed exceeds that value.
    """
    shares = _shares(len(values))
    unseen = 1 - shares.sum(axis=1)
    lower = shares @ values
    upper = lower + unseen * factor * max(limit, float(values.max()))
    return Interval(float(np.quantile(lower, level)), float(np.quantile(upper, 1 - level)))


def fewest_seeds_to_keep(level: float) -> int:
    """The smallest number of seeds with which a limit can be shown to be kept at all."""
    count = 1
    while UNSEEN_FACTOR * (1 - level ** (1 / count)) >= 1:
        count += 1
    return count


def seeds_to_show(values: Floats, limit: float, level: float) -> int | None:
    """Seeds that would show whether the limit is kept if further ones repeat those seen; None beyond MAX_SEEDS."""
    low, high = len(values), MAX_SEEDS
    if not mean_bounds(np.resize(values, high), limit, level).excludes(limit):
        return None
    while high > low:
        middle = (low + high) // 2
        shown = mean_bounds(np.resize(values, middle), limit, level).excludes(limit)
        low, high = (low, middle) if shown else (middle + 1, high)
    return high


def judge_limit(seeds: Sequence[int], plan: LookPlan, limit: float, values: Mapping[int, float]) -> LimitVerdict:
    """The verdict on one arm: the first planned look that shows something counts, later ones change nothing."""
    found = LimitVerdict(LimitKind.CANNOT_TELL, LimitWhy.SEEDS_MISSING, len(values), plan.level(0))
    for number, seeds_per_arm in enumerate(plan.looks):
        chosen = seeds[:seeds_per_arm]
        if len(chosen) < seeds_per_arm or any(seed not in values for seed in chosen):
            break
        found = _at_look(np.array([values[seed] for seed in chosen], dtype=np.float64), limit, plan.level(number))
        if found.why is LimitWhy.SHOWN:
            break
    return found


def _at_look(values: Floats, limit: float, level: float) -> LimitVerdict:
    count = len(values)
    if not np.isfinite(values).all():
        return LimitVerdict(LimitKind.CANNOT_TELL, LimitWhy.NOT_FINITE, count, level)
    if values.min() < 0 or limit < 0:
        return LimitVerdict(LimitKind.CANNOT_TELL, LimitWhy.NEGATIVE, count, level)
    if limit == 0 and values.max() == 0:
        return LimitVerdict(LimitKind.CANNOT_TELL, LimitWhy.ZERO_LIMIT, count, level)
    bounds = mean_bounds(values, limit, level)
    if bounds.high < limit:
        return LimitVerdict(LimitKind.KEEPS, LimitWhy.SHOWN, count, level, bounds)
    if bounds.low > limit:
        return LimitVerdict(LimitKind.BREAKS, LimitWhy.SHOWN, count, level, bounds)
    few = count < fewest_seeds_to_keep(level) and float(values.mean()) <= limit
    why = LimitWhy.TOO_FEW_SEEDS if few else LimitWhy.LIMIT_BETWEEN_BOUNDS
    return LimitVerdict(LimitKind.CANNOT_TELL, why, count, level, bounds)
