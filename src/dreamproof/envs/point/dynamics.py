"""The point robot, exactly as MuJoCo integrates it: 3 degrees of freedom, ten substeps of 2 ms, chatter included."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.envs.point.params import SUBSTEP_SECONDS, SUBSTEPS, Physics


class PointBody(NamedTuple):
    """Position (m), heading (rad, within ±pi), world velocity (m/s) and yaw rate (rad/s) of one robot."""

    x: Array
    y: Array
    heading: Array
    velocity_x: Array
    velocity_y: Array
    spin: Array


def drive_force(action: Array, physics: Physics) -> Array:
    """Force along the heading in N; saturates at 5 % of the range."""
    limit = physics.actuator_limit
    return physics.force_gain * physics.gear * jnp.clip(action[0], -limit, limit)


def turn_torque(action: Array, spin: Array, physics: Physics) -> Array:
    """Torque of the velocity servo in N m; it is stiff enough to chatter, as in the official task."""
    limit = physics.actuator_limit
    return physics.yaw_gain * physics.gear * jnp.clip(action[1] - physics.gear * spin, -limit, limit)


def _acceleration(
    body: PointBody, turn: tuple[Array, Array], forces: tuple[Array, Array], physics: Physics, seconds: float
) -> tuple[Array, Array, Array]:
    """(M + seconds D)⁻¹ f in the world frame; seconds = 0 gives the accelerometer reading."""
    cosine, sine = turn
    force, torque = forces
    moment = physics.first_moment
    along = force + moment * body.spin * body.spin
    force_x = along * cosine - physics.damping * body.velocity_x
    force_y = along * sine - physics.damping * body.velocity_y
    inverse_mass = 1.0 / (physics.mass + seconds * physics.damping)
    inertia = physics.inertia + seconds * physics.yaw_damping - moment * moment * inverse_mass
    across = sine * force_x - cosine * force_y
    spin_rate = (torque - physics.yaw_damping * body.spin + moment * across * inverse_mass) / inertia
    pull = moment * spin_rate
    return (force_x + pull * sine) * inverse_mass, (force_y - pull * cosine) * inverse_mass, spin_rate


def _turned(turn: tuple[Array, Array], angle: Array) -> tuple[Array, Array]:
    """Cosine and sine after a small turn; the series is exact to float32 below 0.1 rad."""
    square = angle * angle
    small_cosine = 1.0 - square * (0.5 - square * (1.0 / 24.0))
    small_sine = angle * (1.0 - square * (1.0 / 6.0 - square * (1.0 / 120.0)))
    cosine, sine = turn
    return cosine * small_cosine - sine * small_sine, sine * small_cosine + cosine * small_sine


def simulate(body: PointBody, action: Array, physics: Physics) -> PointBody:
    """One simulator step of 20 ms."""
    seconds = SUBSTEP_SECONDS
    force = drive_force(action, physics)
    turn = (jnp.cos(body.heading), jnp.sin(body.heading))
    for _ in range(SUBSTEPS):
        torque = turn_torque(action, body.spin, physics)
        rate_x, rate_y, rate_spin = _acceleration(body, turn, (force, torque), physics, seconds)
        velocity_x = body.velocity_x + seconds * rate_x
        velocity_y = body.velocity_y + seconds * rate_y
        spin = body.spin + seconds * rate_spin
        turn = _turned(turn, seconds * spin)
        body = PointBody(
            body.x + seconds * velocity_x,
            body.y + seconds * velocity_y,
            body.heading + seconds * spin,
            velocity_x,
            velocity_y,
            spin,
        )
    # A heading near zero keeps its float32 digits; the observation holds only its sine and cosine.
    return body._replace(heading=body.heading - 2 * jnp.pi * jnp.round(body.heading / (2 * jnp.pi)))


def felt_acceleration(body: PointBody, action: Array, physics: Physics) -> tuple[Array, Array]:
    """Forward and leftward acceleration (m/s²) in the body frame, as the accelerometer reads it."""
    turn = (jnp.cos(body.heading), jnp.sin(body.heading))
    forces = (drive_force(action, physics), turn_torque(action, body.spin, physics))
    rate_x, rate_y, _ = _acceleration(body, turn, forces, physics, 0.0)
    return turn[0] * rate_x + turn[1] * rate_y, turn[0] * rate_y - turn[1] * rate_x
