"""The car as MuJoCo integrates it: ten substeps of 4 ms, with the contacts solved in each."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dreamproof.base.errors import BadInput
from dreamproof.envs.car.contacts import find_contacts, solve, solve_symmetric
from dreamproof.envs.car.inertia import DEGREES, MASS_MATRIX
from dreamproof.settings.env import Shift

SUBSTEPS = 10
SUBSTEP_SECONDS = 0.004
GRAVITY = 9.81
START_HEIGHT = 0.1
MOTOR_LIMIT = 0.02
_DAMPED = np.diag([0.0] * 6 + [1.0] * 5)


class CarPhysics(NamedTuple):
    """Factors of mass and motor torque, damping of wheels and ball (N m s), friction with the floor."""

    mass: Array
    torque: Array
    damping: Array
    friction: Array

    @classmethod
    def of_car(cls) -> "CarPhysics":
        """The official car."""
        return cls(*(jnp.asarray(value, jnp.float32) for value in (1.0, 1.0, 0.001, 1.0)))

    def varied(self, mass: Array, damping: Array, force: Array) -> "CarPhysics":
        """With these factors of mass, damping and motor torque."""
        return self._replace(mass=self.mass * mass, damping=self.damping * damping, torque=self.torque * force)

    def shifted(self, shift: Shift) -> "CarPhysics":
        """With a condition's factors."""
        if shift.yaw_gain_factor != 1:
            raise BadInput("yaw_gain_factor: the car turns by its two wheels alone", "use force_factor")
        factors = (shift.mass_factor, shift.damping_factor, shift.force_factor, shift.friction_factor)
        mass, damping, force, friction = (jnp.asarray(factor, jnp.float32) for factor in factors)
        return self.varied(mass, damping, force)._replace(friction=self.friction * friction)


class CarBody(NamedTuple):
    """Chassis: place (3,) m, quaternion (4,), velocity (3,) m/s in the world; angular velocity (3,) rad/s in its frame.

    spins (5,): of both wheels about x and of the ball, relative to the chassis, rad/s.
    """

    place: Array
    rotation: Array
    velocity: Array
    turning: Array
    spins: Array

    @property
    def x(self) -> Array:
        """Metres."""
        return self.place[..., 0]

    @property
    def y(self) -> Array:
        """Metres."""
        return self.place[..., 1]

    @property
    def own_velocity(self) -> Array:
        """Velocity (3,) of one car in the chassis' frame, m/s."""
        return self.velocity @ _axes(self.rotation)

    @property
    def heading(self) -> Array:
        """Where equal positive commands drive, the chassis' own -y, rad."""
        forward = -_axes(self.rotation)[..., 1]
        return jnp.arctan2(forward[..., 1], forward[..., 0])


def ahead_and_left(vector: Array) -> Array:
    """The horizontal part (2,) of a vector (3,) in the chassis' frame, seen by a driver."""
    return jnp.stack([-vector[1], vector[0]])


def standing(place: Array, heading: Array) -> CarBody:
    """A car at rest at a place (2,)."""
    half = (heading + jnp.pi / 2) / 2
    zero = jnp.zeros(())
    rotation = jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)])
    return CarBody(jnp.append(place, START_HEIGHT), rotation, jnp.zeros(3), jnp.zeros(3), jnp.zeros(5))


def simulate(body: CarBody, action: Array, physics: CarPhysics) -> CarBody:
    """One simulator step of 40 ms."""

    def substep(carry: tuple[CarBody, Array], _: None) -> tuple[tuple[CarBody, Array], None]:
        body, guess = carry
        found = _accelerate(body, action, physics, guess)
        return (_integrate(body, found, physics), found), None

    # A GPU would multiply with 10 bits.
    with jax.default_matmul_precision("highest"):
        (body, _), _ = lax.scan(substep, (body, jnp.zeros(DEGREES)), None, length=SUBSTEPS)
    return body


def felt_acceleration(body: CarBody, action: Array, physics: CarPhysics) -> Array:
    """Acceleration (3,) at the chassis' origin in its frame, gravity included, as the accelerometer reads it."""
    with jax.default_matmul_precision("highest"):
        found = _accelerate(body, action, physics, jnp.zeros(DEGREES))
    return found[:3] + GRAVITY * _axes(body.rotation)[2]


def _accelerate(body: CarBody, action: Array, physics: CarPhysics, guess: Array) -> Array:
    """Accelerations (11,) in the chassis' frame."""
    axes = _axes(body.rotation)
    inertia = physics.mass * MASS_MATRIX
    velocity = jnp.concatenate([body.velocity @ axes, body.turning, body.spins])
    torque = physics.torque * jnp.clip(action, -MOTOR_LIMIT, MOTOR_LIMIT)
    momentum = inertia[:, 3:] @ velocity[3:]
    turned = [jnp.cross(body.turning, momentum[part : part + 3]) for part in (0, 3, 8)]
    inertial = jnp.concatenate([turned[0], turned[1], jnp.zeros(2), turned[2]])
    driven = jnp.concatenate([jnp.zeros(6), torque, jnp.zeros(3)]) - physics.damping * _DAMPED @ velocity
    force = driven - inertial - GRAVITY * inertia[:, :3] @ axes[2]
    contacts = find_contacts(body.place[2], axes, velocity, physics.mass, physics.friction)
    return solve(contacts, inertia, force, guess)


def _integrate(body: CarBody, found: Array, physics: CarPhysics) -> CarBody:
    """The body after a substep; damping acts at its end (semi-implicit)."""
    seconds, inertia = SUBSTEP_SECONDS, physics.mass * MASS_MATRIX
    damped = solve_symmetric(inertia + seconds * physics.damping * _DAMPED, inertia @ found)
    velocity = body.velocity + seconds * _axes(body.rotation) @ damped[:3]
    turning = body.turning + seconds * damped[3:6]
    return CarBody(
        body.place + seconds * velocity,
        _turned(body.rotation, seconds * turning),
        velocity,
        turning,
        body.spins + seconds * damped[6:],
    )


def _axes(rotation: Array) -> Array:
    """The rotation matrix (..., 3, 3); its rows are the world's axes in the chassis' frame."""
    w, x, y, z = (rotation[..., part] for part in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def _turned(rotation: Array, turn: Array) -> Array:
    """A quaternion (4,) after a small turn (3,) in its own frame, of length 1."""
    angle = jnp.sqrt(turn @ turn + 1e-20)
    along = jnp.sin(angle / 2) / angle * turn
    w, vector = rotation[0], rotation[1:]
    real = w * jnp.cos(angle / 2) - vector @ along
    rest = w * along + jnp.cos(angle / 2) * vector + jnp.cross(vector, along)
    whole = jnp.concatenate([real[None], rest])
    return whole / jnp.sqrt(whole @ whole)
