"""Equal cost by hand, and seeds by the plan of reports."""

import numpy as np
import pytest

from dreamproof.stats.frontier import Point, at_equal_cost, seeds_at_equal_cost
from dreamproof.stats.power import power_of
from dreamproof.stats.sequential import make_look_plan
from dreamproof.stats.verdict import Question

QUESTION = Question((0, 1, 2, 3, 4), make_look_plan(5), 2.0, True, False)
NOISE = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
FRONTIER = {0.0: Point(20.0 + NOISE, np.full(5, 4.0)), 0.04: Point(18.0 - NOISE, np.full(5, 0.0))}


def test_an_arm_is_compared_with_the_frontier_at_its_own_cost() -> None:
    found = at_equal_cost(Point(20.5 + NOISE, np.full(5, 2.0)), FRONTIER)
    assert found is not None
    assert found.difference == pytest.approx(20.5 - 19.0)
    # Half of each end: opposite noise cancels.
    np.testing.assert_allclose(found.frontier, 19.0)
    assert at_equal_cost(Point(20.5 + NOISE, np.full(5, 9.0)), FRONTIER) is None


def test_costs_of_single_seeds_count_by_the_slope_of_the_frontier() -> None:
    found = at_equal_cost(Point(np.full(5, 19.0), 2.0 + NOISE), FRONTIER)
    assert found is not None
    np.testing.assert_allclose(found.arm, 19.0 - 0.5 * NOISE)


def test_planned_seeds_have_the_power_and_one_fewer_has_not() -> None:
    found = at_equal_cost(Point(20.5 + 2 * NOISE, np.full(5, 2.0)), FRONTIER)
    assert found is not None
    plan = seeds_at_equal_cost(found, QUESTION, 4)
    assert plan.seeds_per_arm is not None
    effect = 2.0 / plan.sd_upper
    assert power_of(plan.seeds_per_arm, effect, 0.05 / 4) >= 0.8 > power_of(plan.seeds_per_arm - 1, effect, 0.05 / 4)
