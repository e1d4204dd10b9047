"""Complete episodes of a batch of envs under any policy, on the true reward and cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.api import Env, Params
from dreamproof.jaxcore.keys import Split, layout_keys, noise_keys
from dreamproof.jaxcore.types import TimeStep

# policy(memory, seen, step) -> (action (N, A), memory, metrics {name: (N,)})
Policy = Callable[[Any, TimeStep, Array], tuple[Array, Any, dict[str, Array]]]
# trace(state, seen, memory) -> arrays to keep of every step
Trace = Callable[[Any, TimeStep, Any], Any] | None


class Episodes(NamedTuple):
    """One value an episode (N,); `metrics` are means over an episode's decisions; `margins` is (T, N).

    Where a task has a forward, `metrics` also holds `forward/metres`, the way gained until the episode's end, and
    `forward/metres_per_second`.
    """

    returns: Array
    costs: Array
    goals: Array
    lengths: Array
    metrics: dict[str, Array]
    margins: Array
    trace: Any


def episode_keys(seed: int, split: Split, episodes: int) -> tuple[Array, Array]:
    """What lays out the first episode of so many envs (E,), and what is random inside it (E,)."""
    return layout_keys(seed, split, episodes, 0), noise_keys(seed, split, episodes, 0)


def shared_episodes(
    env: Env, act: Policy, memory: Any, keys: tuple[Array, Array], params: Params, trace: Trace = None
) -> Episodes:
    """Complete episodes of R policies on the same layouts; `act`, `memory` and results have leading axes (R, E)."""
    count, policies = keys[0].shape[0], jax.tree.leaves(memory)[0].shape[0]
    shared = tuple(jnp.concatenate([each] * policies) for each in keys)

    def flat(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)

    def apart(tree: Any) -> Any:
        return jax.tree.map(lambda x: x.reshape(policies, count, *x.shape[1:]), tree)

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        action, memory, metrics = act(memory, apart(seen), index)
        return flat(action), memory, flat(metrics)

    def over_time(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, policies, count, *x.shape[2:]), 0, 1), tree)

    found = complete_episodes(env, policy, memory, (shared[0], shared[1]), params, trace)
    whole = apart((found.returns, found.costs, found.goals, found.lengths, found.metrics))
    return Episodes._make([*whole, over_time(found.margins), found.trace])


def complete_episodes(
    env: Env, policy: Policy, memory: Any, keys: tuple[Array, Array], params: Params, trace: Trace = None
) -> Episodes:
    """Runs N envs to the end of their first episode; what comes after a termination is not counted.

    keys: layouts (N,) and in-episode noise (N,). `trace(state, seen, memory)` may pick arrays to keep of every step.
    """
    layout, noise = keys
    state, seen = env.reset(layout, params)
    count = seen.reward.shape[0]

    def step(carry: Any, index: Array) -> tuple[Any, Any]:
        state, seen, memory, alive, sums = carry
        action, memory, metrics = policy(memory, seen, index)
        step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise, index)
        kept = trace(state, seen, memory) if trace else None
        state, seen = env.step(step_keys, state, action, params)
        gained = {"return": seen.reward, "cost": seen.cost, "goals": seen.goals, "length": jnp.ones(count)}
        gained |= {} if seen.forward_metres is None else {"metres": seen.forward_metres}
        sums = {name: sums[name] + alive * value for name, value in gained.items()}
        going_on = alive * (1.0 - jnp.maximum(seen.terminated, seen.truncated).astype(jnp.float32))
        kept_metrics = {name: value * alive for name, value in metrics.items()}
        return (state, seen, memory, going_on, sums), (kept_metrics, seen.margin, kept)

    names = ("return", "cost", "goals", "length", *(() if seen.forward_metres is None else ("metres",)))
    zero = dict.fromkeys(names, jnp.zeros(count))
    start = (state, seen, memory, jnp.ones(count), zero)
    steps = jnp.arange(env.spec.episode_agent_steps)
    (_, _, _, _, sums), (metrics, margins, kept) = jax.lax.scan(step, start, steps)
    means = {name: values.sum(0) / jnp.maximum(1.0, sums["length"]) for name, values in metrics.items()}
    means |= _forward(sums, env.spec.agent_step_seconds)
    return Episodes(sums["return"], sums["cost"], sums["goals"], sums["length"], means, margins, kept)


def _forward(sums: dict[str, Array], agent_step_seconds: float | None) -> dict[str, Array]:
    """Distance and speed of every episode (N,), as far as the task tells them."""
    if "metres" not in sums:
        return {}
    distance = {"forward/metres": sums["metres"]}
    if agent_step_seconds is None:
        return distance
    seconds = jnp.maximum(1.0, sums["length"]) * agent_step_seconds
    return distance | {"forward/metres_per_second": sums["metres"] / seconds}
