"""Layers around an environment: restarting ended episodes inside the step."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax

from dreamproof.envs.api import Condition, Env, Params, Spec, State, TimeStep
from dreamproof.settings.env import Shift


@dataclass(frozen=True)
class AutoReset(Env):
    """Starts an env's next episode in the step that ends one.

    That step shows reward, cost and end flags of the old episode, `final_observation` is its last observation, and
    `observation` the first of the new one, marked `first`.
    """

    env: Env

    @property
    def spec(self) -> Spec:
        """What the inner environment says."""
        return self.env.spec

    def default_params(self) -> Params:
        """Those of the inner environment."""
        return self.env.default_params()

    def conditions(self) -> Mapping[str, Condition]:
        """Those of the inner environment."""
        return self.env.conditions()

    def named_shifts(self) -> Mapping[str, Shift]:
        """Those of the inner environment."""
        return self.env.named_shifts()

    def apply_shift(self, params: Params, shift: Shift) -> Params:
        """What the inner environment makes of it."""
        return self.env.apply_shift(params, shift)

    def render_state(self, state: State, params: Params) -> dict[str, Array]:
        """What the inner environment draws."""
        return self.env.render_state(state, params)

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts N episodes."""
        state, shown = self.env.reset(keys, params)
        return state, shown._replace(final_observation=shown.observation)

    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of N envs; ended ones begin anew."""
        pairs = jax.vmap(jax.random.split)(keys)
        state, shown = self.env.step(pairs[:, 0], state, action, params)
        ended = shown.terminated | shown.truncated

        def restart() -> tuple[State, Array, Array]:
            fresh, first = self.env.reset(pairs[:, 1], params)
            chosen = jax.tree.map(lambda new, old: _choose(ended, new, old), fresh, state)
            margin = jnp.where(ended, first.margin, shown.margin)
            return chosen, _choose(ended, first.observation, shown.observation), margin

        def go_on() -> tuple[State, Array, Array]:
            return state, shown.observation, shown.margin

        state, observation, margin = lax.cond(jnp.any(ended), restart, go_on)
        last = shown.observation
        return state, shown._replace(observation=observation, margin=margin, first=ended, final_observation=last)


def _choose(ended: Array, new: Array, old: Array) -> Array:
    return jnp.where(ended.reshape(ended.shape + (1,) * (old.ndim - 1)), new, old)
