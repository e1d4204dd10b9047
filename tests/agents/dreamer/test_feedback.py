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


def after(costs: list[float], scalars: dict[str, Any]) -> Feedback:
    """Feedback after rounds of episodes with these mean costs."""
    feedback = init_feedback()
    for cost in costs:
        feedback = after_episodes(feedback, jnp.asarray(cost), scalars)
    return feedback


def test_without_gains_the_price_is_the_one_set() -> None:
    scalars = scalars_of(cost_coef=0.03)
    assert float(planner_cost_coef(after([90.0] * 20, scalars), scalars["planner"])) == pytest.approx(0.03)


def test_the_integral_sums_the_excess_and_never_falls_below_zero() -> None:
    scalars = scalars_of(integral_gain=0.01, cost_limit=2.0)
    # The average of costs moves by a hundredth a round: 1, then 1.99; both are below the limit of 2.
    assert float(after([100.0], scalars).integral) == 0.0
    # 4, then 4 + 0.01·396 = 7.96.
    steep = after([400.0, 400.0], scalars)
    assert float(steep.integral) == pytest.approx(0.01 * (4.0 - 2.0) + 0.01 * (7.96 - 2.0), rel=1e-5)


def test_a_rise_of_the_cost_counts_and_a_fall_does_not() -> None:
    scalars = scalars_of(derivative_gain=0.01, cost_coef_max=9.0)
    rising, falling = after([0.0] * 11 + [40.0] * 5, scalars), after([40.0] * 60 + [0.0] * 11, scalars)
    assert float(planner_cost_coef(rising, scalars["planner"])) > 0.05
    assert float(planner_cost_coef(falling, scalars["planner"])) == 0.0


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
