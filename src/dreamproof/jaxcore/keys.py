"""Named streams of random keys: the key at step t is fold_in(seed, stream, t), so no key is ever carried or saved."""

from typing import Literal
from zlib import crc32

import jax
import jax.numpy as jnp
from jax import Array

Split = Literal["train", "validation", "calibration", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "calibration", "test")


def stream_key(seed: Array | int, stream: str) -> Array:
    """The key of a named stream of one run; `seed` may be traced."""
    return jax.random.fold_in(jax.random.key(seed), crc32(stream.encode()))


def step_key(seed: Array | int, stream: str, step: Array | int) -> Array:
    """The key of one stream at one step."""
    return jax.random.fold_in(stream_key(seed, stream), step)


def member_keys(key: Array, count: int, first: int = 0) -> Array:
    """Keys (count,) of the members first, first + 1, ...; a member's key does not depend on `count`."""
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, first + jnp.arange(count))


def layout_keys(seed: Array | int, split: Split, envs: int, episode: Array | int, first_env: int = 0) -> Array:
    """Keys (envs,) of the initial layout of an episode; different for every split, seed, env and episode."""
    return member_keys(step_key(seed, f"layout/{split}", episode), envs, first_env)


def noise_keys(seed: Array | int, split: Split, envs: int, agent_step: Array | int, first_env: int = 0) -> Array:
    """Keys (envs,) of the noise inside one agent step."""
    return member_keys(step_key(seed, f"noise/{split}", agent_step), envs, first_env)
