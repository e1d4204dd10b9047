"""Our tasks of MT30 against agent steps that benchmarks/record_dm_control.py recorded of dm-control and TD-MPC2."""

import copy
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from tests.envs.locomotion.rollouts import COUNT, compiled_task

from dreamproof.envs import registry
from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.task import Locomotion
from dreamproof.jaxcore.keys import layout_keys
from dreamproof.settings.task_sets import MT30

pytestmark = [pytest.mark.long(60), pytest.mark.optimised]

RECORDED = Path(__file__).parent / "dm_control_steps.npz"
TASKS = [task.name for task in MT30]
# How far an observed value may be off after an agent step on MJX, relative to 1 + its size. Other bodies need no other
# part of MJX than these and those of test_bodies.py; benchmarks/PARITY_TASKS.md has all.
ON_MJX = {"reacher-easy": 1e-4, "cup-catch": 1e-3, "finger-turn-easy": 1e-3, "fish-swim": 1e-4}


def recorded(task: str) -> dict[str, np.ndarray]:
    """The rows of one task by name."""
    with np.load(RECORDED) as kept:
        return {name.removeprefix(f"{task}/"): kept[name] for name in kept.files if name.startswith(f"{task}/")}


def made(task: str) -> Locomotion:
    """The environment of a task."""
    env = registry.make(task)
    assert isinstance(env, Locomotion)
    return env


def target_of(rows: dict[str, np.ndarray]) -> jax.Array | None:
    """The recorded targets, None for a task without."""
    return jnp.asarray(rows["target"]) if rows["target"].size else None


def c_control_steps(env: Locomotion, rows: dict[str, np.ndarray]) -> list[Motion]:
    """The motions after each control step of an agent step from every row, by MuJoCo in C run to its end."""
    model = copy.copy(env.body.host)
    model.opt.iterations, model.opt.ls_iterations = 200, 50
    model.dof_damping[:] = env.default_params().damping
    found: list[list[tuple[np.ndarray, ...]]] = [[] for _ in range(env.action_repeat)]
    for index, action in enumerate(rows["action"]):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = rows["position"][index], rows["velocity"][index], action
        for motions in found:
            mujoco.mj_step(model, data, env.substeps)
            parts = (data.qpos, data.qvel, data.qacc, data.sensordata)
            motions.append(tuple(part.astype(np.float32) for part in parts))
    columns = [[jnp.asarray(np.stack(column)) for column in zip(*motions, strict=True)] for motions in found]
    return [Motion(*parts, target=target_of(rows)) for parts in columns]


@cache
def first_states(task: str) -> Motion:
    """The motions at the start of episodes."""
    env = made(task)
    keys = layout_keys(0, "test", 1024, 0)
    return jax.jit(jax.vmap(lambda key: env.body.still(*env.start(key), env.target(key))))(keys)


def test_every_task_of_mt30_has_an_environment_of_the_sizes_of_td_mpc2() -> None:
    for task in MT30:
        spec = registry.make(task.name).spec
        assert (spec.observation_size, spec.action_size) == task[1:], task.name
        assert (spec.episode_agent_steps, spec.action_repeat) == (500, 2)


