"""Looks at the evidence in batches of seeds with the error rate kept, and what to do after each look."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import e, log

import numpy as np
from scipy import special, stats

from dreamproof.stats.describe import Floats
from dreamproof.stats.power import ALPHA

LARGEST_BATCH = 5
SMALLEST_BATCH = 2
_GRID = 1201


@dataclass(frozen=True)
class LookPlan:
    """At how many seeds per arm the evidence is judged, fixed by the declaration alone."""

    looks: tuple[int, ...]
    alpha: float = ALPHA

    @property
    def maximum(self) -> int:
        return self.looks[-1]

    def plan_levels(self, hypotheses: int = 1) -> tuple[float, ...]:
        """The level of every look."""
        fractions = tuple(seeds / self.maximum for seeds in self.looks)
        return nominal_levels(fractions, self.alpha / max(1, hypotheses))

    def level(self, look: int, hypotheses: int = 1) -> float:
        """The two-sided p at or below which look number `look` (from 0) decides, shared among `hypotheses`."""
        return self.plan_levels(hypotheses)[look]

    def planning_level(self, hypotheses: int = 1) -> float:
        """The level that seeds are planned with: that of the last look, to whose power earlier looks only add."""
        return min(self.level(len(self.looks) - 1, hypotheses), self.alpha / max(1, hypotheses))


def make_look_plan(declared_seeds: int, maximum_seeds: int | None = None, alpha: float = ALPHA) -> LookPlan:
    """One look at the declared seeds, and then one per batch up to the declared maximum."""
    last = max(declared_seeds, maximum_seeds or declared_seeds)
    batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, declared_seeds))
    looks = [declared_seeds]
    while looks[-1] < last:
        looks.append(min(last, looks[-1] + batch))
    return LookPlan(tuple(looks), alpha)


def spent(fraction: float, alpha: float) -> float:
    """Error spent when `fraction` of the largest sample is seen (Lan and DeMets' form of Pocock's boundary)."""
    return alpha * log(1 + (e - 1) * min(1.0, max(0.0, fraction)))


@lru_cache(maxsize=512)
def nominal_levels(fractions: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """The two-sided nominal level of every look, so that all looks together err in `alpha` of null studies.

    Integrates the density of the score process step by step (Armitage, McPherson and Rowe 1969).
    """
    if len(fractions) == 1:
        return (alpha,)
    levels = []
    points, density, before, already = np.zeros(1), np.ones(1), 0.0, 0.0
    for fraction in fractions:
        step = np.sqrt(fraction - before)
        allowed = spent(fraction, alpha) - already
        edge = _edge(points, density, step, allowed, np.sqrt(fraction))
        levels.append(float(2 * special.ndtr(-edge / np.sqrt(fraction))))
        grid = np.linspace(-edge, edge, _GRID)
        weights = density if len(points) == 1 else density * (points[1] - points[0])
        density = stats.norm.pdf((grid[:, None] - points[None, :]) / step) @ weights / step
        points, before, already = grid, fraction, spent(fraction, alpha)
    return tuple(levels)


def _edge(points: Floats, density: Floats, step: float, allowed: float, scale: float) -> float:
    """The bound of the score process that is crossed with probability `allowed` at this look."""
    weights = density if len(points) == 1 else density * (points[1] - points[0])
    low, high = 0.0, 12.0 * scale
    for _ in range(60):
        middle = (low + high) / 2
        crossing = special.ndtr((points - middle) / step) + special.ndtr((-middle - points) / step)
        low, high = (middle, high) if float(crossing @ weights) > allowed else (low, middle)
    return high


def shrinkage_after_stopping(z: float, edge: float) -> float:
    """Factor that makes an estimate median-unbiased among studies that stop at this look.

    `z` is the observed statistic in sds, `edge` the bound it had to reach; 0 at the bound, 1 far beyond it.
    """
    if z <= edge:
        return 0.0
    if z == np.inf:
        return 1.0
    low, high = 0.0, z
    for _ in range(60):
        middle = (low + high) / 2
        stopping = special.ndtr(middle - edge) + special.ndtr(-edge - middle)
        low, high = (middle, high) if special.ndtr(middle - z) < 0.5 * stopping else (low, middle)
    return high / z


@dataclass(frozen=True)
class BatchQuestion:
    """What decides whether to add seeds."""

    plan: LookPlan
    seeds_done: int
    undecided_arms: tuple[str, ...]
    blocked_by: tuple[str, ...] = ()
    missing_cells: int = 0
    price_of: Callable[[int], float | None] = lambda seeds: None
    """The price of so many further seeds per arm; None if it is unknown."""
    money_left: float | None = None


@dataclass(frozen=True)
class NextBatch:
    """Add seeds up to `seeds_per_arm`, or stop; `reason` is one of
    continue, decided, gap (declared cells are missing), blocked (a lint), maximum, budget.
    """

    add_seeds: bool
    seeds_per_arm: int
    reason: str
    price: float | None = None
    money_left: float | None = None

    def seeds(self, declared: Sequence[int]) -> list[int]:
        """The seed numbers to have in all: the declared ones, then the next free numbers."""
        seeds = list(declared)[: self.seeds_per_arm]
        following = max(declared, default=-1) + 1
        while len(seeds) < self.seeds_per_arm:
            seeds.append(following)
            following += 1
        return seeds


def next_batch(question: BatchQuestion) -> NextBatch:
    """The next planned look and its price, or why no seed is added; never beyond the maximum or the money."""
    done = question.seeds_done
    if not question.undecided_arms:
        return NextBatch(False, done, "decided")
    if question.missing_cells:
        return NextBatch(False, done, "gap")
    if question.blocked_by:
        return NextBatch(False, done, "blocked")
    ahead = [seeds for seeds in question.plan.looks if seeds > done]
    if not ahead:
        return NextBatch(False, done, "maximum")
    price = question.price_of(ahead[0] - done)
    if price is not None and question.money_left is not None and price > question.money_left:
        return NextBatch(False, done, "budget", price, question.money_left)
    return NextBatch(True, ahead[0], "continue", price, question.money_left)
