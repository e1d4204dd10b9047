"""A trained agent acts on plain arrays as it acts in evaluation."""

import jax
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.evaluate.policy import Policy, load_policy
from dreamproof.runs.layout import RunFolder

pytestmark = pytest.mark.xdist_group("trained")
Trained = dict[str, RunFolder]


@pytest.fixture(scope="module")
def policy(trained: Trained) -> Policy:
    return load_policy(trained["baseline"])


# Every other batch size would be compiled anew.
COUNT = 64


def observations(policy: Policy, count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, policy.spec.observation_size)).astype(np.float32)


def test_actions_have_the_tasks_shape_and_range(policy: Policy) -> None:
    policy.reset()
    actions = policy.act(observations(policy, COUNT))
    assert actions.shape == (COUNT, policy.spec.action_size) and np.abs(actions).max() <= 1.0
    with pytest.raises(BadInput, match=rf"2 observations after {COUNT} in the steps before\n.*policy.reset\(\)"):
        policy.act(observations(policy, 2))
    policy.reset()
    assert policy.act(observations(policy, 1)[0]).shape == (policy.spec.action_size,)


def test_an_episode_repeats_after_a_reset_and_depends_on_what_was_seen_before(policy: Policy) -> None:
    steps = 0.3 * observations(policy, 3 * COUNT).reshape(3, COUNT, -1)
    runs = []
    for _ in range(2):
        policy.reset()
        runs.append([policy.act(one) for one in steps])
    np.testing.assert_array_equal(runs[0], runs[1])
    policy.reset()
    assert not np.array_equal(policy.act(steps[2]), runs[0][2])


def test_it_plays_its_own_environment(policy: Policy) -> None:
    env = policy.env
    keys = jax.random.split(jax.random.key(0), COUNT)
    state, seen = env.reset(keys, env.default_params())
    policy.reset()
    _, seen = env.step(keys, state, policy.act(seen.observation), env.default_params())
    assert np.isfinite(np.asarray(seen.reward)).all()


def test_wrong_shapes_and_unknown_checkpoints_are_refused(policy: Policy, trained: Trained) -> None:
    with pytest.raises(BadInput, match="shape"):
        policy.act(np.zeros(policy.spec.observation_size + 1))
    with pytest.raises(BadInput, match="shape"):
        policy.act(np.zeros((0, policy.spec.observation_size)))
    with pytest.raises(BadInput, match="is no array of numbers"):
        policy.act([["a"] * policy.spec.observation_size])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="values that are not finite"):
        policy.act(np.full(policy.spec.observation_size, np.nan))
    with pytest.raises(BadInput, match="'final' or 'selected'"):
        load_policy(trained["baseline"], "best")
