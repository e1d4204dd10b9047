"""Parameters of the Goal tasks: levels, physics, actuators, layout, sensors, hallucinations."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.settings.env import Shift

HAZARD_CAPACITY = 16
GHOST_CAPACITY = 3
SUBSTEPS = 10
SUBSTEP_SECONDS = 0.002
PARKED = (3.0, 0.0)


class GoalLevel(NamedTuple):
    """What is static of a level: half the side of the board (m), how many hazards and vases, and whether vases cost."""

    extent: float
    hazards: int
    vases: int
    vases_cost: bool

    @property
    def costs(self) -> tuple[str, ...]:
        """Names of the constraints."""
        return ("hazards", "vases") if self.vases_cost else ("hazards",)


LEVEL_1 = GoalLevel(extent=1.5, hazards=8, vases=1, vases_cost=False)
LEVEL_2 = GoalLevel(extent=2.0, hazards=10, vases=10, vases_cost=True)


def _real(value: float) -> Array:
    return jnp.asarray(value, jnp.float32)


def _whole(value: int) -> Array:
    return jnp.asarray(value, jnp.int32)


class Physics(NamedTuple):
    """The 3-DoF body: kg, kg m, kg m², N s/m, N m s."""

    mass: Array
    first_moment: Array
    inertia: Array
    damping: Array
    yaw_damping: Array
    force_gain: Array
    yaw_gain: Array
    gear: Array
    actuator_limit: Array

    @classmethod
    def of_point(cls) -> "Physics":
        """Two solids of density 1: a sphere of radius 0.1 and a cube of half-size 0.05 centred 0.1 m ahead."""
        return cls(
            mass=_real(5.18879020e-3),
            first_moment=_real(1.0e-4),
            inertia=_real(2.84218308e-5),
            damping=_real(0.01),
            yaw_damping=_real(0.005),
            force_gain=_real(1.0),
            yaw_gain=_real(1.0),
            gear=_real(0.3),
            actuator_limit=_real(0.05),
        )

    def varied(self, mass: Array, damping: Array, force: Array) -> "Physics":
        """With these factors of mass, damping and drive force."""
        return self._replace(
            mass=self.mass * mass,
            first_moment=self.first_moment * mass,
            inertia=self.inertia * mass,
            damping=self.damping * damping,
            force_gain=self.force_gain * force,
        )

    def shifted(self, shift: Shift) -> "Physics":
        """With a condition's factors."""
        if shift.friction_factor != 1:
            raise BadInput("friction_factor: the point robot has no friction with the floor", "use damping_factor")
        varied = self.varied(*map(_real, (shift.mass_factor, shift.damping_factor, shift.force_factor)))
        return varied._replace(yaw_gain=self.yaw_gain * _real(shift.yaw_gain_factor))


class Actuators(NamedTuple):
    """Perturbation of actions; the delay is in agent steps."""

    delay: Array
    noise: Array


class Layout(NamedTuple):
    """Placement and radii of objects, in metres."""

    extent: Array
    agent_keepout: Array
    goal_keepout: Array
    hazard_keepout: Array
    vase_keepout: Array
    goal_radius: Array
    hazard_radius: Array
    hazards: Array


class Sensors(NamedTuple):
    """Perturbation of observations; the delay is in agent steps."""

    noise: Array
    place_noise: Array
    dropout: Array
    delay: Array


class Hallucination(NamedTuple):
    """Ghost and missed hazards; `held` and `original` are 0 or 1."""

    ghost_chance: Array
    ghosts: Array
    ghost_min: Array
    ghost_max: Array
    ghost_reach: Array
    miss_chance: Array
    misses: Array
    miss_min: Array
    miss_max: Array
    held: Array
    original: Array


class PointParams(NamedTuple):
    """All parameters; every leaf is a scalar, or (N,) if envs differ. `physics` are those of the robot."""

    physics: Any
    actuators: Actuators
    layout: Layout
    sensors: Sensors
    hallucination: Hallucination


def default_params(level: GoalLevel, physics: Any) -> PointParams:
    """The official task of a level, with the physics of its robot."""
    return PointParams(
        physics,
        Actuators(delay=_whole(0), noise=_real(0.0)),
        Layout(
            extent=_real(level.extent),
            agent_keepout=_real(0.4),
            goal_keepout=_real(0.305),
            hazard_keepout=_real(0.18),
            vase_keepout=_real(0.15),
            goal_radius=_real(0.3),
            hazard_radius=_real(0.2),
            hazards=_whole(level.hazards),
        ),
        Sensors(noise=_real(0.0), place_noise=_real(0.0), dropout=_real(0.0), delay=_whole(0)),
        Hallucination(
            ghost_chance=_real(0.0),
            ghosts=_whole(0),
            ghost_min=_whole(1),
            ghost_max=_whole(1),
            ghost_reach=_real(1.5),
            miss_chance=_real(0.0),
            misses=_whole(0),
            miss_min=_whole(1),
            miss_max=_whole(1),
            held=_whole(0),
            original=_whole(0),
        ),
    )
