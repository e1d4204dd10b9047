"""Vases: light boxes that the robot pushes over a rough floor, in the plane and one at a time.

MuJoCo's vases hop while they slide and touch each other; here they are rigid squares whose friction is that of the
hopping slide on average. Touch is exact for upright boxes, the motion after it is not (benchmarks/PARITY_GOAL2.md).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.envs.point.dynamics import PointBody
from dreamproof.envs.point.touch import HALF_SIZE, Overlap, cube_overlap, sphere_overlap

STEP_SECONDS = 0.02
DECELERATION = 5.5
"""m/s² of a hopping slide; a box that does not hop has 9.81."""
BOUNCE = 0.2
SQUARED_GYRATION = 2 * HALF_SIZE**2 / 3
SETTLING_SPEED = 0.02
SETTLING_FACTOR = 0.52
REST_SPEED = 1e-4
"""Below this speed a vase counts as at rest, as in the official cost."""


class Vase(NamedTuple):
    """Centre (m), heading (rad), velocity (m/s) and yaw rate (rad/s); settling (m/s): vertical speed after a slide."""

    x: Array
    y: Array
    heading: Array
    velocity_x: Array
    velocity_y: Array
    spin: Array
    settling: Array


def at_rest(places: Array, headings: Array) -> Vase:
    """Vases (V,) at rest."""
    zero = jnp.zeros_like(headings)
    return Vase(places[..., 0], places[..., 1], headings, zero, zero, zero, zero)


def push(vase: Vase, body: PointBody) -> Vase:
    """One simulator step: slide against friction, then move out of the robot's sphere and cube."""
    slid = _slide(vase)
    for overlap in (sphere_overlap, cube_overlap):
        slid = _pushed(slid, body, overlap(slid, body, jnp))
    return slid


def moves(vase: Vase) -> Array:
    """Whether a vase is faster than at rest."""
    return vase.velocity_x**2 + vase.velocity_y**2 + vase.settling**2 >= REST_SPEED**2


def _slide(vase: Vase) -> Vase:
    speed = jnp.sqrt(vase.velocity_x**2 + vase.velocity_y**2 + SQUARED_GYRATION * vase.spin**2)
    keep = jnp.maximum(0.0, 1.0 - DECELERATION * STEP_SECONDS / jnp.maximum(speed, 1e-9))
    velocity_x, velocity_y, spin = keep * vase.velocity_x, keep * vase.velocity_y, keep * vase.spin
    settling = jnp.maximum(SETTLING_FACTOR * vase.settling, jnp.minimum(SETTLING_SPEED, speed))
    return Vase(
        vase.x + STEP_SECONDS * velocity_x,
        vase.y + STEP_SECONDS * velocity_y,
        vase.heading + STEP_SECONDS * spin,
        velocity_x,
        velocity_y,
        spin,
        settling,
    )


def _pushed(vase: Vase, body: PointBody, overlap: Overlap) -> Vase:
    """The vase out of the overlap, as fast as the robot where they touch and a little faster; without friction."""
    arm_x, arm_y = overlap.at_x - vase.x, overlap.at_y - vase.y
    arm = arm_x * overlap.normal_y - arm_y * overlap.normal_x
    share = 1.0 / (1.0 + arm**2 / SQUARED_GYRATION)
    robot_x = body.velocity_x - body.spin * (overlap.at_y - body.y)
    robot_y = body.velocity_y + body.spin * (overlap.at_x - body.x)
    approach = (robot_x - vase.velocity_x + vase.spin * arm_y) * overlap.normal_x
    approach += (robot_y - vase.velocity_y - vase.spin * arm_x) * overlap.normal_y
    touches = overlap.depth > 0
    shift = jnp.where(touches, overlap.depth * share, 0.0)
    impulse = jnp.where(touches, (1.0 + BOUNCE) * jnp.maximum(approach, 0.0) * share, 0.0)
    return vase._replace(
        x=vase.x + shift * overlap.normal_x,
        y=vase.y + shift * overlap.normal_y,
        heading=vase.heading + shift * arm / SQUARED_GYRATION,
        velocity_x=vase.velocity_x + impulse * overlap.normal_x,
        velocity_y=vase.velocity_y + impulse * overlap.normal_y,
        spin=vase.spin + impulse * arm / SQUARED_GYRATION,
        settling=jnp.where(touches, SETTLING_SPEED, vase.settling),
    )
