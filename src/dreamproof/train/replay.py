"""A replay ring buffer on the device: one row per time step of every env, sampled as windows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Batch
from dreamproof.jaxcore.types import Spec, TimeStep

SCALARS = ("reward", "cost", "margin", "first", "terminated")


class Replay(NamedTuple):
    """rows (R, N, C, W) of R replicas with N envs each; `written` counts rows of one env, the same for all."""

    rows: Array
    written: Array


def row_width(spec: Spec) -> int:
    """Values per row: observation, action, the cost of each of several constraints, then the scalars."""
    return spec.observation_size + spec.action_size + constraints(spec) + len(SCALARS)


def constraints(spec: Spec) -> int:
    """How many costs a row has beside the total; that of a single constraint is the total."""
    return len(spec.costs) if len(spec.costs) > 1 else 0


def init_replay(spec: Spec, replicas: int, envs: int, capacity: int) -> Replay:
    """An empty buffer with `capacity` rows per env."""
    return Replay(jnp.zeros((replicas, envs, capacity, row_width(spec))), jnp.zeros((), jnp.int32))


def add(replay: Replay, seen: TimeStep, action: Array) -> Replay:
    """Overwrites the oldest row of every env (R, N, ...); `action` is the one that led to `seen`."""
    scalars = jnp.stack([jnp.asarray(getattr(seen, name), jnp.float32) for name in SCALARS], axis=-1)
    costs = [] if seen.costs is None or seen.costs.shape[-1] < 2 else [seen.costs]
    row = jnp.concatenate([seen.observation, action, *costs, scalars], axis=-1)
    index = replay.written % replay.rows.shape[2]
    rows = jax.lax.dynamic_update_slice_in_dim(replay.rows, row[:, :, None], index, axis=2)
    return Replay(rows, replay.written + 1)


def sample(rows: Array, written: Array, key: Array, shape: tuple[int, int], spec: Spec) -> Batch:
    """Windows (T, B, ...) of one replica's rows (N, C, W), uniform over all complete windows.

    Windows of env 0 are marked as held out.
    """
    length, batch = shape
    envs, capacity, width = rows.shape
    filled = jnp.minimum(written, capacity)
    oldest = jnp.where(written > capacity, written % capacity, 0)
    env_key, start_key = jax.random.split(key)
    env = jax.random.randint(env_key, (batch,), 0, envs)
    start = jax.random.randint(start_key, (batch,), 0, jnp.maximum(1, filled - length + 1))
    index = (oldest + start[None] + jnp.arange(length)[:, None]) % capacity
    window = rows[env[None], index]
    assert window.shape == (length, batch, width), window.shape
    ends = np.cumsum([spec.observation_size, spec.action_size, constraints(spec)])
    seen, action, costs, scalars = jnp.split(window, ends, -1)
    named = {name: scalars[..., position] for position, name in enumerate(SCALARS)}
    batch_costs = costs if constraints(spec) else None
    held_out = (env == 0).astype(jnp.float32)
    return Batch(observation=seen, action=action, held_out=held_out, costs=batch_costs, **named)
