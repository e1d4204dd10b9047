"""Complete episodes of a batch of envs under any policy, on the true reward and cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.api import Env, Params
from dreamproof.jaxcore.types import TimeStep

# policy(memory, seen, step) -> (action (N, A), memory, metrics {name: (N,)})
Policy = Callable[[Any, TimeStep, Array], tuple[Array, Any, dict[str, Array]]]


class Episodes(NamedTuple):
    """One value an episode (N,); `metrics` are means over an episode's decisions; `margins` is (T, N)."""

    returns: Array
    costs: Array
    goals: Array
    lengths: Array
    metrics: dict[str, Array]
    margins: Array
    trace: Any


def complete_episodes(
    env: Env, policy: Policy, memory: Any, keys: tuple[Array, Array], params: Params, trace: Callable | None = None
) -> Episodes:
    """Runs N envs to the end of their first episode; what comes after a termination is not counted.

    keys: layouts (N,) and in-episode noise (N,). `trace(state, seen, memory)` may pick arrays to keep of every step.
    """
    layout_keys, noise_keys = keys
    state, seen = env.reset(layout_keys, params)
    count = seen.reward.shape[0]

    def step(carry: Any, index: Array) -> tuple[Any, Any]:
        state, seen, memory, alive, sums = carry
        action, memory, metrics = policy(memory, seen, index)
        step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise_keys, index)
        kept = trace(state, seen, memory) if trace else None
        state, seen = env.step(step_keys, state, action, params)
        gained = {"return": seen.reward, "cost": seen.cost, "goals": seen.goals, "length": jnp.ones(count)}
        sums = {name: sums[name] + alive * value for name, value in gained.items()}
        going_on = alive * (1.0 - jnp.maximum(seen.terminated, seen.truncated).astype(jnp.float32))
        kept_metrics = {name: value * alive for name, value in metrics.items()}
        return (state, seen, memory, going_on, sums), (kept_metrics, seen.margin, kept)

    zero = dict.fromkeys(("return", "cost", "goals", "length"), jnp.zeros(count))
    start = (state, seen, memory, jnp.ones(count), zero)
    steps = jnp.arange(env.spec.episode_agent_steps)
    (_, _, _, _, sums), (metrics, margins, kept) = jax.lax.scan(step, start, steps)
    means = {name: values.sum(0) / jnp.maximum(1.0, sums["length"]) for name, values in metrics.items()}
    return Episodes(sums["return"], sums["cost"], sums["goals"], sums["length"], means, margins, kept)
