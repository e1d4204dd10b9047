"""Every named condition changes what it says, and only that; none needs a new compile; cost stays true."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.envs.courses import COUNT, Course

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.point.perception import nearest_slots
from dreamproof.envs.shift import NAMED_SHIFTS, find_condition

pytestmark = [pytest.mark.xdist_group("point"), pytest.mark.long(100), pytest.mark.optimised]

HAZARDS = slice(9, 25)
GHOSTS = slice(25, 29)
FULL_AHEAD = jnp.array([1.0, 0.0])
PARKED = np.array([3.0, 0.0])


def shifted(course: Course, name: str, settings: dict[str, Any] | None = None) -> Any:
    """The task's parameters under a condition."""
    return find_condition(course.env, name, settings).change(course.env.default_params())


def sight(course: Course, name: str, steps: int, settings: dict[str, Any] | None = None) -> tuple[np.ndarray, ...]:
    """What is seen under a condition while turning slowly on the spot, and what is truly there: (T, N, O) each."""
    params, plain = shifted(course, name, settings), course.env.default_params()
    state, shown = course.start(params)
    seen, true = [], []
    for step in range(steps):
        action = jnp.array([0.02, 1.0])
        _, clear = course.go(state, action, plain, step)
        state, shown = course.go(state, action, params, step)
        seen.append(shown.observation)
        true.append(clear.observation)
    return np.stack(seen), np.stack(true)


def speed_after(course: Course, params: Any, steps: int = 3) -> np.ndarray:
    """Metres a second after full force ahead from rest."""
    state, _ = course.start(params)
    for _ in range(steps):
        state, _ = course.go(state, FULL_AHEAD, params)
    return np.hypot(state.body.velocity_x, state.body.velocity_y)


def test_all_conditions_of_the_study_exist_and_are_marked(point: Course) -> None:
    kinds = {name: condition.kind for name, condition in point.env.conditions().items()}
    assert kinds["id"] == "in_distribution"
    assert {kinds[f"hallu{level}"] for level in range(4)} == {"proxy"}
    assert {kinds[name] for name in ("hallu2_fp", "hallu2_fn", "hallu2_noise", "hallu2_original")} == {"proxy"}
    genuine = {"mass_x2", "damping_x0.5", "force_x1.5", "yaw_gain_x0.6", "hazard_radius_0.30", "hazards_12"}
    genuine |= {"hazards_16", "action_delay_2", "action_noise_0.1", "observation_delay_2", "observation_noise_0.1"}
    assert {kinds[name] for name in genuine} == {"genuine"}
    assert all(condition.description for condition in point.env.conditions().values())


def test_no_condition_compiles_anything_anew(point: Course) -> None:
    plain = point.env.default_params()
    state, _ = point.start(plain)
    point.go(state, FULL_AHEAD, plain)
    before = dict(point.traces)
    for name in point.env.named_shifts():
        params = shifted(point, name)
        state, _ = point.start(params)
        point.go(state, FULL_AHEAD, params)
    assert point.traces == before


def test_hallu0_changes_nothing(point: Course) -> None:
    seen, true = sight(point, "hallu0", 3)
    np.testing.assert_array_equal(seen, true)


def test_mass_changes_acceleration_and_not_top_speed(point: Course) -> None:
    plain = speed_after(point, point.env.default_params())
    assert (speed_after(point, shifted(point, "mass_x2")) < 0.7 * plain).all()
    assert (speed_after(point, shifted(point, "mass_x0.5")) > 1.3 * plain).all()
    assert speed_after(point, shifted(point, "mass_x2"), 80) == pytest.approx(1.5, abs=0.01)


def test_damping_changes_top_speed(point: Course) -> None:
    assert speed_after(point, shifted(point, "damping_x2"), 80) == pytest.approx(0.75, abs=0.01)
    assert speed_after(point, shifted(point, "damping_x0.5"), 80) == pytest.approx(3.0, abs=0.01)


