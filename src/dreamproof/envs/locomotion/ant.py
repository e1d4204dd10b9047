"""PWM's ant on MJX: 37 observations, 182 kg, torques of 200 N m, falling terminates an episode.

The original world has y up, ours z: vectors (x, y, z) are observed as (x, z, -y), and the quaternion accordingly.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.rotation import rotation_matrix
from dreamproof.envs.locomotion.task import Locomotion, Slots

MIN_HEIGHT = 0.27
START_HEIGHT = 0.75
START_JOINTS = (0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)
TARGET_METRES = 10_000.0
JOINT_SPEED_SCALE = 0.1
_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class Ant(Locomotion):
    """Run along +x, upright and facing ahead; the reward is computed from the state before the step."""

    body_name: ClassVar[str] = "ant"
    substeps: ClassVar[int] = 16
    action_repeat: ClassVar[int] = 1
    forward: ClassVar[int | None] = 0
    terminates: ClassVar[bool] = True
    slots: ClassVar[Slots] = (
        ("height", 1),
        ("rotation", 4),
        ("velocity", 3),
        ("angular_velocity", 3),
        ("joints", 8),
        ("joint_speeds", 8),
        ("up", 1),
        ("heading", 1),
        ("last_action", 8),
    )

    def start(self, key: Array) -> tuple[Array, Array]:
        """Above the ground with bent knees: ±0.1 m, up to 7.5° about a random axis, joints ±0.2, speeds ±0.25."""
        noise = jax.random.uniform(key, (29,), minval=-1.0, maxval=1.0)
        place = jnp.array([0.0, 0.0, START_HEIGHT]) + 0.1 * noise[:3]
        half_angle, axis = math.pi / 48 * noise[3], noise[4:7] / jnp.linalg.norm(noise[4:7])
        turn = jnp.concatenate([jnp.cos(half_angle)[None], jnp.sin(half_angle) * axis])
        joints = jnp.array(START_JOINTS) + 0.2 * noise[7:15]
        return jnp.concatenate([place, turn, joints]), 0.25 * noise[15:]

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """The 37 values, velocities in the world frame."""
        rotation = rotation_matrix(motion.position[3:7])
        return jnp.concatenate(
            [
                motion.position[2:3],
                _y_up_quaternion(motion.position[3:7]),
                _y_up(motion.velocity[:3]),
                _y_up(rotation @ motion.velocity[3:6]),
                motion.position[7:],
                JOINT_SPEED_SCALE * motion.velocity[6:],
                rotation[2, 2][None],
                _heading(motion, rotation)[None],
                last_action,
            ]
        )

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """Forward speed, uprightness, heading and height above the minimum, all before the step."""
        del after, action
        rotation = rotation_matrix(before.position[3:7])
        upright = 0.1 * rotation[2, 2] + _heading(before, rotation)
        return before.velocity[0] + upright + before.position[2] - MIN_HEIGHT

    def has_fallen(self, motion: Motion) -> Array:
        """The torso's centre is below 0.27 m."""
        return motion.position[2] < MIN_HEIGHT


def _heading(motion: Motion, rotation: Array) -> Array:
    """Cosine between the body's x axis and the horizontal direction to a distant target."""
    away = jnp.array([TARGET_METRES, 0.0]) - motion.position[:2]
    return rotation[:2, 0] @ (away / jnp.linalg.norm(away))


def _y_up(vector: Array) -> Array:
    return jnp.stack([vector[0], vector[2], -vector[1]])


def _y_up_quaternion(quaternion: Array) -> Array:
    """(x, y, z, w) after a quarter turn back about x, which takes z up to y up."""
    w, x, y, z = quaternion
    return _HALF * jnp.stack([x - w, y + z, z - y, w + x])
