"""Complete episodes of a batch of envs under any policy, on the true reward and cost."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.api import Env, Params
from dreamproof.jaxcore.keys import Split, layout_keys, noise_keys
from dreamproof.jaxcore.types import Spec, TimeStep

# policy(memory, seen, step) -> (action (N, A), memory, metrics {name: (N,)})
Policy = Callable[[Any, TimeStep, Array], tuple[Array, Any, dict[str, Array]]]
# trace(state, seen, memory) -> arrays to record in every step
Trace = Callable[[Any, TimeStep, Any], Any] | None


class Episodes(NamedTuple):
    """One value per episode (N,); `metrics` are means over the decisions of an episode; `margins` is (T, N).

    If a task has a forward direction, `metrics` also has `forward/metres`, the distance of the episode, and
    `forward/metres_per_second`. If it has several constraints, `metrics` has the cost of each, as `cost_hazards`.
    """

    returns: Array
    costs: Array
    goals: Array
    lengths: Array
    metrics: dict[str, Array]
    margins: Array
    trace: Any


def episode_keys(seed: int, split: Split, episodes: int) -> tuple[Array, Array]:
    """Keys of the layouts of `episodes` episodes (E,), and of the noise inside them (E,)."""
    return layout_keys(seed, split, episodes, 0), noise_keys(seed, split, episodes, 0)


class RolloutState(NamedTuple):
    """Running episodes: env states, time steps, policy memory, which are still alive (N,), and sums so far (N,)."""

    state: Any
    seen: TimeStep
    memory: Any
    alive: Array
    sums: dict[str, Array]


class StepRows(NamedTuple):
    """Records of every step: metrics (T, N), margins (T, N), and the trace (T, ...)."""

    metrics: dict[str, Array]
    margins: Array
    trace: Any


def shared_episodes(
    env: Env, act: Policy, memory: Any, keys: tuple[Array, Array], params: Params, trace: Trace = None
) -> Episodes:
    """Complete episodes of R policies on the same layouts; `act`, `memory` and results have leading axes (R, E)."""
    shape = (jax.tree.leaves(memory)[0].shape[0], keys[0].shape[0])
    layout, noise = (repeat_keys(each, shape[0]) for each in keys)
    return split_policies(
        complete_episodes(env, flatten_policy(act, shape), memory, (layout, noise), params, trace), shape
    )


def repeat_keys(keys: Array, policies: int) -> Array:
    """The same keys (E,) for each of R policies, flat (R·E,)."""
    return jnp.concatenate([keys] * policies)


def flatten_policy(act: Policy, shape: tuple[int, int]) -> Policy:
    """A policy with leading axes (R, E) as a policy of R·E envs; its memory keeps the two axes."""

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        action, memory, metrics = act(memory, jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), seen), index)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (action, metrics))
        return flat[0], memory, flat[1]

    return policy


def split_policies(found: Episodes, shape: tuple[int, int]) -> Episodes:
    """Episodes of R·E envs as those of R policies, (R, E); margins become (R, T, E), a trace is not changed."""
    whole = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), found[:5])
    return Episodes._make([*whole, jnp.moveaxis(found.margins.reshape(-1, *shape), 0, 1), found.trace])


def complete_episodes(
    env: Env, policy: Policy, memory: Any, keys: tuple[Array, Array], params: Params, trace: Trace = None
) -> Episodes:
    """Runs N envs to the end of their first episode; steps after a termination are not counted.

    keys: layouts (N,) and in-episode noise (N,). `trace(state, seen, memory)` selects arrays to record in every step.
    """
    steps = jnp.arange(env.spec.episode_agent_steps)
    rollout, rows = continue_rollout(
        env, policy, begin_rollout(env, memory, keys[0], params), (keys[1], steps), params, trace
    )
    return finish_rollout(env, rollout, rows)


def begin_rollout(env: Env, memory: Any, layout: Array, params: Params) -> RolloutState:
    """N envs at the start of an episode."""
    state, seen = env.reset(layout, params)
    names = ("return", "cost", "goals", "length", *(() if seen.forward_metres is None else ("metres",)))
    names += cost_names(env.spec)
    count = seen.reward.shape[0]
    return RolloutState(state, seen, memory, jnp.ones(count), dict.fromkeys(names, jnp.zeros(count)))


def cost_names(spec: Spec) -> tuple[str, ...]:
    """Metrics of the costs of a task with several constraints; one cost is `cost` alone."""
    return tuple(f"cost_{name}" for name in spec.costs) if len(spec.costs) > 1 else ()


def continue_rollout(
    env: Env,
    policy: Policy,
    rollout: RolloutState,
    keys_and_steps: tuple[Array, Array],
    params: Params,
    trace: Trace = None,
) -> tuple[RolloutState, StepRows]:
    """More agent steps; `keys_and_steps`: keys of the in-episode noise (N,), and step numbers (T,)."""
    noise, steps = keys_and_steps

    def step(rollout: RolloutState, index: Array) -> tuple[RolloutState, StepRows]:
        action, memory, metrics = policy(rollout.memory, rollout.seen, index)
        step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise, index)
        traced = trace(rollout.state, rollout.seen, memory) if trace else None
        state, seen = env.step(step_keys, rollout.state, action, params)
        gained = {"return": seen.reward, "cost": seen.cost, "goals": seen.goals, "length": jnp.ones_like(rollout.alive)}
        gained |= {} if seen.forward_metres is None else {"metres": seen.forward_metres}
        gained |= {
            name: seen.costs[:, place] for place, name in enumerate(cost_names(env.spec)) if seen.costs is not None
        }
        sums = {name: rollout.sums[name] + rollout.alive * value for name, value in gained.items()}
        alive = rollout.alive * (1.0 - jnp.maximum(seen.terminated, seen.truncated).astype(jnp.float32))
        counted = {name: value * rollout.alive for name, value in metrics.items()}
        return RolloutState(state, seen, memory, alive, sums), StepRows(counted, seen.margin, traced)

    return jax.lax.scan(step, rollout, steps)


def finish_rollout(env: Env, rollout: RolloutState, rows: StepRows) -> Episodes:
    """The episodes of a rollout that reached their end."""
    sums = rollout.sums
    means = {name: values.sum(0) / jnp.maximum(1.0, sums["length"]) for name, values in rows.metrics.items()}
    means |= _forward(sums, env.spec.agent_step_seconds) | {name: sums[name] for name in cost_names(env.spec)}
    return Episodes(sums["return"], sums["cost"], sums["goals"], sums["length"], means, rows.margins, rows.trace)


def _forward(sums: dict[str, Array], agent_step_seconds: float | None) -> dict[str, Array]:
    """Distance and speed of every episode (N,), if the task reports them."""
    if "metres" not in sums:
        return {}
    distance = {"forward/metres": sums["metres"]}
    if agent_step_seconds is None:
        return distance
    seconds = jnp.maximum(1.0, sums["length"]) * agent_step_seconds
    return distance | {"forward/metres_per_second": sums["metres"] / seconds}
