"""Shared types of the compute tower: what an agent is told about a task, and what one step of a task says."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Spec(NamedTuple):
    """Everything an agent may know of a task before it acts.

    entities: (start, stop, width) of observation slots that are a set of things, `width` numbers each.
    absolute: names of slots that only tell where the world's origin and axes are; nothing that matters depends on them.
    terminates: False only where every episode lasts `episode_agent_steps`; such episodes may end and restart together.
    agent_step_seconds: simulated time of one agent step, where the task says.
    task: the number of this task among those that an agent knows, where it knows several.
    usable_actions: actions that do anything; those behind them only fill up to the widest task. None for all.
    """

    name: str
    observation_size: int
    action_size: int
    episode_agent_steps: int
    has_cost: bool = True
    max_step_cost: float = 1.0
    reconstruction_weights: tuple[float, ...] | None = None
    has_margin: bool = False
    action_repeat: int = 1
    slots: tuple[tuple[str, int, int], ...] = ()
    constraint_radius: float | None = None
    entities: tuple[int, int, int] | None = None
    absolute: tuple[str, ...] = ()
    terminates: bool = True
    agent_step_seconds: float | None = None
    task: int | None = None
    usable_actions: int | None = None

    def slot(self, name: str) -> slice | None:
        """Where a named part ('goal', 'hazards', ...) lies in the observation; None where the task has none."""
        return next((slice(start, stop) for found, start, stop in self.slots if found == name), None)

    def weights(self) -> Array:
        """One weight an observation slot; 1 where the task says nothing."""
        if self.reconstruction_weights is None:
            return jnp.ones(self.observation_size)
        return jnp.asarray(self.reconstruction_weights)


class TimeStep(NamedTuple):
    """What one agent step shows, per env (N, ...). reward, cost and goals belong to the step that led here.

    forward_metres: the way gained ahead in it, None where a task has no ahead.
    """

    observation: Array
    reward: Array
    cost: Array
    margin: Array
    goals: Array
    first: Array
    terminated: Array
    truncated: Array
    final_observation: Array | None = None
    forward_metres: Array | None = None
