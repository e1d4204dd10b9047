"""DM-Control's ball in a cup, to be caught or, in TD-MPC2's task, to be swung around it."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.suite import UNBOUNDED, SuiteTask, one_of, poses_without_contact
from dreamproof.envs.locomotion.task import Slots
from dreamproof.envs.locomotion.tolerance import tolerance

TARGET_ABOVE_BALL = 0.35
"""Metres between the middle of the cup and the ball while all joints are at 0."""
INSIDE = 0.025
"""The ball's centre may be that far from the middle of the cup, in x and in z."""
OUTSIDE_SHARE = 0.1


# Ends of random positions, with the cup at rest.
AROUND = ((0.0, 0.0, -0.2, 0.2), (0.0, 0.0, 0.2, 0.5))
IN_CUP = (
    (0.0, 0.0, -INSIDE, TARGET_ABOVE_BALL - INSIDE),
    (0.0, 0.0, INSIDE, TARGET_ABOVE_BALL + INSIDE),
)


@dataclass(frozen=True)
class Cup(SuiteTask):
    """A cup on springs and a ball on a string, in the x-z plane."""

    body_name: ClassVar[str] = "cup"
    substeps: ClassVar[int] = 10
    slots: ClassVar[Slots] = (("position", 4), ("velocity", 4))

    def start(self, key: Array) -> tuple[Array, Array]:
        """At rest; the ball anywhere around the cup."""
        (position,) = one_of(key, poses_without_contact(self.body, *AROUND))
        return position, jnp.zeros(4)

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Positions and velocities of cup and ball."""
        del last_action
        return jnp.concatenate([motion.position, motion.velocity])

    def to_target(self, motion: Motion) -> Array:
        """The vector (2,) in x and z from the ball to the middle of the cup."""
        return motion.position[:2] - motion.position[2:] + jnp.array([0.0, TARGET_ABOVE_BALL])


@dataclass(frozen=True)
class FullCup(Cup):
    """The same with the ball in the cup at most starts."""

    def start(self, key: Array) -> tuple[Array, Array]:
        """At rest; in nine of ten episodes with the ball in the cup."""
        inside, outside = (one_of(key, poses_without_contact(self.body, *ends))[0] for ends in (IN_CUP, AROUND))
        is_outside = jax.random.uniform(jax.random.fold_in(key, 2)) < OUTSIDE_SHARE
        return jnp.where(is_outside, outside, inside), jnp.zeros(4)


def cup_catch(cup: Cup, motion: Motion, action: Array) -> Array:
    """1 while the ball is in the cup."""
    del action
    return jnp.all(jnp.abs(cup.to_target(motion)) < INSIDE).astype(jnp.float32)


def cup_spin(cup: Cup, motion: Motion, action: Array) -> Array:
    """A fast ball far away from the cup."""
    far = tolerance(jnp.linalg.norm(cup.to_target(motion)), (0.5, UNBOUNDED), 0.25, "linear", 0.5)
    fast = tolerance(jnp.linalg.norm(motion.velocity[2:]), (6.0, UNBOUNDED), 3.0, "linear", 0.5)
    return (1 - cup_catch(cup, motion, action)) * (far + 2 * fast) / 3
