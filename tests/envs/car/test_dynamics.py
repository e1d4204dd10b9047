"""The car against MuJoCo in C with the same body, in its own and in shifted physics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.envs.car.dynamics import CarBody, CarPhysics, simulate, standing
from dreamproof.envs.car.inertia import MASS_MATRIX
from dreamproof.settings.env import Shift

mujoco: Any = pytest.importorskip("mujoco")

pytestmark = pytest.mark.optimised

CAR = """
<mujoco>
  <option timestep="0.004"/>
  <default>
    <geom type="box" density="5" condim="6"/>
    <joint damping="0.001"/>
    <motor ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.02 0.02"/>
  </default>
  <worldbody>
    <geom type="plane" size="9 9 0.1"/>
    <body name="car" pos="0 0 0.1">
      <freejoint/>
      <geom size="0.1 0.1 0.05"/>
      <geom size="0.1 0.01 0.05" pos="0 0.15 0"/>
      <geom size="0.01 0.025 0.03" pos="0 0.125 0"/>
      <geom size="0.05 0.01 0.05" pos="0 -0.165 0"/>
      <geom size="0.05 0.03 0.01" pos="0 -0.13 0.04"/>
      <body pos="-0.13 0.1 -0.05">
        <joint name="left" axis="1 0 0"/>
        <geom type="cylinder" size="0.05 0.025" zaxis="1 0 0"/>
      </body>
      <body pos="0.13 0.1 -0.05">
        <joint name="right" axis="1 0 0"/>
        <geom type="cylinder" size="0.05 0.025" zaxis="1 0 0"/>
      </body>
      <body name="ball" pos="0 -0.1 -0.05">
        <joint type="ball"/>
        <geom type="sphere" size="0.05"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="left"/><motor joint="right"/></actuator>
</mujoco>
"""
STEPS = 60
ADVANCE = jax.jit(jax.vmap(simulate, in_axes=(0, 0, None)))


def reference(shift: Shift) -> tuple[np.ndarray, np.ndarray]:
    """States (STEPS + 1, 18) of a drive in C, and its actions (STEPS, 2)."""
    model = mujoco.MjModel.from_xml_string(CAR)
    for field in (model.body_mass, model.body_inertia):
        field *= shift.mass_factor
    model.dof_damping *= shift.damping_factor
    model.actuator_gear *= shift.force_factor
    model.geom_friction[:, 0] *= shift.friction_factor
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, 2))
    actions[::3] *= 0.02
    states = [_state(model, data)]
    for action in actions:
        data.ctrl = action
        mujoco.mj_step(model, data, nstep=10)
        states.append(_state(model, data))
    return np.array(states), actions


def _state(model: Any, data: Any) -> np.ndarray:
    mujoco.mj_kinematics(model, data)
    chassis, ball = (data.body(name).xmat.reshape(3, 3) for name in ("car", "ball"))
    return np.concatenate([data.qpos[:7], data.qvel[:8], chassis.T @ ball @ data.qvel[8:]])


def body_of(states: np.ndarray) -> CarBody:
    """Bodies from states (T, 18)."""
    return CarBody(*(jnp.asarray(part, jnp.float32) for part in np.split(states, [3, 7, 10, 13], axis=1)))


SHIFTS = {
    "as it is": {},
    "heavier": {"mass_factor": 2.0},
    "weaker": {"force_factor": 0.6},
    "slippery": {"friction_factor": 0.5},
    "damped": {"damping_factor": 2.0},
}


@pytest.mark.parametrize("changes", SHIFTS.values(), ids=list(SHIFTS))
def test_a_simulator_step_is_that_of_mujoco(changes: dict[str, float]) -> None:
    shift = Shift.model_validate(changes)
    states, actions = reference(shift)
    after = ADVANCE(body_of(states[:-1]), jnp.asarray(actions, jnp.float32), CarPhysics.of_car().shifted(shift))
    # The car starts exactly on the floor, where rounding decides whether it touches.
    place = np.abs(np.asarray(after.place) - states[1:, :3])[1:].max(axis=1)
    spins = np.abs(np.asarray(after.spins) - states[1:, 13:])[1:].max(axis=1)
    assert np.median(place) <= 1e-6
    assert np.quantile(place, 0.95) <= 1e-5
    assert np.median(spins) <= 1e-4


def test_a_shift_changes_the_drive() -> None:
    ends = [reference(Shift.model_validate(changes))[0][-1, :2] for changes in SHIFTS.values()]
    assert all(np.linalg.norm(end - ends[0]) > 0.01 for end in ends[1:])


def test_the_mass_matrix_is_symmetric_and_weighs_what_its_solids_weigh() -> None:
    np.testing.assert_allclose(MASS_MATRIX, MASS_MATRIX.T, atol=1e-18)
    assert MASS_MATRIX[0, 0] == pytest.approx(0.0304450, abs=1e-7)


def test_equal_commands_drive_ahead_and_the_right_wheel_alone_turns_left() -> None:
    start = jax.tree.map(lambda leaf: leaf[None], standing(jnp.zeros(2), jnp.asarray(0.5)))
    ahead, turning = start, start
    for _ in range(20):
        ahead = ADVANCE(ahead, jnp.full((1, 2), 0.01), CarPhysics.of_car())
        turning = ADVANCE(turning, jnp.array([[0.01, 0.0]]), CarPhysics.of_car())
    assert float(start.heading[0]) == pytest.approx(0.5, abs=1e-6)
    travelled = np.asarray(ahead.place[0, :2])
    assert np.hypot(*travelled) > 0.15
    assert np.arctan2(travelled[1], travelled[0]) == pytest.approx(0.5, abs=0.1)
    assert float(turning.heading[0]) > 0.6


def test_a_car_without_command_stays_where_it_is() -> None:
    body = jax.tree.map(lambda leaf: leaf[None], standing(jnp.array([1.0, -1.0]), jnp.asarray(2.0)))
    for _ in range(20):
        body = ADVANCE(body, jnp.zeros((1, 2)), CarPhysics.of_car())
    np.testing.assert_allclose(body.place[0], [1.0, -1.0, 0.1], atol=1e-3)
    assert float(jnp.abs(body.velocity).max()) < 1e-3


def test_a_factor_of_turning_is_refused() -> None:
    with pytest.raises(BadInput, match="turns by its two wheels"):
        CarPhysics.of_car().shifted(Shift(yaw_gain_factor=0.6))
