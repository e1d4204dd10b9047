"""Four tasks of the DM-Control suite on MJX: action repeat 2, 500 agent steps, returns from 0 to 1,000."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.locomotion.physics import Motion, MujocoBody
from dreamproof.envs.locomotion.planar import KinematicChain, read_chain, turned, turning_speed
from dreamproof.envs.locomotion.task import Locomotion, Slots
from dreamproof.envs.locomotion.tolerance import tolerance

UNBOUNDED = float("inf")
TORSO = 1
SETTLING_STEPS = 200
SETTLED_STARTS = 512


@dataclass(frozen=True)
class SuiteTask(Locomotion):
    """A planar body with a random initial pose."""

    action_repeat: ClassVar[int] = 2
    forward: ClassVar[int | None] = 0

    @cached_property
    def chain(self) -> KinematicChain:
        """The kinematic chain of the body."""
        return read_chain(self.body.host)

    def angles(self, motion: Motion) -> Array:
        """Every link's angle (K,) about +y, the world first."""
        return jnp.asarray(self.chain.turns) @ motion.position

    def speed(self, motion: Motion) -> Array:
        """How fast the centre of mass moves along +x, metres per second."""
        rates = jnp.asarray(self.chain.turns) @ motion.velocity
        return motion.velocity[self.forward] + turning_speed(self.chain.centre(), self.angles(motion), rates)

    def start(self, key: Array) -> tuple[Array, Array]:
        """At rest; joints anywhere within their limits, the torso at any pitch."""
        model = self.body.host
        is_free = (model.jnt_type == 3) & (model.jnt_limited == 0)
        lower = np.where(is_free, -np.pi, model.jnt_range[:, 0]).astype(np.float32)
        upper = np.where(is_free, np.pi, model.jnt_range[:, 1]).astype(np.float32)
        # Slide joints have no range and stay at 0.
        return jax.random.uniform(key, lower.shape, minval=lower, maxval=upper), jnp.zeros(model.nv)


@cache
def settled_poses(body: MujocoBody) -> tuple[np.ndarray, np.ndarray]:
    """Positions (S, Q) and velocities (S, V) of random poses after settling, simulated by MuJoCo in C."""
    # Joints without limits have an empty range.
    lower, upper = body.host.jnt_range.T
    poses = np.random.default_rng(0).uniform(lower, upper, (SETTLED_STARTS, body.host.nq))
    ends = [body.settle(pose, SETTLING_STEPS) for pose in poses]
    positions, velocities = zip(*ends, strict=True)
    return np.stack(positions), np.stack(velocities)


@dataclass(frozen=True)
class CheetahRun(SuiteTask):
    """Run at 10 m/s."""

    body_name: ClassVar[str] = "cheetah"
    substeps: ClassVar[int] = 1
    slots: ClassVar[Slots] = (("position", 8), ("velocity", 9))

    def start(self, key: Array) -> tuple[Array, Array]:
        """One of the settled poses."""
        positions, velocities = settled_poses(self.body)
        index = jax.random.randint(key, (), 0, SETTLED_STARTS)
        return jnp.asarray(positions)[index], jnp.asarray(velocities)[index]

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Everything except the forward position."""
        del last_action
        return jnp.concatenate([motion.position[1:], motion.velocity])

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """A tenth of the speed, clipped to [0, 1]."""
        del before, action
        return tolerance(self.speed(after), (10.0, UNBOUNDED), 10.0, "linear", 0.0)


@dataclass(frozen=True)
class WalkerWalk(SuiteTask):
    """Walk at 1 m/s with a high, upright torso."""

    body_name: ClassVar[str] = "walker"
    substeps: ClassVar[int] = 10
    forward: ClassVar[int | None] = 1
    slots: ClassVar[Slots] = (("orientations", 14), ("height", 1), ("velocity", 9))

    def height(self, motion: Motion) -> Array:
        """Height of the torso in metres."""
        return motion.position[0] + float(self.body.host.body_pos[TORSO, 2])

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Cosine and sine of every link's angle, height, velocity."""
        del last_action
        angles = self.angles(motion)[1:]
        orientations = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1).ravel()
        return jnp.concatenate([orientations, self.height(motion)[None], motion.velocity])

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """Standing, times a factor from 1/6 to 1 for walking."""
        del before, action
        high = tolerance(self.height(after), (1.2, UNBOUNDED), 0.6)
        upright = (1.0 + jnp.cos(self.angles(after)[TORSO])) / 2
        walking = tolerance(self.speed(after), (1.0, UNBOUNDED), 0.5, "linear", 0.5)
        return (3 * high + upright) / 4 * (5 * walking + 1) / 6


@dataclass(frozen=True)
class HopperHop(SuiteTask):
    """Hop at 2 m/s with the torso high above the foot."""

    body_name: ClassVar[str] = "suite_hopper"
    substeps: ClassVar[int] = 4
    slots: ClassVar[Slots] = (("position", 6), ("velocity", 7), ("touch", 2))

    def height(self, motion: Motion) -> Array:
        """Height of the torso above the foot in metres."""
        lever = self.chain.levers[TORSO] - self.chain.levers[-1]
        return turned(lever, self.angles(motion))[1]

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Everything except the forward position, and the logarithm of the touch sensors."""
        del last_action
        return jnp.concatenate([motion.position[1:], motion.velocity, jnp.log1p(motion.touch)])

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """Speed while standing high."""
        del before, action
        standing = tolerance(self.height(after), (0.6, 2.0), 0.0)
        return standing * tolerance(self.speed(after), (2.0, UNBOUNDED), 1.0, "linear", 0.5)


@dataclass(frozen=True)
class CartpoleSwingup(SuiteTask):
    """Swing the pole up and hold it over the middle."""

    body_name: ClassVar[str] = "cartpole"
    substeps: ClassVar[int] = 1
    forward: ClassVar[int | None] = None
    touches_ground: ClassVar[bool] = False
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

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """Upright, in the middle, with little force and a slow pole."""
        del before
        upright = (jnp.cos(after.position[1]) + 1) / 2
        central = (1 + tolerance(after.position[0], (0.0, 0.0), 2.0)) / 2
        gentle = (4 + tolerance(action[0], (0.0, 0.0), 1.0, "quadratic", 0.0)) / 5
        slow = (1 + tolerance(after.velocity[1], (0.0, 0.0), 5.0)) / 2
        return upright * central * gentle * slow
