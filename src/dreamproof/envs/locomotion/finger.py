"""DM-Control's finger, which spins a body on a hinge or turns it to a random angle."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.params import BodyParams
from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.suite import SuiteTask, joint_ranges, one_of, poses_without_contact
from dreamproof.envs.locomotion.task import Slots

HINGE = 2
TIP_METRES = 0.13
"""From the hinge to the spinner's tip, and to every target."""


@dataclass(frozen=True)
class Finger(SuiteTask):
    """Two links beside a spinner."""

    body_name: ClassVar[str] = "finger"
    substeps: ClassVar[int] = 2
    slots: ClassVar[Slots] = (("position", 4), ("velocity", 3), ("touch", 2))

    def start(self, key: Array) -> tuple[Array, Array]:
        """At rest; any angles at which nothing touches."""
        lower, upper = (tuple(map(float, end)) for end in joint_ranges(self.body))
        (position,) = one_of(key, poses_without_contact(self.body, lower, upper))
        return position, jnp.zeros(3)

    def tip(self, motion: Motion) -> Array:
        """The spinner's tip (2,) in x and z, seen from the hinge."""
        angle = motion.position[HINGE]
        return TIP_METRES * jnp.stack([-jnp.sin(angle), jnp.cos(angle)])

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Angles of the finger, tip of the spinner, velocities, logarithm of the touch sensors."""
        del last_action
        parts = (motion.position[:HINGE], self.tip(motion), motion.velocity, jnp.log1p(motion.touch))
        return jnp.concatenate(parts)


@dataclass(frozen=True)
class SpinningFinger(Finger):
    """A spinner with little damping."""

    def default_params(self) -> BodyParams:
        """The body's parameters except the damping of the hinge."""
        params = super().default_params()
        return params._replace(damping=params.damping.at[HINGE].set(0.03))


def finger_spin(finger: SpinningFinger, motion: Motion, action: Array) -> Array:
    """1 while the spinner turns clockwise at 15 rad/s or faster."""
    del finger, action
    return (motion.velocity[HINGE] <= -15.0).astype(jnp.float32)


@dataclass(frozen=True)
class TurningFinger(Finger):
    """A spinner whose tip is to be turned into a target of 0.07 m."""

    slots: ClassVar[Slots] = (*Finger.slots, ("target", 2), ("distance", 1))
    target_radius: ClassVar[float] = 0.07

    def target(self, key: Array) -> Array:
        """A point (2,) in x and z on the circle of the tip, seen from the hinge."""
        angle = jax.random.uniform(key, minval=-jnp.pi, maxval=jnp.pi)
        return TIP_METRES * jnp.stack([jnp.sin(angle), jnp.cos(angle)])

    def distance(self, motion: Motion) -> Array:
        """Metres from the tip to the target's edge, negative inside."""
        return jnp.linalg.norm(motion.goal - self.tip(motion)) - self.target_radius

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """What every finger observes, the target, and the distance to its edge."""
        seen = super().observe(motion, last_action)
        return jnp.concatenate([seen, motion.goal, self.distance(motion)[None]])


@dataclass(frozen=True)
class PreciseFinger(TurningFinger):
    """The same with a target of 0.03 m."""

    target_radius: ClassVar[float] = 0.03


def finger_turn(finger: TurningFinger, motion: Motion, action: Array) -> Array:
    """1 while the tip is in the target."""
    del action
    return (finger.distance(motion) <= 0.0).astype(jnp.float32)
