"""A task with compiled functions, as the tests of this folder drive it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dreamproof.envs.api import Env, TimeStep
from dreamproof.jaxcore.keys import layout_keys, noise_keys

# One batch size everywhere: every other would be compiled anew.
COUNT = 32


class Course(NamedTuple):
    """A task with compiled functions, and how often each was traced."""

    env: Env
    reset: Callable[..., Any]
    step: Callable[..., Any]
    traces: dict[str, int]

    def start(self, params: Any, seed: int = 0) -> tuple[Any, TimeStep]:
        """Starts COUNT episodes."""
        return self.reset(layout_keys(seed, "test", COUNT, 0), params)

    def go(self, state: Any, action: Any, params: Any, step: int = 0) -> tuple[Any, TimeStep]:
        """One agent step with an action (A,) or actions (COUNT, A)."""
        actions = jnp.broadcast_to(jnp.asarray(action, jnp.float32), (COUNT, self.env.spec.action_size))
        return self.step(noise_keys(0, "test", COUNT, step), state, actions, params)

    def drive(self, params: Any, policy: Callable[[Any, int], Any], steps: int) -> list[TimeStep]:
        """What `policy(observation, step)` sees and gets, the reset first."""
        state, shown = self.start(params)
        seen = [shown]
        for step in range(steps):
            state, shown = self.go(state, policy(shown.observation, step), params, step)
            seen.append(shown)
        return seen


def compiled(env: Env) -> Course:
    """Jits a task's functions and counts their traces."""
    traces = {"reset": 0, "step": 0}

    def reset(keys: Any, params: Any) -> Any:
        traces["reset"] += 1
        return env.reset(keys, params)

    def step(keys: Any, state: Any, action: Any, params: Any) -> Any:
        traces["step"] += 1
        return env.step(keys, state, action, params)

    return Course(env, jax.jit(reset), jax.jit(step), traces)
