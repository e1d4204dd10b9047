"""The car's solids and what follows from them: its mass matrix, and how it accelerates without contacts.

Everything is in the chassis' own frame, in which both wheels and the ball look the same however far they have turned;
so the mass matrix is constant. Generalised velocities (11,): the chassis' velocity (3) and angular velocity (3),
the spins of both wheels about x, the ball's angular velocity relative to the chassis (3).
"""

from typing import NamedTuple

import numpy as np

DENSITY = 5.0
RADIUS = 0.05
HALF_WIDTH = 0.025
DEGREES = 11
# Centre and half-sizes of body, rear and front bumper and what holds them.
BOXES = (
    ((0.0, 0.0, 0.0), (0.1, 0.1, 0.05)),
    ((0.0, 0.15, 0.0), (0.1, 0.01, 0.05)),
    ((0.0, 0.125, 0.0), (0.01, 0.025, 0.03)),
    ((0.0, -0.165, 0.0), (0.05, 0.01, 0.05)),
    ((0.0, -0.13, 0.04), (0.05, 0.03, 0.01)),
)
WHEELS = ((-0.13, 0.1, -0.05), (0.13, 0.1, -0.05))
BALL = (0.0, -0.1, -0.05)


class Solid(NamedTuple):
    """Mass (kg), centre (3,), inertia about it (3, 3), and its spin (3, 11) relative to the chassis per velocity."""

    mass: float
    centre: np.ndarray
    inertia: np.ndarray
    spin: np.ndarray

    @property
    def moving(self) -> np.ndarray:
        """Velocity (3, 11) of the centre per generalised velocity."""
        return np.hstack([np.eye(3), -cross_matrix(self.centre), np.zeros((3, 5))])

    @property
    def turning(self) -> np.ndarray:
        """Angular velocity (3, 11) per generalised velocity."""
        return np.hstack([np.zeros((3, 3)), np.eye(3), np.zeros((3, 5))]) + self.spin


def cross_matrix(vector: np.ndarray) -> np.ndarray:
    """The matrix (3, 3) that multiplies like vector ×."""
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def _spin(columns: dict[int, int]) -> np.ndarray:
    """Spin (3, 11) from {generalised velocity: axis}."""
    spin = np.zeros((3, DEGREES))
    for column, axis in columns.items():
        spin[axis, column] = 1.0
    return spin


def _box(centre: tuple[float, ...], half: tuple[float, ...]) -> Solid:
    mass = DENSITY * 8 * float(np.prod(half))
    squares = np.square(half)
    return Solid(mass, np.array(centre), np.diag(mass / 3 * (squares.sum() - squares)), _spin({}))


def _wheel(centre: tuple[float, ...], column: int) -> Solid:
    mass = DENSITY * np.pi * RADIUS**2 * 2 * HALF_WIDTH
    across = mass * (RADIUS**2 / 4 + HALF_WIDTH**2 / 3)
    return Solid(mass, np.array(centre), np.diag([mass * RADIUS**2 / 2, across, across]), _spin({column: 0}))


def _ball() -> Solid:
    mass = DENSITY * 4 / 3 * np.pi * RADIUS**3
    return Solid(mass, np.array(BALL), 0.4 * mass * RADIUS**2 * np.eye(3), _spin({8: 0, 9: 1, 10: 2}))


ROLLING = (_wheel(WHEELS[0], 6), _wheel(WHEELS[1], 7), _ball())
SOLIDS = (*(_box(*box) for box in BOXES), *ROLLING)
MASS_MATRIX = sum(
    solid.moving.T @ solid.moving * solid.mass + solid.turning.T @ solid.inertia @ solid.turning for solid in SOLIDS
)
