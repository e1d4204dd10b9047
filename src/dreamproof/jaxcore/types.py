"""Shared types of the compute tower: the specification of a task, and one time step."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Spec(NamedTuple):
    """Everything an agent may know of a task before it acts.

    entities: (start, stop, width) of observation slots that are a set of entities, `width` values each.
    entity_types: how many of these values, the last ones, are the entity's type (one-hot); the others are its position.
    absolute: names of slots in world coordinates, on which neither reward nor cost depends.
    terminates: False only if every episode lasts `episode_agent_steps`; such episodes end and restart together.
    agent_step_seconds: simulated time of one agent step, if known.
    task: the number of this task, if the agent knows several.
    usable_actions: number of actions with an effect; the rest is padding to the widest task. None for all.
    policies: (task, usable_actions) of each task that gets a policy of its own, for an agent with several policies.
    max_return: the largest return that an episode can have, if known.
    costs: names of the constraints, one per column of `TimeStep.costs`; () if the task counts one total only.
    wheels: whether its two actions drive two wheels; scripted policies of tasks with a goal need to know.
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
    entities: tuple[int, int, int] | None = None
    absolute: tuple[str, ...] = ()
    terminates: bool = True
    agent_step_seconds: float | None = None
    task: int | None = None
    usable_actions: int | None = None
    policies: tuple[tuple[int, int], ...] = ()
    max_return: float | None = None
    costs: tuple[str, ...] = ()
    entity_types: int = 0
    wheels: bool = False

    def slot(self, name: str) -> slice | None:
        """The slice of a named part ('goal', 'hazards', ...) of the observation; None if the task has none."""
        return next((slice(start, stop) for found, start, stop in self.slots if found == name), None)

    def weights(self) -> Array:
        """One weight per observation slot; 1 by default."""
        if self.reconstruction_weights is None:
            return jnp.ones(self.observation_size)
        return jnp.asarray(self.reconstruction_weights)


class TimeStep(NamedTuple):
    """One agent step per env (N, ...). reward, cost and goals belong to the transition into it.

    forward_metres: forward displacement of the step, None if a task has no forward direction.
    costs: (N, K), the cost of each constraint in `Spec.costs`; None if it names none.
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
    costs: Array | None = None
