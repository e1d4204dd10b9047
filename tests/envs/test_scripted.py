"""The floors: random and go-to-goal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.point.sensors import lidar
from dreamproof.envs.scripted import floors, go_to_goal_policy, random_policy
from dreamproof.envs.steering import steer

pytestmark = pytest.mark.optimised


def test_random_actions_fill_the_box_and_follow_the_key() -> None:
    act = random_policy(registry.make("SafetyPointGoal1").spec)
    actions = np.asarray(act(jax.random.key(0), jnp.zeros((1000, 33))))
    assert actions.shape == (1000, 2)
    assert -1 <= actions.min() < -0.9
    assert 0.9 < actions.max() <= 1
    np.testing.assert_array_equal(actions, act(jax.random.key(0), jnp.ones((1000, 33))))


def test_steering_turns_to_the_goal_and_drives_once_it_lies_ahead() -> None:
    np.testing.assert_allclose(steer(np.array([1.0]), np.array([0.0])), [[1, 0]])
    np.testing.assert_allclose(steer(np.array([-1.0]), np.array([0.1])), [[0, 1]])
    np.testing.assert_allclose(steer(np.array([0.0]), np.array([-1.0])), [[0, -1]])


def test_the_lidar_leads_to_the_same_goal_as_the_coordinates() -> None:
    angles = jnp.linspace(-3.0, 3.0, 41)
    goals = 1.2 * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    seen = jnp.zeros((41, 60)).at[:, 12:28].set(jax.vmap(lambda goal: lidar(goal[None]))(goals))
    act = go_to_goal_policy(registry.make("SafetyPointGoal1", {"observation": "lidar"}).spec)
    expected = steer(goals[:, 0], goals[:, 1], jnp)
    np.testing.assert_allclose(act(jax.random.key(0), seen), expected, atol=2e-3)


def test_a_task_without_a_goal_has_the_random_floor_alone() -> None:
    probe = registry.make("ProbeTarget").spec
    assert list(floors(probe)) == ["random"]
    assert list(floors(registry.make("SafetyPointGoal1").spec)) == ["random", "go_to_goal"]
    with pytest.raises(BadInput, match="does not observe a goal"):
        go_to_goal_policy(probe)
