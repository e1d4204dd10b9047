"""Observations: the official 60 values with pseudo-lidar, and SafeDreamer's coordinate vector."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.envs.point.dynamics import PointBody, felt_acceleration
from dreamproof.envs.point.params import GoalLevel, Physics

LIDAR_BINS = 16
LIDAR_METRES = 3.0
MAGNETIC_FIELD = 0.5
GRAVITY = 9.81
CHAOTIC_WEIGHT = 0.1
HAZARD_TYPE, VASE_TYPE = (1.0, 0.0), (0.0, 1.0)


class Inner(NamedTuple):
    """Body-frame acceleration and velocity (2,), yaw rate, cosine and sine of the heading, world place (2,)."""

    acceleration: Array
    velocity: Array
    spin: Array
    cosine: Array
    sine: Array
    place: Array


class EgoView(NamedTuple):
    """Positions in the body frame (x ahead, y left): goal (2,), hazards (S, 2), vases (V, 2)."""

    goal: Array
    hazards: Array
    vases: Array


def sense_inner(body: PointBody, action: Array, physics: Physics) -> Inner:
    """The robot's own sensors after a step with `action`."""
    cosine, sine = jnp.cos(body.heading), jnp.sin(body.heading)
    return Inner(
        acceleration=jnp.stack(felt_acceleration(body, action, physics)),
        velocity=ego(jnp.stack([body.velocity_x, body.velocity_y]), cosine, sine),
        spin=body.spin,
        cosine=cosine,
        sine=sine,
        place=jnp.stack([body.x, body.y]),
    )


def ego(world: Array, cosine: Array, sine: Array) -> Array:
    """World vectors (..., 2) in the body frame."""
    x, y = world[..., 0], world[..., 1]
    return jnp.stack([cosine * x + sine * y, cosine * y - sine * x], axis=-1)


def coordinates(inner: Inner, entities: Array, goal: Array) -> Array:
    """The vector of SafeDreamer's coordinate task, 13 and what the entities (J, W) hold."""
    magnet = jnp.stack([-MAGNETIC_FIELD * inner.sine, -MAGNETIC_FIELD * inner.cosine, jnp.zeros_like(inner.sine)])
    own = [inner.velocity, inner.acceleration[:1], inner.spin[None], magnet]
    row = jnp.stack([inner.cosine, -inner.sine])
    return jnp.concatenate([*own, goal, entities.reshape(-1), row, inner.place])


def entity_width(level: GoalLevel) -> int:
    """Values of an entity: its position, and where vases cost also its type."""
    return 2 + len(HAZARD_TYPE) if level.vases_cost else 2


def entities(seen: EgoView, level: GoalLevel) -> Array:
    """What an observation holds as a set (J, W): hazards alone, or hazards and vases with their type one-hot."""
    if not level.vases_cost:
        return seen.hazards
    kinds = ((seen.hazards, HAZARD_TYPE), (seen.vases, VASE_TYPE))
    typed = [jnp.concatenate([places, jnp.tile(jnp.asarray(kind), (len(places), 1))], axis=1) for places, kind in kinds]
    return jnp.concatenate(typed)


def coordinate_slots(level: GoalLevel, ghost_slots: int) -> tuple[tuple[str, int, int], ...]:
    """Named parts of the coordinate vector; `hazards` includes the ghost slots."""
    width = entity_width(level)
    end = 9 + width * (level.hazards + ghost_slots)
    parts = [("velocity", 0, 2), ("acceleration", 2, 3), ("yaw_rate", 3, 4), ("magnetometer", 4, 7), ("goal", 7, 9)]
    parts += [("hazards", 9, end), ("real_hazards", 9, 9 + width * level.hazards)]
    if level.vases_cost:
        parts.append(("vases", end, end + width * level.vases))
        end += width * level.vases
    return (*parts, ("rotation", end, end + 2), ("position", end + 2, end + 4))


def lidar_vector(inner: Inner, seen: EgoView) -> Array:
    """The official observation of 60 values."""
    zero = jnp.zeros(1)
    magnet = jnp.stack([-MAGNETIC_FIELD * inner.sine, -MAGNETIC_FIELD * inner.cosine])
    own = [inner.acceleration, zero + GRAVITY, inner.velocity, zero, zero, zero, inner.spin[None], magnet, zero]
    return jnp.concatenate([*own, lidar(seen.goal[None]), lidar(seen.hazards), lidar(seen.vases)])


def lidar_slots() -> tuple[tuple[str, int, int], ...]:
    """Named parts of the official vector."""
    own = (("accelerometer", 0, 3), ("velocimeter", 3, 6), ("gyro", 6, 9), ("magnetometer", 9, 12))
    return (*own, ("goal_lidar", 12, 28), ("hazards_lidar", 28, 44), ("vases_lidar", 44, 60))


def lidar(points: Array) -> Array:
    """Closeness (16,) of body-frame points (P, 2), shared between neighbouring bins."""
    width = 2 * jnp.pi / LIDAR_BINS
    reach = jnp.sqrt(points[:, 0] ** 2 + points[:, 1] ** 2)
    closeness = jnp.maximum(0.0, LIDAR_METRES - reach) / LIDAR_METRES
    turns = (jnp.arctan2(points[:, 1], points[:, 0]) / width) % LIDAR_BINS
    bins = jnp.floor(turns)
    through = turns - bins
    number = jnp.arange(LIDAR_BINS, dtype=points.dtype)[:, None]
    here = (number == bins % LIDAR_BINS) * closeness
    after = (number == (bins + 1) % LIDAR_BINS) * closeness * through
    before = (number == (bins - 1) % LIDAR_BINS) * closeness * (1.0 - through)
    return jnp.max(jnp.maximum(here, jnp.maximum(after, before)), axis=1)


def reconstruction_weights(slots: tuple[tuple[str, int, int], ...], size: int) -> tuple[float, ...]:
    """1 per value, but less for accelerometer and yaw rate, which are chaotic because of the servo."""
    weights = [1.0] * size
    for name, start, stop in slots:
        if name in ("acceleration", "yaw_rate", "accelerometer", "gyro"):
            weights[start:stop] = [CHAOTIC_WEIGHT] * (stop - start)
    return tuple(weights)
