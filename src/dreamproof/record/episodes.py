"""Complete episodes of several policies as one recording."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.data.recordings import Recording, TaskInfo
from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key
from dreamproof.jaxcore.types import TimeStep
from dreamproof.record.policies import RecordingPolicy

MAX_BATCH = 128

Track = Callable[[list[int]], Iterable[int]]


class Rollout(NamedTuple):
    """N episodes: observations (T+1, N, O), actions (T, N, A), rewards and end flags (T, N)."""

    observation: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array


def make_rollout(policy: RecordingPolicy, envs: int) -> Callable[[Any, tuple[Array, Array, Array]], Rollout]:
    """A compiled function from agent state and keys (layouts (N,), noise (N,), actions) to N episodes."""
    env, params = policy.env, policy.env.default_params()

    @eqx.filter_jit
    def roll_out(state: Any, keys: tuple[Array, Array, Array]) -> Rollout:
        layout, noise, acting = keys
        start, first = env.reset(layout, params)

        def step(carry: tuple[Any, TimeStep, Any], index: Array) -> tuple[Any, Any]:
            inner, seen, memory = carry
            action, memory = policy.act(state, memory, seen, jax.random.fold_in(acting, index))
            step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise, index)
            inner, seen = env.step(step_keys, inner, action, params)
            shown = (seen.observation, action, seen.reward, seen.terminated, seen.truncated)
            return (inner, seen, memory), shown

        steps = jnp.arange(env.spec.episode_agent_steps)
        _, (later, *rest) = jax.lax.scan(step, (start, first, policy.memory(envs)), steps)
        return Rollout(jnp.concatenate([first.observation[None], later]), *rest)

    return roll_out


def record(policies: list[RecordingPolicy], tasks: list[str], episodes: int, seed: int, track: Track) -> Recording:
    """`episodes` episodes per policy, padded to the widest task and the longest episode; `track` shows progress.

    Tasks are numbered in the order of `tasks`.
    """
    specs = [next(policy.own_spec for policy in policies if policy.task == task) for task in tasks]
    task_info = TaskInfo(
        tuple(tasks), tuple(spec.observation_size for spec in specs), tuple(spec.action_size for spec in specs)
    )
    made = blank(len(policies) * episodes, 1 + max(spec.episode_agent_steps for spec in specs), task_info)
    at_once = min(episodes, MAX_BATCH)
    batches = -(-episodes // at_once)
    rollouts: dict[int, Any] = {}
    for number in track(list(range(len(policies) * batches))):
        index, batch = divmod(number, batches)
        policy = policies[index]
        if index not in rollouts:
            rollouts = {index: make_rollout(policy, at_once)}
        # Every batch has its own layouts.
        keys = (layout_keys(seed, "train", at_once, number), noise_keys(seed, "train", at_once, number))
        rollout = rollouts[index](policy.state, (*keys, step_key(seed, "record", number)))
        first = index * episodes + batch * at_once
        last = min(first + at_once, (index + 1) * episodes)
        write_into(made, slice(first, last), jax.device_get(rollout), tasks.index(policy.task))
    return made


def blank(episodes: int, rows: int, task_info: TaskInfo) -> Recording:
    """An empty recording with the sizes of the widest task."""
    shape = (episodes, rows)
    seen, done = max(task_info.observation_sizes), max(task_info.action_sizes)
    return Recording(
        observation=np.zeros((*shape, seen), np.float32),
        action=np.zeros((*shape, done), np.float32),
        reward=np.zeros(shape, np.float32),
        task=np.zeros(episodes, np.int32),
        rows=np.zeros(episodes, np.int32),
        terminated=np.zeros(episodes, bool),
        task_info=task_info,
    )


def write_into(made: Recording, place: slice, rollout: Rollout, task: int) -> None:
    """Writes the first episodes of a rollout into `place`; rows after the end of an episode stay 0."""
    assert made.task_info is not None
    count = place.stop - place.start
    seen, done = made.task_info.observation_sizes[task], made.task_info.action_sizes[task]
    over = (rollout.terminated | rollout.truncated)[:, :count]
    steps = over.argmax(0) + 1
    assert over.any(0).all(), "an episode did not end within its time limit"
    kept = np.arange(len(over))[:, None] < steps
    action = np.clip(np.asarray(rollout.action)[:, :count, :done], -1.0, 1.0) * kept[..., None]
    made.observation[place, 0, :seen] = rollout.observation[0, :count, :seen]
    later = np.asarray(rollout.observation)[1:, :count, :seen] * kept[..., None]
    made.observation[place, 1 : len(over) + 1, :seen] = np.moveaxis(later, 0, 1)
    made.action[place, 1 : len(over) + 1, :done] = np.moveaxis(action, 0, 1)
    made.reward[place, 1 : len(over) + 1] = (rollout.reward[:, :count] * kept).T
    made.task[place], made.rows[place] = task, steps + 1
    made.terminated[place] = rollout.terminated[steps - 1, np.arange(count)]
