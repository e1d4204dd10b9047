"""Ground contact and joint limits as springs, as in dflex: soft and nearly elastic."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

SLOWEST = 1e-6  # m/s; lower bound of the slip speed


class Springs(NamedTuple):
    """Spring constants of the ground and the joint limits of a body.

    stiffness N/m of the ground; damping N s/m² against sinking, proportional to depth; grip N s/m against slipping;
    limit N m/rad of a joint beyond its range.
    """

    stiffness: float
    damping: float
    grip: float
    limit: float


def ground_force(springs: Springs, lowest: Array, velocity: Array, friction: Array) -> Array:
    """The ground's force (K, 3) on balls whose lowest points (K, 3) move with a velocity (K, 3), friction (K,).

    The normal force is proportional to the depth; the slip force is at most friction times the normal force without
    its damping.
    """
    depth = jnp.maximum(-lowest[:, 2], 0.0)
    push = springs.stiffness * depth
    sinking = jnp.maximum(-velocity[:, 2], 0.0)
    slip = velocity[:, :2]
    speed = jnp.sqrt(jnp.sum(slip**2, axis=1))
    hold = jnp.minimum(springs.grip, friction * push / jnp.maximum(speed, SLOWEST))
    return jnp.concatenate([-hold[:, None] * slip, (push + springs.damping * depth * sinking)[:, None]], axis=1)


def limit_torque(springs: Springs, angles: Array, lower: Array, upper: Array) -> Array:
    """Restoring torque of joints beyond their range; 0 inside."""
    return springs.limit * (jnp.maximum(lower - angles, 0.0) - jnp.maximum(angles - upper, 0.0))
