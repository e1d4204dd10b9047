"""Prices that follow the cost of finished episodes, and what surprise is usual: by hand."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.agents.dreamer.behavior import update_multiplier
from dreamproof.agents.dreamer.feedback import (
    Feedback,
    after_episodes,
    after_surprise,
    init_feedback,
    innovation,
    planner_cost_coef,
)
from dreamproof.settings.dreamer import DreamerSettings
from dreamproof.settings.traced import traced_values


def scalars_of(**planner: float) -> dict[str, Any]:
    """Traced settings with some of the planner's changed."""
    scalars = traced_values(DreamerSettings())
    return scalars | {"planner": scalars["planner"] | planner}


def after(costs: list[float], scalars: dict[str, Any], episodes: int = 1) -> Feedback:
    """Feedback after rounds of so many episodes with these mean costs."""
    feedback = init_feedback()
    for cost in costs:
        feedback = after_episodes(feedback, jnp.asarray(cost), episodes, scalars)
    return feedback


def test_without_gains_the_price_is_the_one_set() -> None:
    scalars = scalars_of(cost_coef=0.03)
    assert float(planner_cost_coef(after([90.0] * 20, scalars), scalars["planner"])) == pytest.approx(0.03)


def test_the_average_starts_at_the_first_cost_and_the_integral_sums_its_excess() -> None:
    scalars = scalars_of(integral_gain=0.01, cost_limit=2.0)
    # 5, then 5 + 0.01·(11 − 5) = 5.06.
    found = after([5.0, 11.0], scalars)
    assert float(found.cost) == pytest.approx(5.06)
    assert float(found.integral) == pytest.approx(0.01 * 3.0 + 0.01 * 3.06, rel=1e-5)
    assert float(after([1.0] * 5, scalars).integral) == 0.0


def test_a_round_of_eight_episodes_counts_as_eight() -> None:
    scalars = scalars_of(integral_gain=0.001, cost_limit=2.0, cost_coef_max=9.0)
    at_once, one_by_one = after([5.0, 20.0], scalars, episodes=8), after([5.0] * 8 + [20.0] * 8, scalars)
    assert float(at_once.cost) == pytest.approx(float(one_by_one.cost))
    # The excess moves within a round of single episodes.
    assert float(at_once.proportional) == pytest.approx(float(one_by_one.proportional), rel=0.1)
    assert float(at_once.integral) == pytest.approx(float(one_by_one.integral), rel=0.1)


OSRP_LAG = {"proportional_gain": 0.1, "integral_gain": 0.01, "derivative_gain": 0.01, "cost_limit": 2.0}


def test_the_planner_is_charged_within_a_few_rounds_above_the_limit_and_no_longer_below_it() -> None:
    # Rounds of eight episodes, as in studies/safedreamer_baselines.yaml, which has about 49 of them.
    scalars = scalars_of(cost_coef=0.001, **OSRP_LAG)
    coefs = [float(planner_cost_coef(after([5.0] * rounds, scalars, 8), scalars["planner"])) for rounds in (0, 1, 3)]
    assert coefs[0] == pytest.approx(0.001)
    assert coefs[2] >= coefs[1] > 0.05
    later = after([5.0] * 20 + [0.0] * 24, scalars, 8)
    assert float(planner_cost_coef(later, scalars["planner"])) == 0.0


def test_a_long_excess_does_not_delay_the_fall() -> None:
    scalars = scalars_of(cost_coef=0.001, **OSRP_LAG)
    brief, lasting = (after([5.0] * rounds + [0.0] * 24, scalars, 8) for rounds in (5, 500))
    assert float(brief.integral) == float(lasting.integral) == 0.0


def test_a_rise_of_the_cost_counts_and_a_fall_does_not() -> None:
    scalars = scalars_of(derivative_gain=0.01, cost_coef_max=9.0)
    rising, falling = after([0.0] * 11 + [40.0] * 5, scalars), after([40.0] * 60 + [0.0] * 11, scalars)
    assert float(planner_cost_coef(rising, scalars["planner"])) > 0.05
    assert float(planner_cost_coef(falling, scalars["planner"])) == 0.0


def test_a_high_first_cost_is_no_rise() -> None:
    scalars = scalars_of(derivative_gain=0.01, cost_coef_max=9.0)
    assert float(planner_cost_coef(after([40.0] * 3, scalars), scalars["planner"])) == 0.0


def test_the_price_stays_within_its_bounds() -> None:
    scalars = scalars_of(proportional_gain=0.1, integral_gain=0.1, cost_coef_max=0.1, cost_limit=2.0)
    assert float(planner_cost_coef(after([90.0] * 50, scalars), scalars["planner"])) == pytest.approx(0.1)
    assert float(planner_cost_coef(after([0.0] * 50, scalars), scalars["planner"])) == 0.0


def test_the_risk_coefficient_rises_where_episodes_cost_too_much_and_falls_where_they_do_not() -> None:
    scalars = scalars_of(cost_limit=2.0)
    scalars["risk"] = scalars["risk"] | {"coef": 0.5, "coef_rate": 0.05, "coef_max": 2.0}
    assert float(after([900.0] * 30, scalars).risk_coef_offset) == pytest.approx(1.5)
    assert float(after([0.0] * 30, scalars).risk_coef_offset) == pytest.approx(-0.5)


def test_innovation_counts_standard_deviations_above_what_training_showed() -> None:
    generator = np.random.default_rng(0)
    feedback = init_feedback()
    for _ in range(8_000):
        feedback = after_surprise(feedback, jnp.asarray(generator.normal(3.0, 0.5, 64), jnp.float32))
    found = np.asarray(innovation(feedback, jnp.array([3.0, 4.0, 2.5])))
    np.testing.assert_allclose(found, [0.0, 2.0, -1.0], atol=0.1)


def test_the_multiplier_follows_the_imagined_cost_ever_faster() -> None:
    limits = {
        "cost_limit": 1.0,
        "multiplier_rate": 0.01,
        "multiplier_growth": 0.1,
        "multiplier_start": 0.2,
        "multiplier_max": 1.0,
    }
    limit_scalars = {name: jnp.asarray(value) for name, value in limits.items()}

    def moved(step_cost: float, updates: int) -> float:
        cost = jnp.full((3, 4), step_cost)
        return float(update_multiplier(jnp.zeros(()), cost, 200, limit_scalars, jnp.asarray(updates)))

    # 0.02 per step are 4 per episode, 3 above the limit.
    assert moved(0.02, 0) == pytest.approx(0.03, rel=1e-4)
    assert moved(0.02, 10) == pytest.approx(0.03 * np.e, rel=1e-4)
    assert moved(5.0, 0) == pytest.approx(0.8)
    assert moved(0.0, 40) == pytest.approx(-0.2)
    # The step size itself is at most 1, as published.
    assert moved(0.006, 200) == pytest.approx(0.2, rel=1e-3)
