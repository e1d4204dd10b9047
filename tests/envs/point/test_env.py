"""The task: what is seen, rewarded and charged, and that batching changes nothing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.envs.courses import COUNT, Course, compiled

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.scripted import go_to_goal_policy
from dreamproof.jaxcore.keys import layout_keys

pytestmark = [pytest.mark.xdist_group("point"), pytest.mark.long(100), pytest.mark.optimised]

FULL_LEFT = jnp.array([1.0, 1.0])


def head_for_goal(observation: jax.Array, step: int) -> jax.Array:
    """Straight to the goal, with a little noise so that costs occur as well."""
    bearing = jnp.arctan2(observation[:, 8], observation[:, 7])
    wiggle = 0.2 * jnp.sin(step + jnp.arange(observation.shape[0]))
    return jnp.stack([jnp.ones_like(bearing), jnp.clip(2 * bearing + wiggle, -1, 1)], axis=1)


def without_noise(course: Course) -> Callable[[jax.Array, int], jax.Array]:
    """The go-to-goal floor as a function of observation and step."""
    policy = go_to_goal_policy(course.env.spec)
    return lambda observation, step: policy(jax.random.key(0), observation)


def test_sizes_are_the_official_ones(point: Course, lidar_point: Course) -> None:
    assert registry.make("SafetyPointGoal1", {"ghost_slots": 0}).spec.observation_size == 29
    assert point.env.spec.observation_size == 33
    assert lidar_point.env.spec.observation_size == 60
    assert point.env.spec.episode_agent_steps == 200


def test_the_coordinate_vector_is_the_true_geometry(point: Course) -> None:
    params = point.env.default_params()
    state, _ = point.start(params)
    state, shown = point.go(state, [1.0, 0.6], params)
    seen, true = np.asarray(shown.observation), point.env.render_state(state, params)
    cosine, sine = np.cos(true["heading"]), np.sin(true["heading"])
    np.testing.assert_allclose(seen[:, 29], cosine, atol=1e-6)
    np.testing.assert_allclose(seen[:, 30], -sine, atol=1e-6)
    np.testing.assert_allclose(seen[:, 31:33], true["agent"], atol=1e-6)
    offset = np.asarray(true["hazards"][:, 3] - true["agent"])
    np.testing.assert_allclose(seen[:, 15], cosine * offset[:, 0] + sine * offset[:, 1], atol=1e-5)
    np.testing.assert_allclose(seen[:, 16], cosine * offset[:, 1] - sine * offset[:, 0], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(seen[:, 7:9], axis=1), state.goal_distance, atol=1e-5)
    np.testing.assert_allclose(seen[:, 25:29], np.tile([3.0, 0.0], (COUNT, 2)))
    np.testing.assert_allclose(seen[:, 4:6], -0.5 * np.stack([sine, cosine], axis=1), atol=1e-6)


def test_the_lidar_points_at_the_goal(lidar_point: Course) -> None:
    params = lidar_point.env.default_params()
    state, shown = lidar_point.start(params)
    true = lidar_point.env.render_state(state, params)
    offset = np.asarray(true["goal"] - true["agent"])
    bearing = (np.arctan2(offset[:, 1], offset[:, 0]) - np.asarray(true["heading"])) % (2 * np.pi)
    goal = np.asarray(shown.observation[:, lidar_point.env.spec.slot("goal_lidar")])
    assert (goal.argmax(axis=1) == np.floor(bearing / (2 * np.pi / 16))).all()
    np.testing.assert_allclose(goal.max(axis=1), 1 - np.linalg.norm(offset, axis=1) / 3, atol=1e-5)


def test_an_episode_is_truncated_after_200_agent_steps_and_never_terminated(point: Course) -> None:
    seen = point.drive(point.env.default_params(), lambda observation, step: jnp.zeros(2), 200)
    assert [bool(shown.first.all()) for shown in seen] == [True] + [False] * 200
    assert [bool(shown.truncated.any()) for shown in seen] == [False] * 200 + [True]
    assert not any(bool(shown.terminated.any()) for shown in seen)


def test_five_repeats_in_one_agent_step_equal_five_single_steps_goals_included(point: Course) -> None:
    single = compiled(registry.make("SafetyPointGoal1", {"action_repeat": 1}))
    params = point.env.default_params()
    state, shown = point.start(params)
    slow = state
    goals = 0.0
    for step in range(40):
        action = head_for_goal(shown.observation, step)
        state, shown = point.go(state, action, params)
        parts = []
        for _ in range(5):
            slow, part = single.go(slow, action, params)
            parts.append(part)
        np.testing.assert_allclose(sum(part.reward for part in parts), shown.reward, atol=2e-4)
        np.testing.assert_allclose(sum(part.goals for part in parts), shown.goals)
        np.testing.assert_allclose(slow.goal, state.goal, atol=1e-6)
        goals += float(shown.goals.sum())
        # The chatter would drive two orders of rounding apart, so both continue from the same body.
        slow = slow._replace(body=state.body, goal_distance=state.goal_distance)
    assert goals >= COUNT


def test_the_cost_counts_simulator_steps_inside_a_hazard_and_the_margin_agrees(point: Course) -> None:
    seen = point.drive(point.env.default_params(), head_for_goal, 100)
    cost = np.stack([shown.cost for shown in seen[1:]])
    margin = np.stack([shown.margin for shown in seen[1:]])
    assert set(np.unique(cost)) == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}
    assert (cost[margin < 0] >= 1).all()
    assert (margin >= -0.2).all()
    assert (margin <= 0.5).all()
    # A robot drives 0.15 m a step at most, so it was not inside a hazard it is farther from.
    assert (cost[margin > 0.16] == 0).all()


def test_go_to_goal_earns_what_it_earns_in_the_official_task(point: Course, lidar_point: Course) -> None:
    for course in (point, lidar_point):
        seen = course.drive(course.env.default_params(), without_noise(course), 200)
        total = np.sum([shown.reward for shown in seen], axis=0)
        # The real task gave 20.2 with a standard deviation of 1.7 per episode.
        assert total.mean() == pytest.approx(20.2, abs=4 * 1.7 / np.sqrt(COUNT))


def test_params_per_env_equal_shared_params(point: Course) -> None:
    params = point.env.default_params()
    spread = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (COUNT,)), params)
    state, _ = point.start(params)
    _, shared = point.go(state, FULL_LEFT, params)
    _, own = point.go(state, FULL_LEFT, spread)
    np.testing.assert_allclose(shared.observation, own.observation, atol=1e-4)
    heavier = spread._replace(physics=spread.physics._replace(mass=spread.physics.mass.at[1::2].mul(4.0)))
    moved, _ = point.go(state, FULL_LEFT, heavier)
    speed = np.hypot(moved.body.velocity_x, moved.body.velocity_y)
    assert speed[1::2].max() < 0.5 * speed[::2].min()


def test_mapping_over_replicas_equals_one_flat_batch(point: Course) -> None:
    params, replicas = point.env.default_params(), 4
    keys = layout_keys(0, "test", COUNT, 0)
    state, _ = point.reset(keys, params)
    action = jnp.tile(FULL_LEFT, (COUNT, 1))
    _, flat = point.step(keys, state, action, params)

    def split(leaf: jax.Array) -> jax.Array:
        return leaf.reshape((replicas, COUNT // replicas, *leaf.shape[1:]))

    mapped = jax.jit(jax.vmap(point.env.step, in_axes=(0, 0, 0, None)))
    _, parts = mapped(split(keys), jax.tree.map(split, state), split(action), params)
    np.testing.assert_allclose(parts.observation.reshape(flat.observation.shape), flat.observation, atol=1e-4)
    np.testing.assert_allclose(parts.reward.reshape(-1), flat.reward, atol=1e-6)


def test_the_vase_is_pushed_only_where_it_is_seen(point: Course, lidar_point: Course) -> None:
    for course, moves in ((point, False), (lidar_point, True)):
        params = course.env.default_params()
        state, _ = course.start(params)
        true = course.env.render_state(state, params)
        ahead = jnp.stack([jnp.cos(true["heading"]), jnp.sin(true["heading"])], axis=1)
        place = true["agent"] + 0.3 * ahead
        state = state._replace(vases=state.vases._replace(x=place[:, :1], y=place[:, 1:]))
        for step in range(10):
            state, _ = course.go(state, [1.0, 0.0], params, step)
        moved = np.linalg.norm(course.env.render_state(state, params)["vases"][:, 0] - place, axis=1)
        assert (moved > 0.05).all() if moves else (moved == 0).all()


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="no multiple of action_repeat"):
        registry.make("SafetyPointGoal1", {"episode_simulator_steps": 1001})
