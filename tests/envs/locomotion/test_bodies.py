"""Locomotion on MJX: the same physics as MuJoCo in C, two kinds of ends, restarts, shifts as data, separate envs."""

import copy
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import Array
from tests.envs.locomotion.rollouts import (
    COUNT,
    EPISODE_STEPS,
    QUICK,
    CompiledTask,
    c_steps,
    compiled_task,
    wild_states,
)

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.locomotion import physics
from dreamproof.envs.locomotion.params import BodyParams
from dreamproof.envs.locomotion.physics import Motion, MujocoBody, all_iterations
from dreamproof.envs.locomotion.task import Locomotion
from dreamproof.envs.shift import find_condition
from dreamproof.jaxcore.keys import layout_keys
from dreamproof.settings.env import Shift

pytestmark = [pytest.mark.long(100), pytest.mark.optimised]

SIZES = {
    "Ant": (37, 8, 1000, 1 / 60, True),
    "Hopper": (11, 3, 1000, 1 / 60, True),
    "cheetah-run": (17, 6, 500, 0.02, False),
    "walker-walk": (24, 6, 500, 0.05, False),
    "hopper-hop": (15, 4, 500, 0.04, False),
    "cartpole-swingup": (5, 1, 500, 0.02, False),
}
# Agent steps that make 20 to 32 simulator steps, and how far position and velocity may be off after them.
HORIZONS = {
    "Ant": (2, 1e-5, 1e-3),
    "Hopper": (10, 1e-4, 3e-3),
    "cheetah-run": (10, 1e-4, 3e-3),
    "walker-walk": (1, 1e-3, 3e-2),
    "hopper-hop": (3, 1e-4, 3e-3),
    "cartpole-swingup": (10, 3e-4, 3e-3),
}
WEAKER, HEAVIER = Shift(force_factor=0.6), Shift(mass_factor=1.5)


@pytest.fixture(scope="session", params=list(SIZES))
def any_task(request: pytest.FixtureRequest) -> CompiledTask:
    """Every task, one after the other."""
    return compiled_task(request.param)


@pytest.fixture(scope="session")
def ant() -> CompiledTask:
    """The ant."""
    return compiled_task("Ant")


def thorough(model: mujoco.MjModel) -> mujoco.MjModel:
    """The same model with a solver that runs to its end."""
    model = copy.copy(model)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    return model


