"""Environment wrappers: automatic reset, padding to the sizes of other tasks, a margin for tasks without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
from jax import Array, lax

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Condition, Env, Params, Spec, State, TimeStep
from dreamproof.settings.env import Shift

SIGN_MARGIN = 0.1


@dataclass(frozen=True)
class EnvWrapper(Env):
    """Delegates to the inner environment."""

    env: Env

    def default_params(self) -> Params:
        """Of the inner environment."""
        return self.env.default_params()

    def conditions(self) -> Mapping[str, Condition]:
        """Of the inner environment."""
        return self.env.conditions()

    def named_shifts(self) -> Mapping[str, Shift]:
        """Of the inner environment."""
        return self.env.named_shifts()

    def apply_shift(self, params: Params, shift: Shift) -> Params:
        """By the inner environment."""
        return self.env.apply_shift(params, shift)

    def render_state(self, state: State, params: Params) -> dict[str, Array]:
        """Of the inner environment."""
        return self.env.render_state(state, params)


@dataclass(frozen=True)
class SignMargin(EnvWrapper):
    """A task with a cost but without a margin: ±0.1 by whether the step cost, which certificates can learn from.

    `spec.has_margin` stays False: such a margin is no distance, so settings in metres remain refused.
    """

    @property
    def spec(self) -> Spec:
        """Of the inner environment."""
        return self.env.spec

    @property
    def varies(self) -> bool:  # type: ignore[override]
        """Whether the inner environment does."""
        return self.env.varies

    def vary(self, params: Params, drawn: dict[str, Array]) -> Params:
        """By the inner environment."""
        return self.env.vary(params, drawn)

    def executed(self, state: State) -> Array:
        """By the inner environment."""
        return self.env.executed(state)

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts N episodes."""
        state, shown = self.env.reset(keys, params)
        return state, shown._replace(margin=_sign_margin(shown.cost))

    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of N envs."""
        state, shown = self.env.step(keys, state, action, params)
        return state, shown._replace(margin=_sign_margin(shown.cost))


def _sign_margin(cost: Array) -> Array:
    return jnp.where(cost > 0, -SIGN_MARGIN, SIGN_MARGIN)


@dataclass(frozen=True)
class AutoReset(EnvWrapper):
    """Starts an env's next episode in the step that ends one.

    That step shows reward, cost and end flags of the old episode, `final_observation` is its last observation, and
    `observation` the first of the new one, marked `first`.
    """

    @property
    def spec(self) -> Spec:
        """Of the inner environment."""
        return self.env.spec

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts N episodes."""
        state, shown = self.env.reset(keys, params)
        return state, shown._replace(final_observation=shown.observation)

    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of N envs; ended episodes restart."""
        pairs = jax.vmap(jax.random.split)(keys)
        state, shown = self.env.step(pairs[:, 0], state, action, params)
        ended = shown.terminated | shown.truncated

        def restart() -> tuple[State, Array, Array]:
            fresh, first = self.env.reset(pairs[:, 1], params)
            chosen = jax.tree.map(lambda new, old: _choose(ended, new, old), fresh, state)
            margin = jnp.where(ended, first.margin, shown.margin)
            return chosen, _choose(ended, first.observation, shown.observation), margin

        def keep() -> tuple[State, Array, Array]:
            return state, shown.observation, shown.margin

        state, observation, margin = lax.cond(jnp.any(ended), restart, keep)
        last = shown.observation
        return state, shown._replace(observation=observation, margin=margin, first=ended, final_observation=last)


def _choose(ended: Array, new: Array, old: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (old.ndim - 1)), new, old)


@dataclass(frozen=True)
class Padded(EnvWrapper):
    """One of several tasks: its observation is zero-padded, and padding actions are ignored.

    task: its number. The sizes are those of the widest task.
    """

    observation_size: int
    action_size: int
    task: int | None = None

    def __post_init__(self) -> None:
        own = self.env.spec
        for what, size, widest in (
            ("observation", own.observation_size, self.observation_size),
            ("action", own.action_size, self.action_size),
        ):
            if size > widest:
                raise BadInput(
                    f"the {what} size of the task '{own.name}', {size}, exceeds the {widest} of the widest task",
                    "raise data.observation_size or data.action_size in the study file",
                )

    @cached_property
    def spec(self) -> Spec:
        """The spec with the widest sizes, the task's number and the number of its own actions."""
        own = self.env.spec
        weights = own.reconstruction_weights
        return own._replace(
            observation_size=self.observation_size,
            action_size=self.action_size,
            reconstruction_weights=None if weights is None else weights + (0.0,) * self._missing,
            task=self.task,
            usable_actions=own.action_size,
        )

    @property
    def _missing(self) -> int:
        return self.observation_size - self.env.spec.observation_size

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts N episodes."""
        state, shown = self.env.reset(keys, params)
        return state, self._padded(shown)

    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of N envs with the task's own actions."""
        state, shown = self.env.step(keys, state, action[:, : self.env.spec.action_size], params)
        return state, self._padded(shown)

    def _padded(self, shown: TimeStep) -> TimeStep:
        def wide(seen: Array) -> Array:
            return jnp.pad(seen, ((0, 0), (0, self._missing)))

        last = shown.final_observation
        return shown._replace(
            observation=wide(shown.observation), final_observation=None if last is None else wide(last)
        )
