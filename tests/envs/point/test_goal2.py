"""SafetyPointGoal2: vases that cost, typed entities, and a cost for each constraint, in known states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.api import TimeStep
from dreamproof.envs.episodes import complete_episodes, episode_keys
from dreamproof.envs.point.dynamics import PointBody
from dreamproof.envs.point.env import PointGoal
from dreamproof.envs.point.params import LEVEL_2
from dreamproof.envs.point.touch import gap
from dreamproof.envs.point.vase import Vase, at_rest, moves, push
from dreamproof.envs.shift import find_condition
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = [pytest.mark.long(40), pytest.mark.optimised]

COUNT = 4
STILL = jnp.zeros((COUNT, 2))


def robot(x: float, y: float = 0.0, heading: float = 0.0, speed: float = 0.0) -> PointBody:
    """A robot that drives along x."""
    return PointBody(*(jnp.asarray(value) for value in (x, y, heading, speed, 0.0, 0.0)))


def one_vase(heading: float = 0.0) -> Vase:
    """A vase at the origin."""
    return at_rest(jnp.zeros((1, 2)), jnp.full(1, heading))


@pytest.fixture(scope="module")
def env() -> PointGoal:
    """The task with short episodes."""
    made = registry.make("SafetyPointGoal2", {"episode_simulator_steps": 40})
    assert isinstance(made, PointGoal)
    return made


@pytest.fixture(scope="module")
def step(env: PointGoal):
    """A compiled agent step with the parameters of training."""
    return jax.jit(lambda state, action: env.step(noise_keys(0, "test", COUNT, 0), state, action, env.default_params()))


@pytest.fixture(scope="module")
def start(env: PointGoal):
    """Four layouts, and what they show."""
    return jax.jit(env.reset)(layout_keys(0, "test", COUNT, 0), env.default_params())


@pytest.mark.parametrize(
    ("body", "heading", "metres"),
    [
        # The sphere's edge is 0.1 m behind the robot's centre, the cube's front 0.15 m ahead of it.
        (robot(0.5), 0.0, 0.3),
        (robot(-0.5), 0.0, 0.25),
        (robot(0.25, heading=np.pi), 0.0, 0.0),
        (robot(0.15), 0.0, -0.05),
        (robot(0.5), np.pi / 4, 0.4 - 0.1 * np.sqrt(2)),
        (robot(0.4, 0.5, -np.pi / 2), np.pi / 2, 0.25),
    ],
)
def test_the_gap_to_a_vase_has_its_known_values(body: PointBody, heading: float, metres: float) -> None:
    assert float(gap(one_vase(heading), body, jnp)[0]) == pytest.approx(metres, abs=1e-6)


def test_a_robot_pushes_a_vase_ahead_of_it_and_it_comes_to_rest() -> None:
    vase = push(one_vase(), robot(-0.24, speed=1.0))
    assert float(vase.x[0]) == pytest.approx(0.01, abs=1e-6)
    assert float(vase.velocity_x[0]) == pytest.approx(1.2)
    assert float(gap(vase, robot(-0.24), jnp)[0]) == pytest.approx(0.0, abs=1e-6)
    moving = 0
    while bool(moves(vase)[0]):
        vase, moving = push(vase, robot(5.0)), moving + 1
        assert moving < 50
    # 1.2 m/s at 5.5 m/s² are 11 steps; the rest is settling.
    assert 15 <= moving <= 22
    assert float(vase.y[0]) == float(vase.heading[0]) == 0.0


def test_a_push_off_the_centre_turns_the_vase() -> None:
    for side in (0.04, -0.04):
        vase = push(one_vase(), robot(-0.24, side, speed=1.0))
        assert np.sign(float(vase.spin[0])) == -np.sign(side)


def test_a_vase_out_of_reach_stays_exactly_where_it_is() -> None:
    vase = one_vase(0.3)
    jax.tree.map(np.testing.assert_array_equal, push(vase, robot(0.5)), vase)


def test_layouts_have_ten_hazards_and_ten_vases_on_a_board_of_four_metres(env: PointGoal, start) -> None:
    places = env.render_state(start[0], env.default_params())
    assert places["vases"].shape == (COUNT, 10, 2)
    assert int(np.isfinite(places["hazards"]).all(-1).sum(1).min()) == 10
    assert float(np.abs(places["vases"]).max()) <= 2.0 - 0.15
    between = np.linalg.norm(places["vases"][:, :, None] - places["vases"][:, None], axis=-1) + 9 * np.eye(10)
    assert between.min() >= 0.3 - 1e-5


def test_every_entity_says_where_and_what_it_is(env: PointGoal, start) -> None:
    state, shown = start
    spec = env.spec
    assert spec.entities is not None
    assert spec.entity_types == 2
    first, last, width = spec.entities
    seen = np.asarray(shown.observation[:, first:last]).reshape(COUNT, -1, width)
    assert seen.shape == (COUNT, 10 + 2 + 10, 4)
    np.testing.assert_array_equal(seen[..., 2:], np.broadcast_to(np.eye(2)[[0] * 12 + [1] * 10], (COUNT, 22, 2)))
    np.testing.assert_array_equal(seen[:, 10:12, :2], np.broadcast_to([3.0, 0.0], (COUNT, 2, 2)))
    agent = np.stack([state.body.x, state.body.y], -1)[:, None]
    vases = np.stack([state.vases.x, state.vases.y], -1)
    np.testing.assert_allclose(
        np.linalg.norm(seen[:, 12:, :2], axis=-1), np.linalg.norm(vases - agent, axis=-1), atol=1e-5
    )


def test_each_constraint_is_counted_and_the_total_counts_a_step_once(env: PointGoal, start, step) -> None:
    state, _ = start
    far = jnp.full((COUNT, 10), 50.0) + jnp.arange(10.0)
    vases = state.vases._replace(x=far, y=far, heading=jnp.zeros_like(far))
    hazards = jnp.full_like(state.hazards, 30.0)
    body = PointBody(*(jnp.zeros(COUNT) for _ in range(6)))
    state = state._replace(body=body, vases=vases, hazards=hazards, goal=jnp.full((COUNT, 2), 1.0))
    # Nothing, a hazard, a moving vase, and both.
    in_hazard, touched = jnp.array([0, 1, 0, 1]) > 0, jnp.array([0, 0, 1, 1]) > 0
    state = state._replace(
        hazards=state.hazards.at[:, 0].set(jnp.where(in_hazard[:, None], 0.05, 30.0)),
        vases=vases._replace(velocity_x=vases.velocity_x.at[:, 3].set(jnp.where(touched, 2.0, 0.0))),
    )
    _, shown = step(state, STILL)
    np.testing.assert_array_equal(shown.costs, [[0, 0], [5, 0], [0, 5], [5, 5]])
    np.testing.assert_array_equal(shown.cost, [0, 5, 5, 5])
    assert env.spec.costs == ("hazards", "vases")


def test_the_margin_is_that_of_the_nearest_of_both_kinds(env: PointGoal, start) -> None:
    state = jax.tree.map(lambda leaf: leaf[0], start[0])
    far = jnp.full(10, 50.0)
    state = state._replace(body=robot(0.0), hazards=jnp.full((16, 2), 30.0).at[0].set(jnp.array([0.0, 0.5])))
    for x, margin in ((50.0, 0.3), (0.4, 0.15), (0.2, -0.05)):
        placed = state._replace(vases=at_rest(jnp.stack([far.at[0].set(x), far.at[0].set(0.0)], -1), far * 0))
        assert float(env._margin(placed, env.default_params())) == pytest.approx(margin, abs=1e-6)


def test_conditions_keep_the_ten_hazards_unless_they_change_them(env: PointGoal) -> None:
    numbers = {
        name: int(find_condition(env, name).change(env.default_params()).layout.hazards)
        for name in ("id", "mass_x2", "hallu2", "hazards_16")
    }
    assert numbers == {"id": 10, "mass_x2": 10, "hallu2": 10, "hazards_16": 16}


def test_vases_that_cost_cannot_be_still() -> None:
    with pytest.raises(BadInput, match="they cannot be still"):
        registry.make("SafetyPointGoal2", {"vase": "still"})
    assert registry.make("SafetyPointGoal2", {"observation": "lidar"}).spec.observation_size == 60
    assert LEVEL_2.costs == ("hazards", "vases")


def test_an_episode_counts_the_cost_of_each_constraint(env: PointGoal) -> None:
    def wander(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        action = jnp.array([0.3, jnp.sin(index / 5.0)])
        return jnp.broadcast_to(action, (seen.reward.shape[0], 2)), memory, {}

    found = jax.jit(lambda: complete_episodes(env, wander, (), episode_keys(0, "test", 32), env.default_params()))()
    hazards, vases = found.metrics["cost_hazards"], found.metrics["cost_vases"]
    assert float(hazards.max()) > 0 and float(vases.max()) > 0
    # A step in a hazard and at a moving vase counts once in the total.
    assert bool((jnp.maximum(hazards, vases) <= found.costs).all() and (found.costs <= hazards + vases).all())
