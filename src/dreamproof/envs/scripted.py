"""Scripted baseline policies: random, and straight to the goal."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Spec
from dreamproof.envs.steering import steer, steer_wheels

Policy = Callable[[Array, Array], Array]


def random_policy(spec: Spec) -> Policy:
    """Uniform actions (N, A) from a key and observations (N, O)."""

    def act(key: Array, observation: Array) -> Array:
        return jax.random.uniform(key, (observation.shape[0], spec.action_size), minval=-1.0, maxval=1.0)

    return act


def go_to_goal_policy(spec: Spec) -> Policy:
    """Drives straight to the goal, from the goal's coordinates or its lidar."""
    goal, lidar, others = spec.slot("goal"), spec.slot("goal_lidar"), spec.slot("hazards_lidar")
    if goal is None and (lidar is None or others is None):
        raise BadInput(f"the task '{spec.name}' does not observe a goal", "use the floor 'random' alone")

    def act(key: Array, observation: Array) -> Array:
        del key
        if goal is not None:
            ahead, left = observation[:, goal.start], observation[:, goal.start + 1]
        else:
            ahead, left = _lidar_direction(observation[:, lidar], observation[:, others])
        return jnp.asarray((steer_wheels if spec.wheels else steer)(ahead, left, jnp))

    return act


def _lidar_direction(goal: Array, hazards: Array) -> tuple[Array, Array]:
    """A direction (N,), (N,) to the goal, or to the hazards while the goal is out of the lidar's range."""
    bins = goal.shape[1]
    width = 2 * jnp.pi / bins
    # The brightest bin holds the goal; the brightness of the next one gives the position within the bin.
    here = jnp.argmax(goal, axis=1)
    row = jnp.arange(goal.shape[0])
    through = goal[row, (here + 1) % bins] / jnp.maximum(goal[row, here], 1e-6)
    bearing = (here + through) * width
    is_seen = jnp.max(goal, axis=1) > 0
    middles = (jnp.arange(bins) + 0.5) * width
    ahead = jnp.where(is_seen, jnp.cos(bearing), hazards @ jnp.cos(middles))
    left = jnp.where(is_seen, jnp.sin(bearing), hazards @ jnp.sin(middles))
    return ahead, left


FLOORS: dict[str, Callable[[Spec], Policy]] = {"random": random_policy, "go_to_goal": go_to_goal_policy}


def floors(spec: Spec) -> dict[str, Policy]:
    """The scripted policies that a task supports, by name."""
    has_goal = spec.slot("goal") is not None or spec.slot("goal_lidar") is not None
    return {name: make(spec) for name, make in FLOORS.items() if name == "random" or has_goal}
