"""DM-Control's fish, which swims to a random target in three dimensions."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.rotation import rotation_matrix
from dreamproof.envs.locomotion.suite import SuiteTask
from dreamproof.envs.locomotion.task import Slots
from dreamproof.envs.locomotion.tolerance import tolerance

START_HEIGHT = 0.1
REACHED = 0.045
"""Radii of mouth and target, metres."""


@dataclass(frozen=True)
class Fish(SuiteTask):
    """A torso with two fins and a tail."""

    body_name: ClassVar[str] = "fish"
    substeps: ClassVar[int] = 10
    has_contacts: ClassVar[bool] = False
    slots: ClassVar[Slots] = (("joints", 7), ("upright", 1), ("target", 3), ("velocity", 13))

    def start(self, key: Array) -> tuple[Array, Array]:
        """At rest; any orientation, joints within 0.2 rad."""
        turn = jax.random.normal(key, (4,))
        joints = jax.random.uniform(jax.random.fold_in(key, 2), (7,), minval=-0.2, maxval=0.2)
        place = jnp.array([0.0, 0.0, START_HEIGHT])
        return jnp.concatenate([place, turn / jnp.linalg.norm(turn), joints]), jnp.zeros(13)

    def target(self, key: Array) -> Array:
        """A point (3,) in a box above the ground."""
        lower, upper = jnp.array([-0.4, -0.4, 0.1]), jnp.array([0.4, 0.4, 0.3])
        return jax.random.uniform(key, (3,), minval=lower, maxval=upper)

    def to_target(self, motion: Motion) -> Array:
        """The vector (3,) from mouth to target, in the mouth's frame."""
        mouth = self.body.host.geom("mouth")
        rotation = rotation_matrix(motion.position[3:7])
        away = (motion.goal - motion.position[:3]) @ rotation - jnp.asarray(mouth.pos, jnp.float32)
        return away @ rotation_matrix(jnp.asarray(mouth.quat, jnp.float32))

    def upright(self, motion: Motion) -> Array:
        """Cosine between the torso's upward axis and the world's."""
        return rotation_matrix(motion.position[3:7])[2, 2]

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Joints, uprightness, the way to the target, velocities."""
        del last_action
        parts = (motion.position[7:], self.upright(motion)[None], self.to_target(motion), motion.velocity)
        return jnp.concatenate(parts)


def fish_swim(fish: Fish, motion: Motion, action: Array) -> Array:
    """The mouth at the target, and a little for being upright."""
    del action
    near = tolerance(jnp.linalg.norm(fish.to_target(motion)), (0.0, REACHED), 2 * REACHED)
    return (7 * near + (fish.upright(motion) + 1) / 2) / 8