def test_force_changes_acceleration_in_proportion(point: Course) -> None:
    plain = speed_after(point, point.env.default_params())
    np.testing.assert_allclose(speed_after(point, shifted(point, "force_x1.5")), 1.5 * plain, rtol=1e-3)
    np.testing.assert_allclose(speed_after(point, shifted(point, "force_x0.6")), 0.6 * plain, rtol=1e-3)


def test_yaw_gain_slows_the_turn(point: Course) -> None:
    params = shifted(point, "yaw_gain_x0.6")
    state, _ = point.start(params)
    for _ in range(5):
        state, _ = point.go(state, [0.0, 1.0], params)
    assert np.asarray(state.body.spin) == pytest.approx(1.8, abs=0.01)


def test_the_hazard_radius_changes_cost_and_margin_and_nothing_that_is_seen(point: Course) -> None:
    plain, wide = point.env.default_params(), shifted(point, "hazard_radius_0.30")
    state, _ = point.start(plain)
    # Every robot stands 0.25 m from its first hazard.
    beside = state.hazards[:, 0] + jnp.array([0.25, 0.0])
    still = jax.tree.map(jnp.zeros_like, state.body)._replace(x=beside[:, 0], y=beside[:, 1])
    state = state._replace(body=still)
    _, usual = point.go(state, [0.0, 0.0], plain)
    _, unusual = point.go(state, [0.0, 0.0], wide)
    np.testing.assert_array_equal(usual.observation, unusual.observation)
    assert (unusual.cost == 5).all()
    assert (usual.cost[usual.margin > 0] == 0).all()
    np.testing.assert_allclose(usual.margin - unusual.margin, 0.1, atol=1e-5)


@pytest.mark.parametrize("count", [12, 16])
def test_more_hazards_are_there_and_the_eight_nearest_are_shown(point: Course, count: int) -> None:
    params = shifted(point, f"hazards_{count}")
    state, shown = point.start(params)
    true = point.env.render_state(state, params)
    assert np.isfinite(np.asarray(true["hazards"])).all(axis=2).sum(axis=1).tolist() == [count] * COUNT
    away = np.sort(np.linalg.norm(true["hazards"] - true["agent"][:, None], axis=2)[:, :count], axis=1)
    seen = np.asarray(shown.observation)[:, HAZARDS].reshape(COUNT, 8, 2)
    np.testing.assert_allclose(np.sort(np.linalg.norm(seen, axis=2), axis=1), away[:, :8], atol=1e-4)


