"""The planar bodies of DM-Control that move along x: cheetah, walker and hopper, with the rewards of their tasks."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.locomotion.physics import Motion, MujocoBody
from dreamproof.envs.locomotion.planar import KinematicChain, read_chain, turned, turning_speed
from dreamproof.envs.locomotion.suite import UNBOUNDED, ZERO, Reward, SuiteTask, one_of
from dreamproof.envs.locomotion.task import Slots
from dreamproof.envs.locomotion.tolerance import tolerance

TORSO = 1
SETTLING_STEPS = 200
SETTLED_STARTS = 512
CHEETAH_HEIGHT = 1.2
SPEED_LIMIT = 3.2096
"""m/s, the threshold of SafetyHalfCheetahVelocity-v1."""
MAX_SPEED_MARGIN = 0.5


@dataclass(frozen=True)
class Runner(SuiteTask):
    """A planar body whose centre of mass has a speed along x."""

    forward: ClassVar[int] = 0
    upward: ClassVar[int] = 1

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

    def height(self, motion: Motion, link: int = TORSO) -> Array:
        """Height in metres of the origin of a link's frame above the ground."""
        root = motion.position[self.upward] + float(self.body.host.body_pos[TORSO, 2])
        return root if link == TORSO else root + turned(self.chain.origins[link], self.angles(motion))[1]

    def pace(self, motion: Motion, target: float, margin: float, at_margin: float = 0.5) -> Array:
        """1 from a target speed on (backwards where it is negative), falling linearly to `at_margin` at the margin."""
        ahead = self.speed(motion) if target > 0 else -self.speed(motion)
        return tolerance(ahead, (abs(target), UNBOUNDED), margin, "linear", at_margin)


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
class Cheetah(Runner):
    """Two legs of three links under a long torso."""

    body_name: ClassVar[str] = "cheetah"
    substeps: ClassVar[int] = 1
    slots: ClassVar[Slots] = (("position", 8), ("velocity", 9))
    back_foot: ClassVar[int] = 4
    front_foot: ClassVar[int] = 7

    def start(self, key: Array) -> tuple[Array, Array]:
        """One of the settled poses."""
        position, velocity = one_of(key, *settled_poses(self.body))
        return position, velocity

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Everything except the forward position."""
        del last_action
        return jnp.concatenate([motion.position[1:], motion.velocity])


@dataclass(frozen=True)
class SpeedLimitedCheetah(Cheetah):
    """A cheetah that must not run faster than a limit: the constraint of safety-gymnasium's velocity tasks."""

    costs: ClassVar[tuple[str, ...]] = ("speed",)

    def torso_speed(self, motion: Motion) -> Array:
        """Forward speed of the torso, m/s: what it moved in the last control step, divided by its time."""
        return motion.velocity[self.forward]

    def violates(self, after: Motion) -> Array:
        """Whether the torso is faster than the limit."""
        return self.torso_speed(after) > SPEED_LIMIT

    def margin(self, motion: Motion) -> Array:
        """Limit minus speed in m/s, within ±0.5."""
        return jnp.clip(SPEED_LIMIT - self.torso_speed(motion), -MAX_SPEED_MARGIN, MAX_SPEED_MARGIN)


def cheetah_run(speed: float) -> Reward:
    """The share of a speed that is reached; backwards where it is negative."""
    return lambda cheetah, motion, action: cheetah.pace(motion, speed, abs(speed), 0.0)


def cheetah_run_raised(foot: int, speed: float) -> Reward:
    """Torso and one foot high, times a factor from 1/6 to 1 for the speed."""

    def reward(cheetah: Cheetah, motion: Motion, action: Array) -> Array:
        del action
        up, torso_up = (
            tolerance(cheetah.height(motion, link), (CHEETAH_HEIGHT, UNBOUNDED), CHEETAH_HEIGHT / 2)
            for link in (foot, TORSO)
        )
        return (3 * up + 2 * torso_up) / 5 * (5 * cheetah.pace(motion, speed, speed, 0.0) + 1) / 6

    return reward


def cheetah_jump(cheetah: Cheetah, motion: Motion, action: Array) -> Array:
    """Torso and both feet high, with little speed."""
    del action
    torso = cheetah.height(motion)
    high = [
        tolerance((torso + cheetah.height(motion, foot)) / 2, (CHEETAH_HEIGHT, UNBOUNDED), CHEETAH_HEIGHT / 2)
        for foot in (Cheetah.back_foot, Cheetah.front_foot)
    ]
    slow = tolerance(cheetah.speed(motion), (-0.5, 0.5), 0.5, "linear", 0.0)
    return (5 * sum(high) / 2 + slow) / 6


@dataclass(frozen=True)
class Walker(Runner):
    """A torso on two legs of three links."""

    body_name: ClassVar[str] = "walker"
    substeps: ClassVar[int] = 10
    forward: ClassVar[int] = 1
    upward: ClassVar[int] = 0
    slots: ClassVar[Slots] = (("orientations", 14), ("height", 1), ("velocity", 9))

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Cosine and sine of every link's angle, height, velocity."""
        del last_action
        angles = self.angles(motion)[1:]
        orientations = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1).ravel()
        return jnp.concatenate([orientations, self.height(motion)[None], motion.velocity])


def walker_stand(walker: Walker, motion: Motion, action: Array) -> Array:
    """A high, upright torso."""
    del action
    high = tolerance(walker.height(motion), (1.2, UNBOUNDED), 0.6)
    return (3 * high + (1.0 + jnp.cos(walker.angles(motion)[TORSO])) / 2) / 4


def walker_move(speed: float) -> Reward:
    """Standing, times a factor from 1/6 to 1 for the speed; backwards where it is negative."""

    def reward(walker: Walker, motion: Motion, action: Array) -> Array:
        moving = walker.pace(motion, speed, abs(speed) / 2)
        return walker_stand(walker, motion, action) * (5 * moving + 1) / 6

    return reward


@dataclass(frozen=True)
class SuiteHopper(Runner):
    """Torso and pelvis on one leg with a foot that feels the ground at both ends."""

    body_name: ClassVar[str] = "suite_hopper"
    substeps: ClassVar[int] = 4
    slots: ClassVar[Slots] = (("position", 6), ("velocity", 7), ("touch", 2))

    def height_over_foot(self, motion: Motion) -> Array:
        """How high the torso's centre is above the foot's, metres."""
        lever = self.chain.levers[TORSO] - self.chain.levers[-1]
        return turned(lever, self.angles(motion))[1]

    def stands(self, motion: Motion) -> Array:
        """1 while the torso is 0.6 to 2 m above the foot, else 0."""
        return tolerance(self.height_over_foot(motion), (0.6, 2.0), 0.0)

    def observe(self, motion: Motion, last_action: Array) -> Array:
        """Everything except the forward position, and the logarithm of the touch sensors."""
        del last_action
        return jnp.concatenate([motion.position[1:], motion.velocity, jnp.log1p(motion.touch)])


def hopper_stand(hopper: SuiteHopper, motion: Motion, action: Array) -> Array:
    """Standing with little force."""
    gentle = tolerance(action, ZERO, 1.0, "quadratic", 0.0).mean()
    return hopper.stands(motion) * (gentle + 4) / 5


def hopper_hop(speed: float) -> Reward:
    """The speed while standing; backwards where it is negative."""
    return lambda hopper, motion, action: hopper.stands(motion) * hopper.pace(motion, speed, abs(speed) / 2)
