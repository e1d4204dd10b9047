"""SafetyCarGoal1 as a task: batching, floors, conditions, and what it refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.point.env import PointGoal
from dreamproof.envs.scripted import floors, go_to_goal_policy
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = [pytest.mark.long(40), pytest.mark.optimised]

TASK = "SafetyCarGoal1"
COUNT = 16


@pytest.fixture(scope="module")
def env() -> PointGoal:
    """The task in episodes of forty agent steps."""
    made = registry.make(TASK, {"episode_simulator_steps": 200})
    assert isinstance(made, PointGoal)
    return made


@pytest.fixture(scope="module")
def reset(env: PointGoal):
    """The compiled reset."""
    return jax.jit(env.reset)


@pytest.fixture(scope="module")
def step(env: PointGoal):
    """The compiled step, for physics that differ between envs."""
    return jax.jit(env.step)


def stronger(env: PointGoal, force: Any) -> Any:
    """Parameters with factors (COUNT,) of the motors' torque."""
    even = jnp.ones(COUNT)
    drawn = {"mass": even, "damping": even, "force": even * force, "delay": jnp.zeros(COUNT, jnp.int32)}
    return env.vary(env.default_params(), drawn)


def test_an_agent_sees_what_the_point_robot_sees(env: PointGoal) -> None:
    point = registry.make("SafetyPointGoal1", {"episode_simulator_steps": 200}).spec
    assert env.spec._replace(name=point.name, wheels=False) == point


def test_each_env_of_a_batch_is_the_same_alone(env: PointGoal, reset, step) -> None:
    params = stronger(env, 1.0)
    keys, noise = layout_keys(0, "train", COUNT, 0), noise_keys(0, "train", COUNT, 0)
    state, _ = reset(keys, params)
    action = jax.random.uniform(jax.random.key(1), (COUNT, 2), minval=-1, maxval=1)
    _, together = step(noise, state, action, params)
    lone_state = jax.tree.map(lambda leaf: jnp.repeat(leaf[3:4], COUNT, axis=0), state)
    _, alone = step(jnp.repeat(noise[3:4], COUNT), lone_state, jnp.repeat(action[3:4], COUNT, axis=0), params)
    np.testing.assert_allclose(alone.observation[0], together.observation[3], atol=1e-5)


def test_driving_at_the_goal_reaches_goals(env: PointGoal, reset, step) -> None:
    params, act = stronger(env, 1.0), jax.jit(go_to_goal_policy(env.spec))
    state, shown = reset(layout_keys(1, "test", COUNT, 0), params)
    total = np.zeros((2, COUNT))
    for number in range(env.spec.episode_agent_steps):
        keys = noise_keys(1, "test", COUNT, number)
        state, shown = step(keys, state, act(keys[0], shown.observation), params)
        total += np.stack([shown.reward, shown.goals])
    assert total[1].mean() >= 1.0
    assert total[0].mean() >= 3.0
    assert bool(shown.truncated.all())
    assert list(floors(env.spec)) == ["random", "go_to_goal"]


def test_physics_can_differ_between_envs(env: PointGoal, reset, step) -> None:
    params = stronger(env, jnp.linspace(0.2, 1.0, COUNT))
    state, _ = reset(jnp.repeat(layout_keys(0, "train", 1, 0), COUNT), params)
    for number in range(4):
        state, _ = step(noise_keys(0, "train", COUNT, number), state, jnp.ones((COUNT, 2)), params)
    speed = np.hypot(*np.asarray(state.body.velocity)[:, :2].T)
    assert speed[0] < 0.5 * speed[-1]


def test_conditions_are_those_that_a_car_can_express(env: PointGoal) -> None:
    point = registry.make("SafetyPointGoal1").conditions()
    assert set(env.conditions()) == {*point, "friction_x0.5"} - {"yaw_gain_x0.6"}
    slippery = env.conditions()["friction_x0.5"].change(env.default_params())
    assert float(slippery.physics.friction) == 0.5


@pytest.mark.parametrize("settings", [{"observation": "lidar"}, {"vase": "pushed"}], ids=["lidar", "vase"])
def test_what_the_car_has_not_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="has no lidar, and its vase stands still"):
        registry.make(TASK, settings)