def test_a_hazard_keeps_its_slot_while_it_is_among_the_nearest() -> None:
    squares = jnp.array([9.0, 1.0, 2.0, 8.0, 3.0, 0.5])
    assert nearest_slots(squares, 4).tolist() == [4, 1, 2, 5]
    assert nearest_slots(jnp.array([1.0, 2.0, 3.0, 4.0, 9e9, 9e9]), 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("delay", [1, 2])
def test_actions_act_so_many_steps_late(point: Course, delay: int) -> None:
    params = shifted(point, f"action_delay_{delay}")
    state, _ = point.start(params)
    speeds = []
    for _ in range(4):
        state, _ = point.go(state, FULL_AHEAD, params)
        speeds.append(float(np.hypot(state.body.velocity_x, state.body.velocity_y).max()))
    assert speeds[:delay] == [0.0] * delay
    assert speeds[delay] > 0.1


def test_action_noise_has_the_declared_spread(point: Course) -> None:
    params = shifted(point, "action_noise_0.1")
    state, _ = point.start(params)
    felt = []
    for step in range(40):
        state, _ = point.go(state, [0.5, 0.5], params, step)
        felt.append(np.asarray(state.last_action) - 0.5)
    assert np.std(felt) == pytest.approx(0.1, rel=0.1)
    assert abs(np.mean(felt)) < 0.01


@pytest.mark.parametrize("delay", [1, 2])
def test_observations_come_so_many_steps_late(point: Course, delay: int) -> None:
    params, plain = shifted(point, f"observation_delay_{delay}"), point.env.default_params()
    late = point.drive(params, lambda observation, step: FULL_AHEAD, 6)
    prompt = point.drive(plain, lambda observation, step: FULL_AHEAD, 6)
    for step in range(6):
        np.testing.assert_allclose(late[step].observation, prompt[max(0, step - delay)].observation, atol=1e-5)


def test_observation_noise_has_the_declared_spread_on_every_number(point: Course) -> None:
    seen, true = sight(point, "observation_noise_0.1", 40)
    error = (seen - true).reshape(-1, seen.shape[-1])
    np.testing.assert_allclose(error.std(axis=0), 0.1, rtol=0.15)


def test_place_noise_moves_hazards_and_goal_alone(point: Course) -> None:
    seen, true = sight(point, "noise", 40, {"place_noise": 0.05})
    error = (seen - true).reshape(-1, seen.shape[-1])
    moved = np.zeros(33, bool)
    moved[7:25] = True
    np.testing.assert_allclose(error[:, moved].std(axis=0), 0.05, rtol=0.15)
    np.testing.assert_array_equal(error[:, ~moved], 0.0)


def test_dropout_holds_the_last_observation_as_often_as_declared(point: Course) -> None:
    seen, _ = sight(point, "dropout", 80, {"dropout": 0.1})
    held = (seen[1:] == seen[:-1]).all(axis=2)
    assert held.mean() == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize(("level", "duty", "shown"), [(1, 0.143, 1), (2, 0.63, 2), (3, 0.88, 2)])
def test_ghosts_appear_as_often_as_declared_and_hide_no_hazard(
    point: Course, level: int, duty: float, shown: int
) -> None:
    seen, true = sight(point, f"hallu{level}_fp", 120)
    np.testing.assert_array_equal(seen[..., HAZARDS], true[..., HAZARDS])
    ghosts = seen[..., GHOSTS].reshape(120, COUNT, 2, 2)
    present = (ghosts != PARKED).any(axis=3)
    assert present.any(axis=2).mean() == pytest.approx(duty, abs=0.05)
    assert present.sum(axis=2).max() == shown


def test_ghosts_stand_still_in_the_world(point: Course) -> None:
    seen, true = sight(
        point, "ghosts", 20, {"ghost_chance": 1.0, "ghosts": 2, "ghost_min_steps": 10, "ghost_max_steps": 10}
    )
    cosine, sine = true[..., 29], -true[..., 30]
    ahead, left = seen[..., 25], seen[..., 26]
    world = np.stack([cosine * ahead - sine * left, sine * ahead + cosine * left], axis=-1) + true[..., 31:33]
    # The event that began with the reset ends after ten frames, nine of them steps.
    np.testing.assert_allclose(world[1:9], world[:8], atol=1e-4)
    assert np.linalg.norm(world[9] - world[8], axis=-1).min() > 1e-3
    assert np.ptp(ahead[:9], axis=0).min() > 0.05


@pytest.mark.parametrize(("level", "duty", "missed"), [(2, 0.174, 2), (3, 0.4545, 3)])
def test_missed_hazards_are_parked_as_often_as_declared(point: Course, level: int, duty: float, missed: int) -> None:
    seen, true = sight(point, f"hallu{level}_fn", 120)
    hazards = seen[..., HAZARDS].reshape(120, COUNT, 8, 2)
    absent = (hazards == PARKED).all(axis=3)
    assert absent.any(axis=2).mean() == pytest.approx(duty, abs=0.06)
    assert set(np.unique(absent.sum(axis=2))) == {0, missed}
    np.testing.assert_array_equal(seen[..., 25:], true[..., 25:])


def test_missed_hazards_may_be_held_where_they_were_seen_last(point: Course) -> None:
    settings = {"miss_chance": 0.3, "misses": 8, "miss_min_steps": 5, "miss_max_steps": 5, "missed_shows": "held"}
    seen, true = sight(point, "held", 40, settings)
    stuck = (seen[1:, :, HAZARDS] == seen[:-1, :, HAZARDS]).all(axis=2)
    assert 0.3 < stuck.mean() < 0.9
    assert not (seen[..., HAZARDS].reshape(-1, 2) == PARKED).all(axis=1).any()
    assert not (true[1:, :, HAZARDS] == true[:-1, :, HAZARDS]).all(axis=2).any()


def test_the_original_definition_keeps_its_defects(point: Course) -> None:
    seen, true = sight(point, "hallu3_original", 120)
    np.testing.assert_array_equal(seen[..., GHOSTS], true[..., GHOSTS])
    hazards, real = (part[..., HAZARDS].reshape(120, COUNT, 8, 2) for part in (seen, true))
    under_robot = (hazards == 0).all(axis=3)
    assert under_robot.any(axis=2).mean() > 0.3
    overwritten = (hazards != real).any(axis=3) & ~under_robot
    assert overwritten.any(axis=2).mean() > 0.7
    # Ghosts travel with the robot: their body-frame place does not change while it turns.
    both = overwritten[1:] & overwritten[:-1]
    assert ((hazards[1:] == hazards[:-1]).all(axis=3) & both).sum() > 0.6 * both.sum()


def test_hallu2_is_all_of_its_parts(point: Course) -> None:
    whole = NAMED_SHIFTS["hallu2"].model_dump()
    for part in ("hallu2_fp", "hallu2_fn", "hallu2_noise"):
        changed = NAMED_SHIFTS[part].model_dump(exclude_unset=True)
        assert changed
        assert changed.items() <= whole.items()
    assert find_condition(point.env, "hallu2").latent_swaps == 2


def test_reward_cost_and_margin_are_measured_on_the_true_state(point: Course) -> None:
    actions = jax.random.uniform(jax.random.key(5), (30, COUNT, 2), minval=-1, maxval=1)
    runs = [
        point.drive(shifted(point, name), lambda observation, step: actions[step], 30)
        for name in ("id", "hallu3", "observation_delay_2", "observation_noise_0.1")
    ]
    for run in runs[1:]:
        for clear, blurred in zip(runs[0], run, strict=True):
            np.testing.assert_array_equal(clear.cost, blurred.cost)
            np.testing.assert_array_equal(clear.reward, blurred.reward)
            np.testing.assert_array_equal(clear.margin, blurred.margin)


def test_ghosts_and_misses_show_in_the_lidar(lidar_point: Course) -> None:
    seen, true = sight(lidar_point, "hallu2_fp", 40)
    lidar = lidar_point.env.spec.slot("hazards_lidar")
    assert (seen[..., lidar] >= true[..., lidar] - 1e-6).all()
    assert (seen[..., lidar] > true[..., lidar] + 1e-3).any(axis=2).mean() > 0.4
    seen, true = sight(lidar_point, "hallu3_fn", 40)
    assert (seen[..., lidar] <= true[..., lidar] + 1e-6).all()
    assert (seen[..., lidar] < true[..., lidar] - 1e-3).any(axis=2).mean() > 0.2


def test_a_condition_may_be_altered_or_made_by_settings(point: Course) -> None:
    params = shifted(point, "mass_x2", {"mass_factor": 3.0, "action_delay": 1})
    assert params.physics.mass == pytest.approx(3 * 5.18879e-3, rel=1e-5)
    assert params.actuators.delay == 1


def test_an_unknown_condition_names_the_nearest(point: Course) -> None:
    with pytest.raises(BadInput, match="did you mean 'hallu2'"):
        find_condition(point.env, "halu2")
    with pytest.raises(BadInput, match="unknown key 'mass_facter'"):
        find_condition(point.env, "mine", {"mass_facter": 2.0})


def test_ghost_conditions_need_slots_for_ghosts() -> None:
    bare = registry.make("SafetyPointGoal1", {"ghost_slots": 0})
    assert "hallu2_fn" in bare.conditions()
    with pytest.raises(BadInput, match="ghost_slots"):
        find_condition(bare, "hallu2")
