"""Where wheels and ball touch the floor, and the soft contact forces that MuJoCo's solver finds there.

Two points of each wheel and one of the ball: five contacts of six directions, the normal, two slips, one twist about
the normal and two rolls. Friction is a pyramid: ten edges per contact, the normal plus or minus one direction times
its coefficient.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dreamproof.envs.car.inertia import BALL, DEGREES, HALF_WIDTH, MASS_MATRIX, RADIUS, ROLLING, WHEELS, cross_matrix

# Coefficients of twist and roll; that of slip is a parameter.
TWIST, ROLL = 0.005, 0.0001
# MuJoCo's default contact: a time constant of 20 ms, critically damped, an impedance of 0.9 to 0.95 over 1 mm.
SECONDS, MIN_IMPEDANCE, MAX_IMPEDANCE, WIDTH = 0.02, 0.9, 0.95, 0.001
DAMPING = 2 / (MAX_IMPEDANCE * SECONDS)
STIFFNESS = 1 / (MAX_IMPEDANCE * SECONDS) ** 2
SOLVER_ITERATIONS = 10
LINE_STEPS = 2

_OWNER = np.array([0, 0, 1, 1, 2])
_CENTRE = np.array([*WHEELS, BALL])[_OWNER]
_SPIN = np.stack([solid.spin for solid in ROLLING])[_OWNER]
_TURNING = np.stack([solid.turning for solid in ROLLING])[_OWNER]
_INVERSE = np.linalg.inv(MASS_MATRIX)
# How far a unit of force accelerates the part that touches, in the mean of all directions, 1/kg.
_YIELD = np.array([np.trace(solid.moving @ _INVERSE @ solid.moving.T) / 3 for solid in ROLLING])[_OWNER]
_CROSS = np.stack([cross_matrix(axis) for axis in np.eye(3)], axis=-1)


class Contacts(NamedTuple):
    """Edges (E, 11) of all friction pyramids, how they approach without acceleration (E,), and how they resist (E,)."""

    edges: Array
    approach: Array
    strength: Array


def find_contacts(height: Array, axes: Array, velocity: Array, mass: Array, friction: Array) -> Contacts:
    """Contacts of a chassis at a height, with the world's axes (3, 3) in its frame as rows, at velocities (11,)."""
    depth, at = _touch(height, axes[2])
    reach = jnp.minimum(jnp.abs(depth) / WIDTH, 1.0)
    curve = jnp.where(reach < 0.5, 2 * reach**2, 1 - 2 * (1 - reach) ** 2)
    impedance = MIN_IMPEDANCE + curve * (MAX_IMPEDANCE - MIN_IMPEDANCE)
    yields = 2 * friction**2 * (1 + friction**2) * _YIELD / mass * (1 - impedance) / impedance
    strength = jnp.where(depth >= 0, 1 / yields, 0.0)
    edges = _edges(_directions(at, axes), friction)
    approach = DAMPING * edges @ velocity - (STIFFNESS * impedance * depth)[:, None]
    per_edge = jnp.broadcast_to(strength[:, None], approach.shape)
    return Contacts(edges.reshape(-1, DEGREES), approach.ravel(), per_edge.ravel())


def _edges(directions: Array, friction: Array) -> Array:
    """The normal plus and minus every other direction times its coefficient, (C, 10, 11)."""
    factors = jnp.stack([friction, friction, *jnp.array([TWIST, ROLL, ROLL])])
    normal, others = directions[:, :1], factors[:, None] * directions[:, 1:]
    return jnp.concatenate([normal + others, normal - others], axis=1)


def _touch(height: Array, up: Array) -> tuple[Array, Array]:
    """How deep (C,) the lowest points are below the floor of normal `up` (3,), and where the contacts (C, 3) lie."""
    # The lowest point of a wheel's rim is across its axis; of the ball below its centre.
    across = jnp.array([0.0, up[1], up[2]])
    rim = -RADIUS * across / jnp.sqrt(up[1] ** 2 + up[2] ** 2)
    side = jnp.array([HALF_WIDTH, 0.0, 0.0])
    lowest = _CENTRE + jnp.stack([rim + side, rim - side, rim + side, rim - side, -RADIUS * up])
    depth = -(height + lowest @ up)
    return depth, lowest + 0.5 * depth[:, None] * up


def _directions(at: Array, axes: Array) -> Array:
    """Velocities (C, 6, 11) of the touching points along normal and slips, and turning about the same axes."""
    frame = jnp.stack([axes[2], axes[1], -axes[0]])
    arm, lever = _matrices(at), _matrices(at - _CENTRE)
    carried = jnp.concatenate([jnp.broadcast_to(jnp.eye(3), arm.shape), -arm], axis=2)
    moving = jnp.pad(carried, ((0, 0), (0, 0), (0, DEGREES - 6))) - lever @ _SPIN
    return jnp.concatenate([frame @ moving, frame @ _TURNING], axis=1)


def _matrices(vectors: Array) -> Array:
    """Matrices (C, 3, 3) that multiply like vectors (C, 3) ×."""
    return jnp.einsum("ijk,ck->cij", _CROSS, vectors)


def solve(contacts: Contacts, inertia: Array, force: Array, guess: Array) -> Array:
    """Accelerations (11,) under a force (11,) and the contacts: Newton's method on MuJoCo's convex problem."""

    def improve(now: Array, _: None) -> tuple[Array, None]:
        closing = contacts.edges @ now + contacts.approach
        resists = jnp.where(closing < 0, contacts.strength, 0.0)
        residual = inertia @ now - force + (resists * closing) @ contacts.edges
        step = -solve_symmetric(inertia + (contacts.edges.T * resists) @ contacts.edges, residual)
        straight = (step @ (inertia @ now - force), step @ inertia @ step)
        return now + _length(contacts, closing, contacts.edges @ step, straight) * step, None

    return lax.scan(improve, guess, None, length=SOLVER_ITERATIONS)[0]


def _length(contacts: Contacts, closing: Array, change: Array, straight: tuple[Array, Array]) -> Array:
    """How far to follow a step: the minimum of the convex problem along it."""
    slope, curvature = straight
    length = jnp.ones(())
    for _ in range(LINE_STEPS):
        reached = closing + length * change
        resisted = jnp.where(reached < 0, contacts.strength, 0.0) * change
        rise = slope + length * curvature + resisted @ reached
        length = length - rise / jnp.maximum(curvature + resisted @ change, 1e-30)
    return length


def solve_symmetric(matrix: Array, right: Array) -> Array:
    """The solution (D,) of a positive definite system (D, D), by elimination; quick for a batch of small systems."""
    rows = jnp.concatenate([matrix, right[:, None]], axis=1)
    for pivot in range(len(right)):
        own = rows[pivot] / rows[pivot, pivot]
        rows = (rows - rows[:, pivot, None] * own).at[pivot].set(own)
    return rows[:, -1]
