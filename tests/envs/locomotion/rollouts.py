"""Locomotion tasks with compiled functions, each compiled once for all tests of this folder."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from dreamproof.envs import registry
from dreamproof.envs.locomotion.physics import Motion, MujocoBody
from dreamproof.envs.locomotion.task import Locomotion, LocomotionState
from dreamproof.envs.wrappers import AutoReset
from dreamproof.jaxcore.keys import layout_keys, noise_keys

# One batch size everywhere, and a step compiled without effort: it runs a few hundred times only.
COUNT = 8
EPISODE_STEPS = 20
QUICK: dict[str, Any] = {"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": True}
if jax.__version_info__ < (0, 11):
    # Later versions have this option no more; it halves the compile.
    QUICK["xla_cpu_use_fusion_emitters"] = False


class CompiledTask(NamedTuple):
    """A restarting task of short episodes; `step` also restarts, so one compile shows both."""

    env: Locomotion
    step: Any
    reset: Any
    traces: list[int]

    def start(self, seed: int = 0) -> tuple[Any, Any]:
        """COUNT episodes."""
        return self.reset(layout_keys(seed, "test", COUNT, 0), self.env.default_params())

    def go(self, state: Any, action: Any, params: Any = None, step: int = 0) -> tuple[Any, Any]:
        """One agent step with an action (A,) or actions (COUNT, A)."""
        actions = jnp.broadcast_to(jnp.asarray(action, jnp.float32), (COUNT, self.env.spec.action_size))
        return self.step(noise_keys(0, "test", COUNT, step), state, actions, params or self.env.default_params())

    def place(self, positions: Any, velocities: Any = None, targets: Any = None) -> LocomotionState:
        """A state of COUNT envs with given positions (COUNT, Q), velocities (COUNT, V) and targets (COUNT, G)."""
        model = self.env.body.host
        velocities = np.zeros((COUNT, model.nv)) if velocities is None else velocities
        return LocomotionState(
            Motion(
                jnp.asarray(positions, jnp.float32),
                jnp.asarray(velocities, jnp.float32),
                jnp.zeros((COUNT, model.nv)),
                jnp.zeros((COUNT, model.nsensordata)),
                None if targets is None else jnp.asarray(targets, jnp.float32),
            ),
            jnp.zeros((COUNT, model.nu)),
            jnp.zeros(COUNT, jnp.int32),
        )


@cache
def compiled_task(task: str) -> CompiledTask:
    """The task with episodes of so many control steps."""
    steps = EPISODE_STEPS * (2 if "-" in task or task == "SafetyCheetahVelocity" else 1)
    env = registry.make(task, {"episode_simulator_steps": steps})
    assert isinstance(env, Locomotion)
    traces = [0]
    restarting = AutoReset(env)

    def step(*arguments: Any) -> Any:
        traces[0] += 1
        return restarting.step(*arguments)

    return CompiledTask(
        env, jax.jit(step, compiler_options=QUICK), jax.jit(restarting.reset, compiler_options=QUICK), traces
    )


def wild_states(env: Locomotion, count: int, seed: int = 0) -> list[mujoco.MjData]:
    """C states after ever longer rollouts from random poses with random actions; many of them touch the ground."""
    model = env.body.host
    noise = np.random.default_rng(seed)
    joints = np.flatnonzero(model.jnt_limited)
    # PWM's hopper has fallen half a second after a straight leg, and at once with a folded one.
    folded, rounds = (0.1, 2) if env.name == "Hopper" else (1.0, 8)
    found = []
    for index in range(count):
        data = mujoco.MjData(model)
        data.qpos[model.jnt_qposadr[joints]] = folded * noise.uniform(*model.jnt_range[joints].T)
        # Simulator steps on springs are short.
        for _ in range(rounds * (index + 1)):
            data.ctrl[:] = noise.uniform(-1, 1, model.nu)
            c_steps(env.body, model, data, 4 if env.body.springs is None else 32)
        mujoco.mj_forward(model, data)
        mujoco.mj_subtreeVel(model, data)
        found.append(data)
    return found


def c_steps(body: MujocoBody, model: mujoco.MjModel, data: mujoco.MjData, count: int) -> int:
    """So many steps by MuJoCo in C; how many contacts were met. Springs are written out once more, by plain numbers."""
    met = 0
    for _ in range(count):
        if body.springs is None:
            mujoco.mj_step(model, data)
            met += data.ncon
            continue
        mujoco.mj_step1(model, data)
        met += press_springs(model, data)
        mujoco.mj_step2(model, data)
    return met


def press_springs(model: mujoco.MjModel, data: mujoco.MjData) -> int:
    """Applies dflex's ground and limits with the numbers of PWM's ant; how many balls touch."""
    data.qfrc_applied[:] = 0
    for joint in np.flatnonzero(model.jnt_limited):
        angle, (lower, upper) = data.qpos[model.jnt_qposadr[joint]], model.jnt_range[joint]
        beyond = angle - upper if angle > upper else min(angle - lower, 0.0)
        data.qfrc_applied[model.jnt_dofadr[joint]] = -1e3 * beyond
    touching = [ball for ball in np.flatnonzero(model.geom_contype) if lowest(model, data, ball)[2] < 0]
    for ball in touching:
        owner, point, jacobian = model.geom_bodyid[ball], lowest(model, data, ball), np.zeros((3, model.nv))
        mujoco.mj_jac(model, data, jacobian, None, point, owner)
        velocity = jacobian @ data.qvel
        depth, speed = -point[2], float(np.hypot(*velocity[:2]))
        held = min(3e3 * speed, model.geom_friction[ball, 0] * 4e4 * depth)
        force = np.append(-held * velocity[:2] / max(speed, 1e-12), 4e4 * depth - 1e4 * depth * min(velocity[2], 0.0))
        mujoco.mj_applyFT(model, data, force, np.zeros(3), point, owner, data.qfrc_applied)
    return len(touching)


def lowest(model: mujoco.MjModel, data: mujoco.MjData, ball: int) -> np.ndarray:
    """The lowest point of a ball."""
    return data.geom_xpos[ball] - [0.0, 0.0, model.geom_size[ball, 0]]


def motion_of(data: mujoco.MjData) -> Motion:
    """A C state as one env's motion."""
    parts = (data.qpos, data.qvel, data.qacc_warmstart, data.sensordata)
    return Motion(*(jnp.asarray(part, jnp.float32) for part in parts))
