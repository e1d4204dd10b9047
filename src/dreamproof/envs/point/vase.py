"""The vase: a light box on a rough floor, pushed in the plane. A rough model is enough: it has no cost."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.envs.point.dynamics import PointBody

HALF_SIZE = 0.1
ROBOT_CIRCLES = ((0.0, 0.1), (0.1, 0.055))
STEP_SECONDS = 0.02
FRICTION_DECELERATION = 9.81
TURN_LENGTH_SQUARED = 0.076**2


class Vase(NamedTuple):
    """Centre (m), heading (rad) and velocity (m/s)."""

    x: Array
    y: Array
    heading: Array
    velocity_x: Array
    velocity_y: Array


def push(vase: Vase, body: PointBody) -> Vase:
    """One simulator step: slide against friction, then move out of the robot's two circles."""
    speed = jnp.sqrt(vase.velocity_x**2 + vase.velocity_y**2)
    keep = jnp.maximum(0.0, 1.0 - FRICTION_DECELERATION * STEP_SECONDS / jnp.maximum(speed, 1e-6))
    slid = vase._replace(
        x=vase.x + STEP_SECONDS * keep * vase.velocity_x,
        y=vase.y + STEP_SECONDS * keep * vase.velocity_y,
        velocity_x=keep * vase.velocity_x,
        velocity_y=keep * vase.velocity_y,
    )
    for ahead, radius in ROBOT_CIRCLES:
        slid = _leave_circle(slid, body, ahead, radius)
    return slid


def _leave_circle(vase: Vase, body: PointBody, ahead: float, radius: float) -> Vase:
    """Moves and turns the box out of a circle; a push off-centre turns it (ellipsoidal limit surface)."""
    cosine, sine = jnp.cos(vase.heading), jnp.sin(vase.heading)
    centre_x = body.x + ahead * jnp.cos(body.heading)
    centre_y = body.y + ahead * jnp.sin(body.heading)
    world_x, world_y = centre_x - vase.x, centre_y - vase.y
    local_x, local_y = cosine * world_x + sine * world_y, cosine * world_y - sine * world_x
    contact_x, contact_y = jnp.clip(local_x, -HALF_SIZE, HALF_SIZE), jnp.clip(local_y, -HALF_SIZE, HALF_SIZE)
    gap_x, gap_y = contact_x - local_x, contact_y - local_y
    gap = jnp.sqrt(gap_x**2 + gap_y**2)
    inside = gap < 1e-6
    # A centre inside the box pushes along the line of centres.
    reach = jnp.maximum(jnp.sqrt(local_x**2 + local_y**2), 1e-6)
    normal_x = jnp.where(inside, -local_x / reach, gap_x / jnp.maximum(gap, 1e-6))
    normal_y = jnp.where(inside, -local_y / reach, gap_y / jnp.maximum(gap, 1e-6))
    depth = jnp.maximum(0.0, jnp.where(inside, radius + HALF_SIZE - reach, radius - gap))
    arm = contact_x * normal_y - contact_y * normal_x
    shift = depth / (1.0 + arm**2 / TURN_LENGTH_SQUARED)
    move_x = (cosine * normal_x - sine * normal_y) * shift
    move_y = (sine * normal_x + cosine * normal_y) * shift
    touched = depth > 0
    return Vase(
        vase.x + move_x,
        vase.y + move_y,
        vase.heading + shift * arm / TURN_LENGTH_SQUARED,
        jnp.where(touched, jnp.clip(move_x / STEP_SECONDS, -3.0, 3.0), vase.velocity_x),
        jnp.where(touched, jnp.clip(move_y / STEP_SECONDS, -3.0, 3.0), vase.velocity_y),
    )
