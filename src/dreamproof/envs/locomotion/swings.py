"""Cart and pole, pendulum and acrobot of DM-Control, with the rewards of their tasks; nothing touches anything."""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.suite import UNBOUNDED, ZERO, SuiteTask
from dreamproof.envs.locomotion.task import Slots
from dreamproof.envs.locomotion.tolerance import tolerance


@dataclass(frozen=True)
class Cartpole(SuiteTask):
    """A cart on a rail under a pole that hangs down at the start."""

    body_name: ClassVar[str] = "cartpole"
    substeps: ClassVar[int] = 1
    has_contacts: ClassVar[bool] = False
    slots: ClassVar[Slots] = (("position", 3), ("velocity", 2))

    def start(self, key: Array) -> tuple[Array, Array]:
        """The pole hangs down, with small noise."""
        noise = 0.01 * jax.random.normal(key, (4,))
        return jnp.array([0.0, jnp.pi]) + noise[:2], noise[2:]

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Cart position, cosine and sine of the pole's angle, velocities."""
        del last_action
        cart, angle = motion.position
        return jnp.concatenate([jnp.stack([cart, jnp.cos(angle), jnp.sin(angle)]), motion.velocity])


@dataclass(frozen=True)
class BalancedCartpole(Cartpole):
    """A cart under a pole that stands nearly upright at the start."""

    def start(self, key: Array) -> tuple[Array, Array]:
        """The cart within 0.1 m of the middle, the pole within 0.034 rad of upright, nearly at rest."""
        reach = jnp.array([0.1, 0.034])
        position = jax.random.uniform(key, (2,), minval=-reach, maxval=reach)
        return position, 0.01 * jax.random.normal(jax.random.fold_in(key, 2), (2,))


def cartpole_smooth(cartpole: Cartpole, motion: Motion, action: Array) -> Array:
    """Upright, in the middle, with little force and a slow pole."""
    del cartpole
    upright = (jnp.cos(motion.position[1]) + 1) / 2
    central = (1 + tolerance(motion.position[0], ZERO, 2.0)) / 2
    gentle = (4 + tolerance(action[0], ZERO, 1.0, "quadratic", 0.0)) / 5
    slow = (1 + tolerance(motion.velocity[1], ZERO, 5.0)) / 2
    return upright * central * gentle * slow


def cartpole_sparse(cartpole: Cartpole, motion: Motion, action: Array) -> Array:
    """1 while the cart is within 0.25 m of the middle and the pole within 5.7 degrees of upright."""
    del cartpole, action
    cart, angle = motion.position
    return tolerance(cart, (-0.25, 0.25), 0.0) * tolerance(jnp.cos(angle), (0.995, 1.0), 0.0)


@dataclass(frozen=True)
class Pendulum(SuiteTask):
    """A mass on a rod of half a metre; the motor is too weak to lift it at once."""

    body_name: ClassVar[str] = "pendulum"
    substeps: ClassVar[int] = 1
    has_contacts: ClassVar[bool] = False
    slots: ClassVar[Slots] = (("orientation", 2), ("velocity", 1))

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Cosine and sine of the angle from upright, angular velocity."""
        del last_action
        return jnp.concatenate([jnp.cos(motion.position), jnp.sin(motion.position), motion.velocity])


def pendulum_swing_up(pendulum: Pendulum, motion: Motion, action: Array) -> Array:
    """1 within 8 degrees of upright."""
    del pendulum, action
    return tolerance(jnp.cos(motion.position[0]), (math.cos(math.radians(8)), 1.0), 0.0)


def pendulum_spin(pendulum: Pendulum, motion: Motion, action: Array) -> Array:
    """An angular speed of 9 rad/s in either direction."""
    del pendulum, action
    return tolerance(jnp.abs(motion.velocity[0]), (9.0, UNBOUNDED), 4.5, "linear", 0.5)


@dataclass(frozen=True)
class Acrobot(SuiteTask):
    """Two links of one metre; the elbow alone has a motor."""

    body_name: ClassVar[str] = "acrobot"
    substeps: ClassVar[int] = 1
    has_contacts: ClassVar[bool] = False
    slots: ClassVar[Slots] = (("orientations", 4), ("velocity", 2))

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Sines, then cosines of both links' angles from upright, velocities of the joints."""
        del last_action
        angles = jnp.cumsum(motion.position)
        return jnp.concatenate([jnp.sin(angles), jnp.cos(angles), motion.velocity])


def acrobot_swing_up(acrobot: Acrobot, motion: Motion, action: Array) -> Array:
    """The tip within 0.2 m of its highest point, falling to 0.1 one metre farther away."""
    del acrobot, action
    angles = jnp.cumsum(motion.position)
    away = jnp.hypot(jnp.sin(angles).sum(), 2.0 - jnp.cos(angles).sum())
    return tolerance(away, (0.0, 0.2), 1.0)