@pytest.mark.parametrize("task", TASKS)
def test_an_agent_step_is_that_of_the_reference(task: str) -> None:
    env, rows = made(task), recorded(task)
    motions, action = c_control_steps(env, rows), jnp.asarray(rows["action"])
    seen = jax.vmap(env.observe)(motions[-1], action)
    rewards = [jax.vmap(env.reward)(motion, motion, action) for motion in motions]
    np.testing.assert_allclose(seen, rows["observation"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sum(rewards), rows["reward"], atol=1e-5)
    assert rows["reward"].std() > 1e-3


@pytest.mark.parametrize("task", ON_MJX)
def test_an_agent_step_on_mjx_is_that_of_the_reference(task: str) -> None:
    compiled, rows = compiled_task(task), recorded(task)
    chosen = np.linspace(0, len(rows["reward"]) - 1, COUNT).astype(int)
    rows = {name: column[chosen] for name, column in rows.items()}
    state = compiled.place(rows["position"], rows["velocity"], target_of(rows))
    _, shown = compiled.go(state, rows["action"])
    expected = rows["observation"]
    assert float((np.abs(shown.observation - expected) / (1 + np.abs(expected))).max()) < ON_MJX[task]
    np.testing.assert_allclose(shown.reward, rows["reward"], atol=ON_MJX[task])


@pytest.mark.parametrize("task", ["cup-catch", "cup-spin", "finger-spin", "finger-turn-hard"])
def test_nothing_touches_at_the_start(task: str) -> None:
    assert not made(task).body.contacts(np.asarray(first_states(task).position)).any()


def test_the_ball_to_be_swung_is_in_the_cup_at_nine_of_ten_starts() -> None:
    catch = made("cup-catch")
    shares = {
        task: float(jax.vmap(lambda motion: catch.reward(motion, motion, jnp.zeros(2)))(first_states(task)).mean())
        for task in ("cup-catch", "cup-spin")
    }
    assert shares["cup-catch"] < 0.05
    assert 0.87 < shares["cup-spin"] < 0.94


def test_a_pole_to_be_balanced_starts_nearly_upright_and_one_to_be_swung_up_hangs() -> None:
    cart, pole = np.abs(first_states("cartpole-balance-sparse").position).T
    assert cart.max() <= 0.1
    assert 0.03 < pole.max() <= 0.034
    assert np.abs(first_states("cartpole-swingup-sparse").position[:, 1] - np.pi).max() < 0.05


def test_targets_are_where_the_reference_draws_them() -> None:
    metres = np.linalg.norm(first_states("reacher-three-hard").target, axis=1)
    assert 0.05 <= metres.min() < 0.06
    assert 0.19 < metres.max() <= 0.2
    np.testing.assert_allclose(np.linalg.norm(first_states("finger-turn-easy").target, axis=1), 0.13, rtol=1e-5)
    targets = np.asarray(first_states("fish-swim").target)
    assert (targets.min(0) >= [-0.4, -0.4, 0.1]).all()
    assert (targets.max(0) <= [0.4, 0.4, 0.3]).all()


def test_a_target_stays_for_an_episode_and_a_restart_draws_another() -> None:
    reacher = compiled_task("reacher-easy")
    state, _ = reacher.start()
    last = reacher.env.episode_agent_steps - 1
    ending = state._replace(agent_steps=state.agent_steps.at[0].set(last))
    after, shown = reacher.go(ending, np.zeros(2))
    assert bool(shown.truncated[0])
    np.testing.assert_array_equal(after.motion.target[1:], state.motion.target[1:])
    assert not np.allclose(after.motion.target[0], state.motion.target[0])


@pytest.mark.parametrize("task", ["acrobot-swingup", "cup-spin", "fish-swim", "pendulum-spin", "reacher-three-easy"])
def test_every_condition_gives_parameters_of_the_same_shapes(task: str) -> None:
    env = made(task)
    before = env.default_params()
    for condition in env.conditions().values():
        after = condition.change(before)
        assert [part.shape for part in after] == [part.shape for part in before]
        assert all(bool(jnp.isfinite(part).all()) for part in after)
    assert ("friction_x0.5" in env.conditions()) == env.has_contacts


def test_the_spinner_to_be_spun_has_little_damping_and_shifts_scale_it() -> None:
    spin, turn = made("finger-spin"), made("finger-turn-easy")
    assert float(spin.default_params().damping[2]) == pytest.approx(0.03)
    assert float(turn.default_params().damping[2]) == pytest.approx(0.5)
    damped = spin.conditions()["damping_x3"].change(spin.default_params())
    assert float(damped.damping[2]) == pytest.approx(0.09)
