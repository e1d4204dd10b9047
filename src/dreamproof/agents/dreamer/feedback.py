"""Feedback from acting: coefficients that follow the cost of finished episodes, and statistics of the surprise."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

COST_RATE = 0.01
PROPORTIONAL_RATE = SMOOTH_RATE = 0.05
LOOK_BACK = 10
"""Rounds of finished episodes over which the derivative of the cost is taken."""
SURPRISE_RATE = 0.001


class Feedback(NamedTuple):
    """Averages of the cost of training episodes, the three parts of a PID controller, and moments of the surprise."""

    cost: Array
    smooth: Array
    proportional: Array
    integral: Array
    risk_coef_offset: Array
    surprise_mean: Array
    surprise_square: Array


def init_feedback() -> Feedback:
    """Initial feedback: unit variance of the surprise, coefficients as set."""
    zero = jnp.zeros(())
    return Feedback(zero, jnp.zeros(LOOK_BACK + 1), zero, zero, zero, zero, jnp.ones(()))


def after_episodes(feedback: Feedback, cost: Array, scalars: dict[str, Any]) -> Feedback:
    """Feedback after a round of training episodes with this mean cost.

    The planner's cost coefficient follows a PID controller (OSRP-Lag; SafeDreamer, 2024), the risk coefficient an
    integral controller (CAP; Ma et al., 2022). With gains of 0 both keep their set values.
    """
    planner, risk = scalars["planner"], scalars["risk"]
    average = feedback.cost + COST_RATE * (cost - feedback.cost)
    excess = average - planner["cost_limit"]
    newest = feedback.smooth[-1] + SMOOTH_RATE * (cost - feedback.smooth[-1])
    raised = feedback.risk_coef_offset + risk["coef_rate"] * excess
    return feedback._replace(
        cost=average,
        smooth=jnp.append(feedback.smooth[1:], newest),
        proportional=feedback.proportional + PROPORTIONAL_RATE * (excess - feedback.proportional),
        integral=jnp.maximum(0.0, feedback.integral + planner["integral_gain"] * excess),
        risk_coef_offset=jnp.clip(raised, -risk["coef"], risk["coef_max"] - risk["coef"]),
    )


def planner_cost_coef(feedback: Feedback, planner: dict[str, Array]) -> Array:
    """The weight of cost among safe candidates."""
    rise = jnp.maximum(0.0, feedback.smooth[-1] - feedback.smooth[0])
    follows = planner["proportional_gain"] * feedback.proportional + feedback.integral
    return jnp.clip(planner["cost_coef"] + follows + planner["derivative_gain"] * rise, 0.0, planner["cost_coef_max"])


def after_surprise(feedback: Feedback, surprise: Array) -> Feedback:
    """Updates the moments with surprises (N,) of training."""
    mean = feedback.surprise_mean + SURPRISE_RATE * (surprise.mean() - feedback.surprise_mean)
    square = feedback.surprise_square + SURPRISE_RATE * ((surprise**2).mean() - feedback.surprise_square)
    return feedback._replace(surprise_mean=mean, surprise_square=square)


def innovation(feedback: Feedback, surprise: Array) -> Array:
    """Standard deviations of a surprise above its mean in training, (N,)."""
    variance = feedback.surprise_square - feedback.surprise_mean**2
    return (surprise - feedback.surprise_mean) / jnp.sqrt(jnp.maximum(variance, 1e-6))
