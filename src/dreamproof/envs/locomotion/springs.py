"""Ground and joint limits as springs, as dflex has them: soft, and giving back most of what they take."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

SLOWEST = 1e-6  # m/s; slower slips have no direction


class Springs(NamedTuple):
    """How hard the ground and the joint limits of a body are.

    stiffness N/m of the ground; damping N s/m² and grip N s/m: what it does against sinking (the more the deeper) and
    against slipping; limit N m/rad of a joint beyond its range.
    """

    stiffness: float
    damping: float
    grip: float
    limit: float


def ground_force(springs: Springs, lowest: Array, velocity: Array, friction: Array) -> Array:
    """The ground's force (K, 3) on balls whose lowest points (K, 3) move with a velocity (K, 3), friction (K,).

    It pushes up in proportion to the depth and holds against slipping, at most with friction times that push; what
    damps sinking is not counted there.
    """
    depth = jnp.maximum(-lowest[:, 2], 0.0)
    push = springs.stiffness * depth
    sinking = jnp.maximum(-velocity[:, 2], 0.0)
    slip = velocity[:, :2]
    speed = jnp.sqrt(jnp.sum(slip**2, axis=1))
    hold = jnp.minimum(springs.grip, friction * push / jnp.maximum(speed, SLOWEST))
    return jnp.concatenate([-hold[:, None] * slip, (push + springs.damping * depth * sinking)[:, None]], axis=1)


def limit_torque(springs: Springs, angles: Array, lower: Array, upper: Array) -> Array:
    """What turns joints beyond their range back into it; nothing inside."""
    return springs.limit * (jnp.maximum(lower - angles, 0.0) - jnp.maximum(angles - upper, 0.0))
