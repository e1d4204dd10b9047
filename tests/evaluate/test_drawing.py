"""Trails: what is kept of the first env, and what is left out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs.api import Env
from dreamproof.envs.registry import make
from dreamproof.evaluate.drawing import as_trail, places_of_first
from dreamproof.settings.env import EnvSettings


def straight_drive(env: Env, steps: int) -> list[dict[str, jax.Array]]:
    """Places of the first of two envs that drive straight on."""
    params, step = env.default_params(), jax.jit(env.step)
    keys = jax.random.split(jax.random.key(0), 2)
    state, seen = env.reset(keys, params)
    rows = []
    for _ in range(steps):
        rows.append(jax.tree.map(lambda x: x[0], places_of_first(env, state, seen, params, 2)))
        state, seen = step(keys, state, jnp.tile(jnp.array([1.0, 0.0]), (2, 1)), params)
    return rows


def test_the_trail_follows_the_first_env() -> None:
    rows = straight_drive(make("SafetyPointGoal1", EnvSettings()), 12)
    trail = as_trail({name: jnp.stack([row[name] for row in rows]) for name in rows[0]})
    assert trail is not None
    assert len(trail.agent) == len(trail.goal) == len(trail.cost) == 12
    assert len(trail.hazards) == 8, "hazards that are absent are not drawn"
    np.testing.assert_allclose(trail.agent[5], rows[5]["agent"], atol=1e-3)
    assert np.hypot(*np.subtract(trail.agent[-1], trail.agent[0])) > 0.05
    assert trail.hazard_radius == 0.2


def test_vases_are_kept_where_they_are_moved_to() -> None:
    rows = straight_drive(make("SafetyPointGoal2", EnvSettings()), 8)
    places = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    places["vases"][5:, 3] += (0.25, 0.0)
    trail = as_trail(places)
    assert trail is not None and trail.vase_size == pytest.approx(0.2)
    assert len(trail.vases) == 10 and [len(moved) for moved in trail.vases].count(1) >= 8
    step, x, y = trail.vases[3][-1]
    assert step == 5 and (x, y) == pytest.approx(places["vases"][-1, 3], abs=1e-3)
    assert as_trail({name: value for name, value in places.items() if "vase" not in name}).vases == []


def test_a_task_that_shows_nothing_has_no_trail() -> None:
    assert as_trail({}) is None
