"""Arms of two (DM-Control) and three links (TD-MPC2) in the horizontal plane that reach for a random target."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.suite import Reward, SuiteTask
from dreamproof.envs.locomotion.task import Slots
from dreamproof.envs.locomotion.tolerance import tolerance

FINGER_RADIUS = 0.01


@dataclass(frozen=True)
class Reacher(SuiteTask):
    """Two links of 0.12 m up to the finger."""

    body_name: ClassVar[str] = "reacher"
    substeps: ClassVar[int] = 1
    has_contacts: ClassVar[bool] = False
    slots: ClassVar[Slots] = (("position", 2), ("to_target", 2), ("velocity", 2))
    link_metres: ClassVar[float] = 0.12

    def target(self, key: Array) -> Array:
        """A point (2,) 0.05 to 0.2 m from the shoulder."""
        radius, angle = jax.random.uniform(
            key, (2,), minval=jnp.array([0.05, 0.0]), maxval=jnp.array([0.2, 2 * jnp.pi])
        )
        return radius * jnp.stack([jnp.sin(angle), jnp.cos(angle)])

    def to_target(self, motion: Motion) -> Array:
        """The vector (2,) from the finger to the target."""
        angles = jnp.cumsum(motion.position)
        finger = self.link_metres * jnp.stack([jnp.cos(angles).sum(), jnp.sin(angles).sum()])
        return motion.goal - finger

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Joint angles, the way to the target, joint velocities."""
        del last_action
        return jnp.concatenate([motion.position, self.to_target(motion), motion.velocity])


@dataclass(frozen=True)
class ThreeLinkReacher(Reacher):
    """Three links of 0.09 m up to the finger."""

    body_name: ClassVar[str] = "reacher_three"
    slots: ClassVar[Slots] = (("position", 3), ("to_target", 2), ("velocity", 3))
    link_metres: ClassVar[float] = 0.09


def reach(target_radius: float) -> Reward:
    """1 while finger and target touch."""

    def reward(reacher: Reacher, motion: Motion, action: Array) -> Array:
        del action
        away = jnp.linalg.norm(reacher.to_target(motion))
        return tolerance(away, (0.0, target_radius + FINGER_RADIUS), 0.0)

    return reward
