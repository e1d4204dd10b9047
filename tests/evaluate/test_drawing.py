"""Trails: what is kept of the first env, and what is left out."""

import jax
import jax.numpy as jnp
import numpy as np

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


def test_a_task_that_shows_nothing_has_no_trail() -> None:
    assert as_trail({}) is None
