"""Feedback from acting: coefficients that follow the cost of finished episodes, and statistics of the surprise."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

COST_RATE = 0.01
PROPORTIONAL_RATE = SMOOTH_RATE = 0.05
"""Weights of one finished episode in the averages."""
LOOK_BACK = 10
"""Rounds of finished episodes over which the derivative of the cost is taken."""
SURPRISE_RATE = 0.001
NO_EPISODE = -1.0
"""The average cost before the first finished episode; costs are never negative."""


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
    """Initial feedback: no episode yet, unit variance of the surprise, coefficients as set."""
    zero, none = jnp.zeros(()), jnp.full(LOOK_BACK + 1, NO_EPISODE, jnp.float32)
    return Feedback(none[0], none, zero, zero, zero, zero, jnp.ones(()))


def after_episodes(feedback: Feedback, cost: Array, episodes: Array | int, scalars: dict[str, Any]) -> Feedback:
    """Feedback after a round of so many training episodes with this mean cost; averages of costs start at the first.

    The planner's cost coefficient follows a PID controller (OSRP-Lag; SafeDreamer, 2024), the risk coefficient an
    integral controller (CAP; Ma et al., 2022). With gains of 0 both keep their set values.
    """
    planner, risk = scalars["planner"], scalars["risk"]

    def averaged(before: Array, now: Array, rate: float) -> Array:
        return before + (1.0 - (1.0 - rate) ** episodes) * (now - before)

    is_first = feedback.cost < 0
    average = averaged(jnp.where(is_first, cost, feedback.cost), cost, COST_RATE)
    smooth = jnp.where(is_first, cost, feedback.smooth)
    excess = average - planner["cost_limit"]
    integral = feedback.integral + episodes * planner["integral_gain"] * excess
    raised = feedback.risk_coef_offset + episodes * risk["coef_rate"] * excess
    return feedback._replace(
        cost=average,
        smooth=jnp.append(smooth[1:], averaged(smooth[-1], cost, SMOOTH_RATE)),
        proportional=averaged(feedback.proportional, excess, PROPORTIONAL_RATE),
        # Bounded like the coefficient itself: a larger sum would only delay its fall.
        integral=jnp.clip(integral, 0.0, planner["cost_coef_max"]),
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
