"""Score against cost: an arm beside a frontier, at equal cost, and how many seeds would separate them."""

from dataclasses import dataclass
from itertools import pairwise

from dreamproof.stats.compare import compare, welch_interval
from dreamproof.stats.describe import Floats, Interval
from dreamproof.stats.verdict import Question, SeedsPlan, plan_seeds


@dataclass(frozen=True)
class Point:
    """Return and cost of every seed, (S,) each."""

    returns: Floats
    costs: Floats

    @property
    def place(self) -> tuple[float, float]:
        """Mean cost and mean return."""
        return float(self.costs.mean()), float(self.returns.mean())


Frontier = dict[float, Point]
"""A point per margin in metres, in growing order: the wider the margin, the lower the cost."""


@dataclass(frozen=True)
class EqualCost:
    """Returns of an arm and of the frontier, (S,) each, converted to the mean cost of the arm."""

    arm: Floats
    frontier: Floats

    @property
    def difference(self) -> float:
        """Mean return of the arm minus that of the frontier."""
        return float(self.arm.mean() - self.frontier.mean())

    @property
    def interval(self) -> Interval:
        """Welch's interval of the difference; it also has the spread of costs."""
        interval = welch_interval(self.arm, self.frontier)
        assert interval is not None
        return interval


def at_equal_cost(point: Point, frontier: Frontier) -> EqualCost | None:
    """An arm and the frontier at the same mean cost; None where no margin has that cost.

    The frontier is linear between two margins. Its slope there converts every seed's cost into return; the slope
    itself counts as known.
    """
    cost, _ = point.place
    for wide, narrow in pairwise(reversed(frontier.values())):
        (low, below), (high, above) = wide.place, narrow.place
        if low <= cost <= high:
            slope, share = (above - below) / (high - low), (cost - low) / (high - low)
            mixed = Point(
                (1 - share) * wide.returns + share * narrow.returns, (1 - share) * wide.costs + share * narrow.costs
            )
            return EqualCost(point.returns - slope * (point.costs - cost), mixed.returns - slope * (mixed.costs - cost))
    return None


def seeds_at_equal_cost(found: EqualCost, question: Question, comparisons: int) -> SeedsPlan:
    """Seeds per arm that find the question's smallest difference at equal cost with 80 % power."""
    treatment, reference = (dict(enumerate(values.tolist())) for values in (found.arm, found.frontier))
    compared = compare(treatment, reference, 1.0, False)
    assert compared is not None
    plan = plan_seeds(compared.pooled_sd, compared.degrees_of_freedom, question, comparisons)
    assert plan is not None
    return plan