def c_rollout(
    body: MujocoBody, model: mujoco.MjModel, states: list[mujoco.MjData], actions: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Positions, velocities, sensors (N, ...) after a step for each row of actions (T, N, A); contacts met (N,)."""
    positions, velocities, sensors, contacts = [], [], [], []
    for index, state in enumerate(states):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = state.qpos, state.qvel
        met = 0
        for action in actions[:, index]:
            data.ctrl[:] = action
            met += c_steps(body, model, data, 1)
        contacts.append(met)
        positions.append(data.qpos.copy())
        velocities.append(data.qvel.copy())
        sensors.append(data.sensordata.copy())
    return np.stack(positions), np.stack(velocities), np.stack(sensors), np.stack(contacts)


def airborne(compiled_task: CompiledTask, speed: float = 0.0) -> Any:
    """Ants that fall freely from 3 m with bent knees, joints turning at `speed`."""
    positions = np.tile([0, 0, 3.0, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1], (COUNT, 1))
    velocities = np.zeros((COUNT, 14))
    velocities[:, 6:] = speed * np.sign(positions[:, 7:] + 0.1)
    return compiled_task.place(positions, velocities)


def test_a_task_says_its_sizes_times_and_that_nothing_costs(any_task: CompiledTask) -> None:
    spec = registry.make(any_task.env.name).spec
    sizes = (spec.observation_size, spec.action_size, spec.episode_agent_steps)
    assert sizes == SIZES[spec.name][:3]
    assert spec.agent_step_seconds == pytest.approx(SIZES[spec.name][3])
    assert spec.terminates == SIZES[spec.name][4]
    assert not spec.has_cost
    assert not spec.has_margin
    assert hash(any_task.env) == hash(copy.copy(any_task.env))


def test_the_ant_weighs_182_kilograms_and_the_cheetah_14() -> None:
    weights = {
        task: float(registry.make(task).default_params().mass.sum()) for task in ("Ant", "Hopper", "cheetah-run")
    }
    assert weights == pytest.approx({"Ant": 182.176, "Hopper": 15.82, "cheetah-run": 14.0}, rel=1e-4)


def test_what_is_shown_is_finite_and_has_the_declared_shapes(any_task: CompiledTask) -> None:
    state, shown = any_task.start()
    for seen in (shown, any_task.go(state, jnp.ones(any_task.env.spec.action_size))[1]):
        assert seen.observation.shape == (COUNT, any_task.env.spec.observation_size)
        columns = [seen.reward, seen.cost, seen.margin, seen.goals]
        assert {(column.shape, column.dtype) for column in columns} == {((COUNT,), jnp.dtype("float32"))}
        flags = [seen.first, seen.terminated, seen.truncated]
        assert {(flag.shape, flag.dtype) for flag in flags} == {((COUNT,), jnp.dtype("bool"))}
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(seen))
        assert float(jnp.abs(seen.cost).max()) == 0.0
    assert bool(shown.first.all())


def test_mjx_and_mujoco_in_c_stay_together_for_twenty_simulator_steps_and_more(any_task: CompiledTask) -> None:
    env = any_task.env
    agent_steps, position_error, velocity_error = HORIZONS[env.name]
    states = wild_states(env, COUNT)
    actions = np.random.default_rng(1).uniform(-1, 1, (agent_steps, COUNT, env.body.motors)).astype(np.float32)
    state = any_task.place([data.qpos for data in states], [data.qvel for data in states])
    running = np.ones(COUNT, bool)
    for step in range(agent_steps):
        state, shown = any_task.go(state, actions[step])
        running &= ~np.asarray(shown.terminated)
    held = np.repeat(actions, env.substeps * env.action_repeat, axis=0)
    positions, velocities, sensors, contacts = c_rollout(env.body, thorough(env.body.host), states, held)
    assert running.sum() >= 4
    assert env.forward is None or contacts[running].sum() > 20
    np.testing.assert_allclose(state.motion.position[running], positions[running], atol=position_error)
    np.testing.assert_allclose(state.motion.velocity[running], velocities[running], atol=velocity_error)
    # Newtons; the suite's hopper alone feels any.
    np.testing.assert_allclose(state.motion.touch[running], sensors[running], rtol=1e-2, atol=0.1)
    assert sensors.any() == (env.name == "hopper-hop")


def test_iterations_after_the_solver_has_converged_change_nothing() -> None:
    env = registry.make("cheetah-run")
    assert isinstance(env, Locomotion)
    states = wild_states(env, COUNT)
    motion = jax.vmap(env.body.still)(
        *(jnp.stack([getattr(data, name) for data in states]) for name in ("qpos", "qvel"))
    )
    action = jax.random.uniform(jax.random.key(0), (COUNT, env.body.motors), minval=-1.0)

    def asking(motion: Motion, action: Array) -> Motion:
        changed = {"qpos": motion.position, "qvel": motion.velocity, "qacc_warmstart": motion.guess, "ctrl": action}
        data = physics.mjx.step(env.body.model, env.body.blank.replace(**changed))
        return Motion(data.qpos, data.qvel, data.qacc_warmstart, data.sensordata)

    advance = jax.jit(
        jax.vmap(lambda motion, action: env.body.advance(motion, action, env.body.params)), compiler_options=QUICK
    )
    advance_asking = jax.jit(jax.vmap(asking), compiler_options=QUICK)
    found, expected = motion, motion
    for _ in range(3):
        found, expected = advance(found, action), advance_asking(expected, action)
    np.testing.assert_allclose(found.position, expected.position, atol=1e-6)
    np.testing.assert_allclose(found.velocity, expected.velocity, atol=1e-4)


def test_the_same_keys_start_the_same_episodes_and_other_keys_others(any_task: CompiledTask) -> None:
    one, again, other = (any_task.start(seed)[1].observation for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    assert len(np.unique(np.asarray(one), axis=0)) > COUNT // 2
    alone = any_task.env.start(layout_keys(0, "test", COUNT, 0)[3])[0]
    np.testing.assert_allclose(alone, any_task.start()[0].motion.position[3], atol=1e-6)


def test_an_env_does_not_feel_its_neighbours(any_task: CompiledTask) -> None:
    state, _ = any_task.start()
    actions = jax.random.uniform(jax.random.key(0), (COUNT, any_task.env.spec.action_size), minval=-1, maxval=1)
    order = jnp.array([5, 3, 0, 7, 1, 6, 2, 4])
    _, straight = any_task.go(state, actions)
    _, shuffled = any_task.go(jax.tree.map(lambda leaf: leaf[order], state), actions[order])
    np.testing.assert_allclose(shuffled.observation, straight.observation[order], atol=1e-5)
    np.testing.assert_allclose(shuffled.reward, straight.reward[order], atol=1e-5)


def test_the_time_limit_truncates_restarts_and_keeps_the_last_observation(any_task: CompiledTask) -> None:
    state, _ = any_task.start()
    late = jnp.full(COUNT, EPISODE_STEPS - 2, jnp.int32).at[0].set(EPISODE_STEPS - 1)
    state = state._replace(agent_steps=late)
    before, early = any_task.go(state, jnp.zeros(any_task.env.spec.action_size))
    assert np.asarray(early.truncated).tolist() == [True] + [False] * (COUNT - 1)
    assert not bool(early.terminated.any())
    np.testing.assert_array_equal(early.observation[1:], early.final_observation[1:])
    assert not np.allclose(early.observation[0], early.final_observation[0])
    # The kept observation is that of the old episode's last state; the shown one belongs to a fresh start.
    untouched = any_task.go(state._replace(agent_steps=state.agent_steps * 0), jnp.zeros(any_task.env.spec.action_size))
    np.testing.assert_array_equal(early.final_observation, untouched[1].observation)
    assert np.asarray(before.agent_steps).tolist() == [0] + [EPISODE_STEPS - 1] * (COUNT - 1)
    assert np.asarray(early.first).tolist() == [True] + [False] * (COUNT - 1)


def test_the_distance_forward_is_measured(any_task: CompiledTask) -> None:
    env = any_task.env
    state, shown = any_task.start()
    if env.forward is None:
        assert shown.forward_metres is None
        return
    moving = state.motion.velocity.at[:, env.forward].set(1.0)
    after, shown = any_task.go(state._replace(motion=state.motion._replace(velocity=moving)), np.zeros(env.body.motors))
    way = after.motion.position[:, env.forward] - state.motion.position[:, env.forward]
    np.testing.assert_allclose(shown.forward_metres, way, atol=1e-6)
    assert float(shown.forward_metres.mean()) > 0


@pytest.mark.parametrize("task", [task for task in SIZES if not SIZES[task][4]])
def test_a_suite_step_returns_at_most_two_and_an_episode_a_thousand(task: str) -> None:
    suite = compiled_task(task)
    assert registry.make(task).spec.episode_agent_steps * suite.env.action_repeat == 1000
    state, _ = suite.start()
    _, shown = suite.go(state, np.ones(suite.env.body.motors))
    assert 0 <= float(shown.reward.min()) <= float(shown.reward.max()) <= 2.0


def test_falling_terminates_and_is_no_truncation(ant: CompiledTask) -> None:
    positions = np.tile([5.0, 0, 0.6, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1], (COUNT, 1))
    velocities = np.zeros((COUNT, 14))
    # One ant drops on its back.
    positions[2, 2:7], velocities[2, 2] = [0.28, 0, 1, 0, 0], -4.0
    state, shown = ant.go(ant.place(positions, velocities), np.zeros(8))
    assert np.flatnonzero(shown.terminated).tolist() == [2]
    assert not bool(shown.truncated.any())
    assert float(shown.final_observation[2, 0]) < 0.27 < float(shown.observation[2, 0])
    assert abs(float(state.motion.position[2, 0])) < 0.2 < float(state.motion.position[3, 0])


def test_a_simulation_that_breaks_down_ends_its_episode_alone(ant: CompiledTask) -> None:
    state = airborne(ant)
    _, sound = ant.go(state, np.zeros(8))
    broken = state.motion.velocity.at[1, 4].set(jnp.nan)
    after, shown = ant.go(state._replace(motion=state.motion._replace(velocity=broken)), np.zeros(8))
    assert np.flatnonzero(shown.terminated).tolist() == [1]
    assert bool(jnp.isfinite(shown.observation).all())
    assert bool(jnp.isfinite(shown.final_observation).all())
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(after))
    np.testing.assert_array_equal(shown.observation[2:], sound.observation[2:])


def test_an_ant_that_presses_its_knees_stands_and_is_paid_1_4_a_step_and_one_that_does_not_sinks(
    ant: CompiledTask,
) -> None:
    env, reward = ant.env, jax.jit(ant.env.reward)
    knees = np.array([0, 1, 0, -1, 0, -1, 0, 1.0])
    paid: dict[float, list[float]] = {0.0: [], 0.5: []}
    for pressed, rewards in paid.items():
        data = mujoco.MjData(env.body.host)
        data.qpos[7:], data.ctrl[:] = knees, pressed * knees
        for _ in range(300):
            here = env.body.still(jnp.asarray(data.qpos, jnp.float32), jnp.asarray(data.qvel, jnp.float32))
            rewards.append(float(reward(here, here, jnp.zeros(8))))
            c_steps(env.body, env.body.host, data, env.substeps)
    assert 1.4 < np.mean(paid[0.5]) < 1.5
    # 1.1 is what an upright ant gets at the height where episodes end.
    assert 50 < np.flatnonzero(np.array(paid[0.0]) < 1.1)[0] < 200
    state, shown = ant.place(np.tile(data.qpos, (COUNT, 1))), None
    for _ in range(5):
        state, shown = ant.go(state, pressed * knees)
        np.testing.assert_allclose(shown.reward, paid[0.5][-1], atol=1e-3)
    assert float(jnp.abs(shown.forward_metres).max()) < 1e-4
    assert not bool(shown.terminated.any())


def test_no_condition_compiles_anything_anew(ant: CompiledTask) -> None:
    state, _ = ant.start()
    ant.go(state, np.zeros(8))
    before = ant.traces[0]
    for condition in ant.env.conditions().values():
        ant.go(state, np.zeros(8), condition.change(ant.env.default_params()))
    assert ant.traces[0] == before


def test_every_env_may_have_a_body_of_its_own() -> None:
    hopper = compiled_task("Hopper")
    default = hopper.env.default_params()
    bodies = default._replace(gear=jnp.stack([default.gear * factor for factor in np.linspace(0.5, 1.5, COUNT)]))
    keys, state = layout_keys(0, "test", COUNT, 0), hopper.place(np.zeros((COUNT, 6)))
    shown = jax.eval_shape(hopper.env.step, keys, state, jnp.ones((COUNT, 3)), bodies)[1]
    assert shown.observation.shape == (COUNT, 11)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("id", set()),
        ("mass_x1.5", {"mass", "inertia", "body_yield", "joint_yield"}),
        ("mass_x0.7", {"mass", "inertia", "body_yield", "joint_yield"}),
        ("force_x0.6", {"gear"}),
        ("force_x1.5", {"gear"}),
        ("damping_x3", {"damping"}),
        ("friction_x0.5", {"friction"}),
    ],
)
def test_a_condition_changes_what_it_says_and_nothing_else(ant: CompiledTask, name: str, changed: set[str]) -> None:
    assert set(ant.env.conditions()) == {
        "id", "mass_x1.5", "mass_x0.7", "force_x0.6", "force_x1.5", "damping_x3", "friction_x0.5",
    }  # fmt: skip
    before = ant.env.default_params()
    after = ant.env.conditions()[name].change(before)
    differing = {
        field for field in BodyParams._fields if not np.array_equal(getattr(before, field), getattr(after, field))
    }
    assert differing == changed
    if changed:
        factor = float(name.split("_x")[1])
        field = {"mass": "mass", "force": "gear", "damping": "damping", "friction": "friction"}[name.split("_")[0]]
        np.testing.assert_allclose(getattr(after, field), factor * getattr(before, field), rtol=1e-6)
    assert ant.env.conditions()[name].kind == ("genuine" if changed else "in_distribution")


def test_a_heavier_body_is_that_of_mujoco_in_c(ant: CompiledTask) -> None:
    model = thorough(ant.env.body.host)
    model.body_mass[:] *= 1.5
    model.body_inertia[:] *= 1.5
    mujoco.mj_setConst(model, mujoco.MjData(model))
    heavy = ant.env.apply_shift(ant.env.default_params(), HEAVIER)
    np.testing.assert_allclose(heavy.body_yield, model.body_invweight0, rtol=1e-5)
    np.testing.assert_allclose(heavy.joint_yield, model.dof_invweight0, rtol=1e-5)
    states = wild_states(ant.env, COUNT, seed=3)
    placed = ant.place([data.qpos for data in states], [data.qvel for data in states])
    moved, shown = ant.go(placed, np.full(8, 0.5), heavy)
    running = ~np.asarray(shown.terminated)
    assert running.sum() >= 4
    positions, velocities, _, _ = c_rollout(ant.env.body, model, states, np.full((ant.env.substeps, COUNT, 8), 0.5))
    np.testing.assert_allclose(moved.motion.position[running], positions[running], atol=1e-4)
    np.testing.assert_allclose(moved.motion.velocity[running], velocities[running], atol=1e-2)


def test_shifts_are_felt_in_the_way_they_say(ant: CompiledTask) -> None:
    def joint_speed(shift: Shift, action: float, speed: float = 0.0) -> float:
        params = ant.env.apply_shift(ant.env.default_params(), shift)
        state, _ = ant.go(airborne(ant, speed), np.full(8, action), params)
        return float(jnp.abs(state.motion.velocity[0, 6]))

    assert joint_speed(WEAKER, 1.0) == pytest.approx(0.6 * joint_speed(Shift(), 1.0), rel=0.02)
    heavier_and_more_damped = Shift(mass_factor=1.5, damping_factor=1.5)
    assert joint_speed(heavier_and_more_damped, 1.0) == pytest.approx(joint_speed(Shift(), 1.0) / 1.5, rel=0.05)
    assert joint_speed(Shift(damping_factor=3.0), 0.0, 3.0) < 0.95 * joint_speed(Shift(), 0.0, 3.0)


def test_low_friction_slides_farther(ant: CompiledTask) -> None:
    resting, knees = mujoco.MjData(ant.env.body.host), np.array([0, 1, 0, -1, 0, -1, 0, 1.0])
    resting.qpos[7:], resting.ctrl[:] = knees, 0.5 * knees
    c_steps(ant.env.body, ant.env.body.host, resting, 4800)
    sliding = np.zeros((COUNT, 14))
    sliding[:, 1] = 2.0
    speeds = {}
    for name in ("id", "friction_x0.5"):
        params = ant.env.conditions()[name].change(ant.env.default_params())
        state = ant.place(np.tile(resting.qpos, (COUNT, 1)), sliding)
        for _ in range(4):
            state, _ = ant.go(state, 0.5 * knees, params)
        speeds[name] = float(state.motion.velocity[0, 1])
    assert 2.0 - speeds["friction_x0.5"] < 0.7 * (2.0 - speeds["id"])


def test_a_study_may_make_a_shift_of_its_own_or_alter_a_named_one(ant: CompiledTask) -> None:
    default = ant.env.default_params()
    own = find_condition(ant.env, "brittle", {"mass_factor": 2.0, "force_factor": 0.5})
    assert own.kind == "genuine"
    np.testing.assert_allclose(own.change(default).mass, 2 * default.mass)
    np.testing.assert_allclose(own.change(default).gear, 0.5 * default.gear)
    altered = find_condition(ant.env, "mass_x1.5", {"friction_factor": 0.25}).change(default)
    np.testing.assert_allclose(altered.mass, 1.5 * default.mass)
    np.testing.assert_allclose(altered.friction, 0.25 * default.friction)
    with pytest.raises(BadInput, match="does not support the shift hazards"):
        find_condition(ant.env, "crowded", {"hazards": 12})
    with pytest.raises(BadInput, match="has no friction"):
        find_condition(registry.make("SafetyPointGoal1"), "icy", {"friction_factor": 0.5})


def test_nothing_that_touches_nothing_has_a_friction_condition() -> None:
    assert "friction_x0.5" not in registry.make("cartpole-swingup").conditions()


def test_settings_of_other_tasks_are_refused() -> None:
    assert registry.make("cheetah-run", {"action_repeat": 2}).spec.action_repeat == 2
    for task, settings, reason in (
        ("Ant", {"observation": "lidar"}, "does not support the env settings observation"),
        ("cheetah-run", {"action_repeat": 1}, "its action repeat is 2"),
    ):
        with pytest.raises(BadInput, match=reason):
            registry.make(task, settings)


def test_without_mujoco_a_task_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dreamproof.envs.locomotion.tasks", None)
    with pytest.raises(BadInput, match=r"pip install 'dreamproof\[locomotion\]'"):
        registry.make("Ant")


def test_a_body_traced_in_one_thread_leaves_loops_of_other_threads_alone() -> None:
    def count_to_ten() -> int:
        return int(jax.lax.while_loop(lambda number: number < 10, lambda number: number + 1, jnp.asarray(0)))

    inside, counted = threading.Event(), threading.Event()

    def trace() -> int:
        with all_iterations(3):
            inside.set()
            counted.wait()
            return count_to_ten()

    with ThreadPoolExecutor(1) as pool:
        traced = pool.submit(trace)
        inside.wait()
        meanwhile = count_to_ten()
        counted.set()
        assert (traced.result(), meanwhile, count_to_ten()) == (3, 10, 10)


def test_bodies_traced_at_the_same_time_move_as_they_do_alone() -> None:
    names = ("cartpole-balance", "walker-walk", "hopper-stand", "cheetah-run")

    def traced(name: str) -> str:
        task = registry.make(name)
        params = task.default_params()
        keys = jax.random.split(jax.random.key(0), 1)
        # Loops do not depend on values.
        state, _ = jax.eval_shape(task.reset, keys, params)
        return step_loops(task, keys, state, params)

    with ThreadPoolExecutor(len(names)) as pool:
        together = list(pool.map(traced, names))
    assert together == [traced(name) for name in names]


def step_loops(task: Any, keys: Any, state: Any, params: Any) -> str:
    """The lengths of all loops in one step of a task."""
    action = jnp.zeros((1, task.spec.action_size))
    program = jax.make_jaxpr(lambda state: task.step(keys, state, action, params))(state)
    return str(re.findall(r"length=(\d+)|(while)\[", str(program)))
