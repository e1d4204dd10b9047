"""The ring: rows come back as they went in, windows never cross its seam, env 0 is held out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.train.replay import FIRST_COLUMN, Replay, add, init_replay, make_sampler, row_width, sample

SPEC = Spec("Replay", observation_size=2, action_size=1, episode_agent_steps=5)
REPLICAS, ENVS, CAPACITY, LENGTH = 2, 3, 10, 4
SHAPE = (LENGTH, 400)
ADD = jax.jit(add)
SAMPLE = jax.jit(sample, static_argnums=(3, 4))


def shown(step: int) -> tuple[TimeStep, jax.Array]:
    """A row whose numbers say replica, env and step."""
    env = jnp.arange(REPLICAS * ENVS, dtype=jnp.float32).reshape(REPLICAS, ENVS)
    now = jnp.full((REPLICAS, ENVS), float(step))
    no = jnp.zeros((REPLICAS, ENVS), bool)
    seen = TimeStep(jnp.stack([env, now], -1), now, now + 0.25, now + 0.5, now, no | (step % 5 == 0), no, no)
    return seen, -now[..., None]


def filled(steps: int) -> Replay:
    """A ring after so many rows."""
    replay = init_replay(SPEC, REPLICAS, ENVS, CAPACITY)
    for step in range(steps):
        replay = ADD(replay, *shown(step))
    return replay


@pytest.fixture(scope="module", params=[CAPACITY - 3, CAPACITY, CAPACITY + 1, 2 * CAPACITY + 7])
def ring(request: pytest.FixtureRequest) -> tuple[int, Replay]:
    """Rings that are not full, just full, and wrapped around."""
    return request.param, filled(request.param)


def test_windows_are_consecutive_steps_of_one_env_and_never_cross_the_seam(ring: tuple[int, Replay]) -> None:
    steps, replay = ring
    batch = SAMPLE(replay.rows[1], replay.written, jax.random.key(0), SHAPE, SPEC)
    env, time = np.asarray(batch.observation[..., 0]), np.asarray(batch.observation[..., 1])
    assert (np.diff(time, axis=0) == 1).all()
    assert (env == env[0]).all()
    oldest = max(0, steps - CAPACITY)
    assert set(time[0]) == set(range(oldest, steps - LENGTH + 1))


def test_all_parts_of_a_row_come_back(ring: tuple[int, Replay]) -> None:
    _, replay = ring
    batch = SAMPLE(replay.rows[0], replay.written, jax.random.key(1), SHAPE, SPEC)
    time = batch.observation[..., 1]
    np.testing.assert_array_equal(batch.reward, time)
    np.testing.assert_array_equal(batch.cost, time + 0.25)
    np.testing.assert_array_equal(batch.margin, time + 0.5)
    np.testing.assert_array_equal(batch.action[..., 0], -time)
    np.testing.assert_array_equal(batch.first, (time % 5 == 0).astype(np.float32))
    np.testing.assert_array_equal(batch.terminated, 0.0)


def test_windows_of_the_first_env_alone_are_held_out(ring: tuple[int, Replay]) -> None:
    _, replay = ring
    batch = SAMPLE(replay.rows[1], replay.written, jax.random.key(2), SHAPE, SPEC)
    env = np.asarray(batch.observation[0, :, 0]) - ENVS
    np.testing.assert_array_equal(batch.held_out, (env == 0).astype(np.float32))
    assert np.bincount(env.astype(int)).min() > 60


def test_a_row_is_as_wide_as_what_it_holds() -> None:
    assert row_width(SPEC) == 2 + 1 + 5
    assert filled(1).rows.shape == (REPLICAS, ENVS, CAPACITY, 8)


# Rows at which an episode begins, by env: three finished episodes of 9, 5 and 2 rows, and one that still runs.
BEGINS = ([0, 9, 14, 16], [3])
ROWS = 24


def ragged(written: int = ROWS, capacity: int = ROWS) -> tuple[jax.Array, jax.Array]:
    """Rows (2, C, W) of one replica that say env and step, and their number."""
    rows = np.zeros((2, capacity, row_width(SPEC)), np.float32)
    for step in range(max(0, written - capacity), written):
        for env, begins in enumerate(BEGINS):
            rows[env, step % capacity, :2] = env, step
            rows[env, step % capacity, FIRST_COLUMN] = step in begins
    return jnp.asarray(rows), jnp.asarray(written)


def drawn_starts(rows: jax.Array, written: jax.Array, count: int = 6000) -> dict[tuple[int, int], int]:
    """How often windows begin in (env, step), uniform over trajectories."""
    draw = make_sampler(rows, written, (LENGTH, count), SPEC, "trajectories")
    batch = draw(jax.random.key(0))
    env, time = np.asarray(batch.observation[..., 0]), np.asarray(batch.observation[..., 1])
    assert (np.diff(time, axis=0) == 1).all() and (env == env[0]).all() and not np.asarray(batch.first[1:]).any()
    places, counts = np.unique(np.stack([env[0], time[0]], -1), axis=0, return_counts=True)
    return {(int(place[0]), int(place[1])): int(number) for place, number in zip(places, counts, strict=True)}


def test_uniform_over_trajectories_every_finished_episode_with_a_whole_window_counts_the_same() -> None:
    found = drawn_starts(*ragged())
    # The rows before the first one that begins an episode in the second env are too few for a window.
    assert set(found) == {(0, step) for step in (0, 1, 2, 3, 4, 5, 9, 10)}
    long, short = (sum(found[0, step] for step in steps) for steps in (range(6), (9, 10)))
    assert abs(long - short) < 400
    assert max(abs(found[0, step] - 500) for step in range(6)) < 120


def test_the_rest_of_an_episode_that_the_ring_overwrites_still_counts() -> None:
    found = drawn_starts(*ragged(capacity=20))
    # Rows 4 to 23 are left: five of the first episode.
    assert set(found) == {(0, step) for step in (4, 5, 9, 10)}


def test_without_a_usable_episode_nothing_finite_is_drawn() -> None:
    rows, written = ragged(written=8)
    batch = make_sampler(rows, written, (LENGTH, 5), SPEC, "trajectories")(jax.random.key(0))
    assert np.isnan(np.asarray(batch.observation)).all()


def test_uniform_over_transitions_is_the_plain_sample() -> None:
    rows, written = ragged()
    one = make_sampler(rows, written, (LENGTH, 50), SPEC, "transitions")(jax.random.key(3))
    other = sample(rows, written, jax.random.key(3), (LENGTH, 50), SPEC)
    for part, same in zip(one, other, strict=True):
        np.testing.assert_array_equal(part, same)


def test_the_cost_of_each_of_several_constraints_comes_back() -> None:
    spec = SPEC._replace(costs=("hazards", "vases"))
    replay = init_replay(spec, REPLICAS, ENVS, CAPACITY)
    for step in range(CAPACITY):
        seen, action = shown(step)
        replay = ADD(replay, seen._replace(costs=jnp.stack([seen.reward, seen.reward + 0.75], -1)), action)
    batch = SAMPLE(replay.rows[0], replay.written, jax.random.key(1), SHAPE, spec)
    time = batch.observation[..., 1]
    np.testing.assert_array_equal(batch.costs, np.stack([time, time + 0.75], -1))
    np.testing.assert_array_equal(batch.cost, time + 0.25)
    assert row_width(spec) == row_width(SPEC) + 2
