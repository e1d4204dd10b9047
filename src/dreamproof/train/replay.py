"""A replay ring buffer on the device: one row per time step of every env, sampled as windows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Batch
from dreamproof.jaxcore.types import Spec, TimeStep

SCALARS = ("reward", "cost", "margin", "first", "terminated")
FIRST_COLUMN = SCALARS.index("first") - len(SCALARS)
"""Of a row, from its end."""


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
    envs, capacity, _ = rows.shape
    filled = jnp.minimum(written, capacity)
    env_key, start_key = jax.random.split(key)
    env = jax.random.randint(env_key, (batch,), 0, envs)
    start = jax.random.randint(start_key, (batch,), 0, jnp.maximum(1, filled - length + 1))
    return _windows(rows, written, (env, start), length, spec)


class Trajectories(NamedTuple):
    """Rows (N·C) of one replica, those of each env from the oldest on: windows of the usable episode that begins there.

    until: the number of usable episodes that begin up to each row.
    """

    windows: Array
    until: Array


def find_trajectories(rows: Array, written: Array, length: int) -> Trajectories:
    """The finished episodes in rows (N, C, W) that hold at least one window of `length` rows."""
    _, capacity, _ = rows.shape
    at = jnp.arange(capacity)
    is_first = rows[:, (_oldest(written, capacity) + at) % capacity, FIRST_COLUMN] > 0
    is_first &= at < jnp.minimum(written, capacity)
    # The row at which the next episode begins; `capacity` if the episode still runs.
    later = jax.lax.cummin(jnp.where(is_first, at, capacity), axis=1, reverse=True)
    ends = jnp.pad(later[:, 1:], ((0, 0), (0, 1)), constant_values=capacity)
    # The oldest episode may have lost its first rows.
    begins = is_first | (at == 0)
    windows = jnp.where(begins & (ends < capacity), jnp.maximum(0, ends - at - length + 1), 0).reshape(-1)
    return Trajectories(windows, jnp.cumsum(windows > 0))


def sample_trajectories(
    found: Trajectories, rows: Array, written: Array, key: Array, shape: tuple[int, int], spec: Spec
) -> Batch:
    """Windows (T, B, ...), uniform over usable episodes, then over the windows of each.

    Without any usable episode observations are not finite, which freezes the replica.
    """
    length, batch = shape
    episode_key, start_key = jax.random.split(key)
    number = jax.random.randint(episode_key, (batch,), 0, jnp.maximum(1, found.until[-1]))
    place = jnp.searchsorted(found.until, number, side="right")
    start = jax.random.randint(start_key, (batch,), 0, jnp.maximum(1, found.windows[place]))
    env, first = jnp.divmod(place, rows.shape[1])
    drawn = _windows(rows, written, (env, first + start), length, spec)
    return drawn._replace(observation=jnp.where(found.until[-1] > 0, drawn.observation, jnp.nan))


def make_sampler(
    rows: Array, written: Array, shape: tuple[int, int], spec: Spec, uniform_over: str
) -> Callable[[Array], Batch]:
    """A function from keys to windows of one replica's rows, uniform over `transitions` or `trajectories`."""
    if uniform_over == "transitions":
        return lambda key: sample(rows, written, key, shape, spec)
    found = find_trajectories(rows, written, shape[0])
    return lambda key: sample_trajectories(found, rows, written, key, shape, spec)


def _oldest(written: Array, capacity: int) -> Array:
    return jnp.where(written > capacity, written % capacity, 0)


def _windows(rows: Array, written: Array, at: tuple[Array, Array], length: int, spec: Spec) -> Batch:
    """Windows (T, B, ...) that begin in some envs (B,) at rows (B,), counted from the oldest."""
    (env, start), capacity = at, rows.shape[1]
    index = (_oldest(written, capacity) + start[None] + jnp.arange(length)[:, None]) % capacity
    window = rows[env[None], index]
    assert window.shape == (length, *env.shape, rows.shape[2]), window.shape
    ends = np.cumsum([spec.observation_size, spec.action_size, constraints(spec)])
    seen, action, costs, scalars = jnp.split(window, ends, -1)
    named = {name: scalars[..., position] for position, name in enumerate(SCALARS)}
    batch_costs = costs if constraints(spec) else None
    held_out = (env == 0).astype(jnp.float32)
    return Batch(observation=seen, action=action, held_out=held_out, costs=batch_costs, **named)
