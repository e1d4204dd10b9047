"""Base of the tasks of the DM-Control suite and of TD-MPC2's on the same bodies; `tasks.py` lists them.

Action repeat 2, 500 agent steps, returns from 0 to 1,000. A class is a body with its observation and its starts; the
reward of a task is a function of that class, the motion after a control step and the action.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.locomotion.physics import Motion, MujocoBody
from dreamproof.envs.locomotion.task import Locomotion

Reward = Callable[[Any, Motion, Array], Array]
UNBOUNDED = float("inf")
ZERO = (0.0, 0.0)
FREE_STARTS = 4096
HINGE = 3  # mujoco.mjtJoint.mjJNT_HINGE


@dataclass(frozen=True)
class SuiteTask(Locomotion):
    """A body with one of its tasks."""

    rewarded: Reward

    action_repeat: ClassVar[int] = 2
    forward: ClassVar[int | None] = None

    @property
    def max_return(self) -> float:
        """Rewards are at most 1 in each control step."""
        return float(self.episode_agent_steps * self.action_repeat)

    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """The reward of one control step, 0 to 1."""
        del before
        return self.rewarded(self, after, action)

    def start(self, key: Array) -> tuple[Array, Array]:
        """At rest; joints anywhere within their limits, hinges without limits at any angle."""
        lower, upper = joint_ranges(self.body)
        return jax.random.uniform(key, lower.shape, minval=lower, maxval=upper), jnp.zeros(self.body.host.nv)


def joint_ranges(body: MujocoBody) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends (Q,) of random joint positions; slide joints without limits stay at 0."""
    model = body.host
    is_free = (model.jnt_type == HINGE) & (model.jnt_limited == 0)
    lower = np.where(is_free, -np.pi, model.jnt_range[:, 0])
    upper = np.where(is_free, np.pi, model.jnt_range[:, 1])
    return lower.astype(np.float32), upper.astype(np.float32)


def one_of(key: Array, *columns: np.ndarray) -> tuple[Array, ...]:
    """One random row of several arrays of equal length."""
    index = jax.random.randint(key, (), 0, len(columns[0]))
    return tuple(jnp.asarray(column)[index] for column in columns)


@cache
def poses_without_contact(body: MujocoBody, lower: tuple[float, ...], upper: tuple[float, ...]) -> np.ndarray:
    """Random positions (S, Q) between two bounds in which nothing touches."""
    poses = np.random.default_rng(0).uniform(lower, upper, (4 * FREE_STARTS, body.host.nq))
    free = poses[body.contacts(poses) == 0]
    assert len(free) >= FREE_STARTS
    return free[:FREE_STARTS].astype(np.float32)
