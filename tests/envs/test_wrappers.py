"""Restarting: envs that ended restart, the others continue, and nothing is lost. Filling up to other tasks' sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.envs.probes import SurviveProbe, TargetProbe
from dreamproof.envs.wrappers import AutoReset, Padded
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = pytest.mark.optimised

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
    # Env 0 meets the time limit at its third step; env 1 ends itself at its second and starts again.
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


def test_a_padded_task_shows_zeros_behind_its_own_and_hears_its_own_actions_alone() -> None:
    plain = AutoReset(TargetProbe(episode_agent_steps=3))
    wide = Padded(plain, observation_size=4, action_size=3, task=2)
    assert (wide.spec.observation_size, wide.spec.action_size) == (4, 3)
    assert (wide.spec.task, wide.spec.usable_actions) == (2, 1)
    params, keys = wide.default_params(), layout_keys(0, "train", 2, 0)
    action = jnp.array([[0.5, 9.0, -9.0], [-0.5, 1.0, 1.0]])
    (state, shown), (wide_state, wide_shown) = plain.reset(keys, params), wide.reset(keys, params)
    for step in range(3):
        noise = noise_keys(0, "train", 2, step)
        state, shown = plain.step(noise, state, action[:, :1], params)
        wide_state, wide_shown = wide.step(noise, wide_state, action, params)
        np.testing.assert_array_equal(wide_shown.observation[:, :1], shown.observation)
        np.testing.assert_array_equal(wide_shown.final_observation[:, :1], shown.final_observation)
        np.testing.assert_array_equal(wide_shown.reward, shown.reward)
        assert not np.asarray(wide_shown.observation[:, 1:]).any()


def test_a_task_wider_than_the_widest_is_refused() -> None:
    with pytest.raises(BadInput, match="the action size of the task 'ProbeTarget', 1, exceeds the 0 of the widest"):
        Padded(TargetProbe(), observation_size=1, action_size=0)
