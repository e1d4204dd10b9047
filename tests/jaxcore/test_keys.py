"""Named key streams: distinct, reproducible, and independent of how many are asked for."""

import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.jaxcore.keys import SPLITS, layout_keys, member_keys, noise_keys, step_key, stream_key


def bits(keys: jax.Array) -> list[tuple[int, ...]]:
    """The raw numbers of an array of keys."""
    return [tuple(row) for row in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()]


def test_layouts_of_different_splits_seeds_envs_and_episodes_never_share_a_key() -> None:
    seen = [
        key
        for split in SPLITS
        for seed in range(5)
        for episode in range(10)
        for key in bits(layout_keys(seed, split, 20, episode))
    ]
    assert len(set(seen)) == len(seen) == len(SPLITS) * 5 * 10 * 20


def test_noise_keys_are_not_layout_keys() -> None:
    layouts = {key for split in SPLITS for key in bits(layout_keys(0, split, 50, 3))}
    assert not layouts & set(bits(noise_keys(0, "train", 50, 3)))


def test_the_key_of_an_env_does_not_depend_on_how_many_there_are() -> None:
    assert bits(layout_keys(7, "test", 3, 1)) == bits(layout_keys(7, "test", 9, 1))[:3]
    assert bits(layout_keys(7, "test", 4, 1, first_env=5)) == bits(layout_keys(7, "test", 9, 1))[5:]


def test_streams_differ_by_name_and_step() -> None:
    assert bits(stream_key(0, "act")) != bits(stream_key(0, "learn"))
    assert bits(step_key(0, "act", 1)) != bits(step_key(0, "act", 2))


def test_a_traced_seed_gives_the_same_keys_as_a_plain_one() -> None:
    traced = jax.jit(jax.vmap(lambda seed: layout_keys(seed, "train", 4, 2)))(jnp.arange(3, dtype=jnp.uint32))
    plain = [key for seed in range(3) for key in bits(layout_keys(seed, "train", 4, 2))]
    assert bits(traced) == plain


def test_members_of_one_key_differ() -> None:
    assert len(set(bits(member_keys(jax.random.key(0), 100)))) == 100
