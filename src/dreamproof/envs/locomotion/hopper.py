"""PWM's hopper on MJX: 11 observations, torques of 200 N m, a torso that sinks terminates an episode."""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.task import Locomotion, Slots

MIN_HEIGHT = -0.45
LOW_HEIGHT = -0.30
MAX_ANGLE = math.pi / 6


@dataclass(frozen=True)
class Hopper(Locomotion):
    """Hop along +x with an upright torso; heights are metres from the start's.

    The reward is computed from the state before the step.
    """

    body_name: ClassVar[str] = "hopper"
    substeps: ClassVar[int] = 2
    action_repeat: ClassVar[int] = 1
    forward: ClassVar[int | None] = 0
    terminates: ClassVar[bool] = True
    slots: ClassVar[Slots] = (("height", 1), ("pitch", 1), ("joints", 3), ("velocity", 3), ("joint_speeds", 3))

    def start(self, key: Array) -> tuple[Array, Array]:
        """Upright with a straight leg; positions and speeds perturbed by up to 0.05."""
        noise = jax.random.uniform(key, (12,), minval=-0.05, maxval=0.05)
        return noise[:6], noise[6:]

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Everything except the forward position."""
        del last_action
        return jnp.concatenate([motion.position[1:], motion.velocity])

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """Forward speed, height and angle before the step, minus 0.1 times the squared action."""
        del after
        height = jnp.clip(before.position[1] - LOW_HEIGHT, -1.0, 0.3)
        height = jnp.where(height < 0, -200.0 * height**2, height)
        angle = 1.0 - (before.position[2] / MAX_ANGLE) ** 2
        return before.velocity[0] + height + angle - 0.1 * jnp.sum(action**2)

    def has_fallen(self, motion: Motion) -> Array:
        """The torso has sunk by 0.45 m."""
        return motion.position[1] < MIN_HEIGHT
