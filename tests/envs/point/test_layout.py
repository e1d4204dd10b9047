"""Placement: keep-outs hold, goals follow the official rule, layouts of splits differ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs.point.layout import GOAL_CANDIDATES, InitialLayout, draw_placement, take_goal
from dreamproof.envs.point.params import LEVEL_1, Physics, default_params
from dreamproof.jaxcore.keys import SPLITS, layout_keys

pytestmark = pytest.mark.optimised

LAYOUT = default_params(LEVEL_1, Physics.of_point()).layout
COUNT = 256


@jax.jit
def draw(keys: jax.Array, hazards: jax.Array) -> InitialLayout:
    """Many layouts with some number of hazards."""
    return jax.vmap(lambda key: draw_placement(key, LAYOUT._replace(hazards=hazards), 1))(keys)


def distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Between all pairs (L, A, B)."""
    return np.linalg.norm(np.asarray(first)[:, :, None] - np.asarray(second)[:, None], axis=-1)


@pytest.mark.parametrize("count", [1, 8, 12, 16])
def test_objects_keep_their_distances_and_stay_inside(count: int) -> None:
    drawn = draw(layout_keys(0, "train", COUNT, 0), jnp.int32(count))
    agent, vase = np.asarray(drawn.agent)[:, None], np.asarray(drawn.vases)
    hazards = np.asarray(drawn.hazards)[:, :count]
    between = distances(hazards, hazards) + 10 * np.eye(count)
    # With 16 hazards a very full board may leave no clear place in 64 tries; the least violated is taken.
    assert np.mean(between.min(axis=(1, 2)) < 0.36 - 1e-5) <= (0.0 if count <= 12 else 0.01)
    assert distances(agent, hazards).min() >= 0.58 - 1e-5
    assert distances(agent, vase).min() >= 0.55 - 1e-5
    assert np.abs(hazards).max() <= 1.5 - 0.18 + 1e-6
    assert np.abs(agent).max() <= 1.5 - 0.4 + 1e-6


def test_absent_hazards_are_out_of_the_way() -> None:
    drawn = draw(layout_keys(0, "train", COUNT, 0), jnp.int32(8))
    assert np.asarray(drawn.hazards)[:, 8:].min() > 50


def test_goals_clear_hazards_robot_and_vase_and_use_the_bank_up_in_order() -> None:
    drawn = draw(layout_keys(1, "train", COUNT, 0), jnp.int32(8))
    take = jax.jit(jax.vmap(lambda bank, agent, vases: take_goal(bank, agent, vases, LAYOUT)))
    agent, bank = drawn.agent, drawn.bank
    last = np.full(COUNT, -1)
    for _ in range(5):
        goal, bank = take(bank, agent, drawn.vases)
        where = np.asarray(goal)[:, None]
        assert distances(where, np.asarray(drawn.hazards)[:, :8]).min() >= 0.485 - 1e-5
        assert distances(where, np.asarray(agent)[:, None]).min() >= 0.705 - 1e-5
        assert distances(where, np.asarray(drawn.vases)).min() >= 0.455 - 1e-5
        passed = (np.asarray(bank.following) - 1) % GOAL_CANDIDATES
        assert np.mean(passed > last) > 0.95
        agent, last = goal, passed


def test_a_full_bank_starts_over_rather_than_repeat_the_last_goal() -> None:
    drawn = draw(layout_keys(1, "train", COUNT, 0), jnp.int32(8))
    one = jax.tree.map(lambda leaf: leaf[0], drawn)
    bank = one.bank._replace(following=jnp.int32(GOAL_CANDIDATES - 1))
    goal, bank = take_goal(bank, one.agent, one.vases, LAYOUT)
    first, _ = take_goal(one.bank, one.agent, one.vases, LAYOUT)
    assert np.isfinite(np.asarray(goal)).all()
    if int(bank.following) != 0:
        np.testing.assert_allclose(goal, first)


def test_layouts_of_all_splits_are_different() -> None:
    drawn = [np.asarray(draw(layout_keys(0, split, COUNT, 0), jnp.int32(8)).hazards)[:, 0] for split in SPLITS]
    places = np.concatenate(drawn).round(6)
    assert len(np.unique(places, axis=0)) == len(SPLITS) * COUNT
