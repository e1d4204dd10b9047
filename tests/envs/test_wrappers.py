"""Restarting: envs that ended begin anew, the others go on, and nothing of the old episode is lost."""

import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.envs.probes import SurviveProbe, TargetProbe
from dreamproof.envs.wrappers import AutoReset
from dreamproof.jaxcore.keys import layout_keys, noise_keys

ACTIONS = jnp.array([[[1.0], [1.0]], [[1.0], [-1.0]], [[1.0], [1.0]], [[1.0], [1.0]]])


def test_a_terminated_env_restarts_alone() -> None:
    env = AutoReset(SurviveProbe(episode_agent_steps=3))
    params = env.default_params()
    state, shown = env.reset(layout_keys(0, "train", 2, 0), params)
    step_all = jax.jit(env.step)
    seen = []
    for step, action in enumerate(ACTIONS):
        state, shown = step_all(noise_keys(0, "train", 2, step), state, action, params)
        seen.append(shown)
    # Env 0 meets the time limit at its third step; env 1 ends itself at its second and goes on afresh.
    assert np.stack([shown.terminated for shown in seen]).T.tolist() == [[False] * 4, [False, True, False, False]]
    assert np.stack([shown.truncated for shown in seen]).T.tolist() == [[False, False, True, False], [False] * 4]
    assert np.stack([shown.first for shown in seen]).T.tolist() == [
        [False, False, True, False],
        [False, True, False, False],
    ]
    assert np.stack([shown.reward for shown in seen]).T.tolist() == [[1, 1, 1, 1], [1, 0, 1, 1]]
    assert np.stack([shown.observation[:, 0] for shown in seen])[:, 1].tolist() == [0, 0, 0, 0]
    assert np.stack([shown.final_observation[:, 0] for shown in seen])[:, 1].tolist() == [0, 1, 0, 0]


def test_a_restart_draws_a_fresh_episode() -> None:
    env = AutoReset(TargetProbe(episode_agent_steps=1))
    params = env.default_params()
    state, shown = env.reset(layout_keys(0, "train", 2, 0), params)
    starts = [shown.observation]
    for step in range(3):
        state, shown = env.step(noise_keys(0, "train", 2, step), state, jnp.zeros((2, 1)), params)
        starts.append(shown.observation)
    assert len(np.unique(np.concatenate(starts))) == 8


def test_the_wrapper_is_as_hashable_as_what_it_holds() -> None:
    assert hash(AutoReset(SurviveProbe())) == hash(AutoReset(SurviveProbe()))
    assert AutoReset(SurviveProbe()).spec == SurviveProbe().spec
