"""Our DM-Control tasks against states recorded from dm-control 1.0.50 itself (benchmarks/record_dm_control.py)."""

import copy
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from dreamproof.envs import registry
from dreamproof.envs.locomotion.physics import Motion

pytestmark = pytest.mark.optimised

RECORDED = Path(__file__).parent / "dm_control_states.npz"
SUITE = ["cheetah-run", "walker-walk", "hopper-hop", "cartpole-swingup"]
# Their hopper also touches itself, ours the ground alone.
TOUCHES_ITSELF = {"hopper-hop": 6}


def recorded(task: str) -> dict[str, np.ndarray]:
    """The rows of one task by name."""
    with np.load(RECORDED) as kept:
        return {name.removeprefix(f"{task}/"): kept[name] for name in kept.files if name.startswith(f"{task}/")}


@pytest.mark.parametrize("task", SUITE)
def test_what_is_seen_and_paid_is_what_dm_control_shows_and_rewards(task: str) -> None:
    env, rows = registry.make(task), recorded(task)
    parts = (rows["next_position"], rows["next_velocity"], rows["next_velocity"], rows["touch"])
    after = Motion(*(jnp.asarray(part, jnp.float32) for part in parts))
    action = jnp.asarray(rows["action"], jnp.float32)
    np.testing.assert_allclose(jax.vmap(env.observe)(after, action), rows["observation"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(env.reward)(after, after, action), rows["reward"], atol=1e-5)
    assert rows["reward"].std() > 1e-3


@pytest.mark.parametrize("task", SUITE)
def test_a_body_moves_as_dm_controls_does(task: str) -> None:
    env, rows = registry.make(task), recorded(task)
    model = copy.copy(env.body.host)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    errors = []
    for index, action in enumerate(rows["action"]):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.ctrl[:] = rows["position"][index], rows["velocity"][index], action
        mujoco.mj_step(model, data, env.substeps)
        off = (data.qpos - rows["next_position"][index], data.qvel - rows["next_velocity"][index])
        errors.append(np.abs(np.concatenate(off)).max())
    assert (np.asarray(errors) > 1e-6).sum() <= TOUCHES_ITSELF.get(task, 0)
