"""One body as a MuJoCo C model, and its steps in MJX as a pure function of a small state.

The only module that imports mujoco; tasks see motions and parameters.
"""

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array

from dreamproof.envs.locomotion import constraint_kernel, constraints
from dreamproof.envs.locomotion.params import BodyParams
from dreamproof.envs.locomotion.springs import Springs, ground_force, limit_torque
from dreamproof.jaxcore.kernels import can_run_kernels
from dreamproof.settings.env import Shift

# MJX prints that its unused Warp backend is not installed.
with redirect_stdout(io.StringIO()):
    from mujoco import mjx

# MuJoCo's names of the fields of BodyParams, in their order.
MODEL_FIELDS = (
    "body_mass",
    "body_inertia",
    "body_invweight0",
    "dof_invweight0",
    "dof_damping",
    "actuator_gear",
    "geom_friction",
)


ONE_SIDED = (
    mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT,
    mujoco.mjtConstraint.mjCNSTR_LIMIT_TENDON,
    mujoco.mjtConstraint.mjCNSTR_CONTACT_FRICTIONLESS,
    mujoco.mjtConstraint.mjCNSTR_CONTACT_PYRAMIDAL,
)
"""Constraints that push and never pull."""


class Motion(NamedTuple):
    """The state of a body.

    position (Q,), velocity (V,); guess (V,): the last accelerations, where the solver starts; touch (S,): touch sensors
    of the last simulator step, newtons; target (G,): the point to reach in this episode, metres, None for most tasks.
    """

    position: Array
    velocity: Array
    guess: Array
    touch: Array
    target: Array | None = None

    @property
    def goal(self) -> Array:
        """The target of a task that has one."""
        assert self.target is not None
        return self.target


class MujocoBody:
    """A body read from `bodies/NAME.xml`; compared by identity, so use `load_body`."""

    def __init__(self, name: str) -> None:
        text = (files("dreamproof.envs.locomotion") / "bodies" / f"{name}.xml").read_text()
        self.name = name
        self.host = mujoco.MjModel.from_xml_string(text)
        self.springs = _declared_springs(self.host)
        # A body may be loaded inside a trace; its arrays must not belong to that trace.
        with jax.ensure_compile_time_eval():
            self.model = mjx.put_model(self.host, impl="jax")
            self.blank = mjx.make_data(self.host, impl="jax")
            self.params = BodyParams(*(jnp.asarray(getattr(self.host, name), jnp.float32) for name in MODEL_FIELDS))

    @property
    def motors(self) -> int:
        """Number of actions."""
        return int(self.host.nu)

    def still(self, position: Array, velocity: Array, target: Array | None = None) -> Motion:
        """A motion without history."""
        return Motion(position, velocity, jnp.zeros(self.host.nv), jnp.zeros(self.host.nsensordata), target)

    def advance(self, motion: Motion, action: Array, params: BodyParams) -> Motion:
        """The motion one simulator step later under an action (A,)."""
        model = self.model.replace(**dict(zip(MODEL_FIELDS, params, strict=True)))
        # MJX recomputes everything else in its data in each step, so only the motion is carried.
        data = self.blank.replace(qpos=motion.position, qvel=motion.velocity, qacc_warmstart=motion.guess, ctrl=action)
        if self.springs is not None:
            data = self._sprung_step(self.springs, model, data)
        elif self.has_one_sided_constraints:
            data = self._constrained_step(model, data)
        else:
            with all_iterations(int(self.host.opt.iterations)):
                data = mjx.step(model, data)
        return Motion(data.qpos, data.qvel, data.qacc_warmstart, data.sensordata, motion.target)

    @cached_property
    def has_one_sided_constraints(self) -> bool:
        """Whether joint limits and friction pyramids are all, and steps are Euler's: what `constraints` solves."""
        options, kinds = self.host.opt, self.blank._impl.efc_type
        is_plain = (
            options.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL and options.integrator == mujoco.mjtIntegrator.mjINT_EULER
        )
        return is_plain and len(kinds) > 0 and bool(np.isin(kinds, ONE_SIDED).all())

    def _constrained_step(self, model: Any, data: Any) -> Any:
        """One step of MJX with our own solver."""
        data = mjx.sensor_pos(model, mjx.fwd_position(model, data))
        data = mjx.sensor_vel(model, mjx.fwd_velocity(model, data))
        data = mjx.fwd_acceleration(model, mjx.fwd_actuation(model, data))
        problem = constraints.Problem(
            data._impl.efc_J.T,
            data._impl.efc_D,
            data._impl.efc_aref,
            data._impl.M,
            data.qfrc_smooth,
            model.opt.timestep * model.dof_damping,
            data.qacc_warmstart,
        )
        solve = constraint_kernel.solve if can_run_kernels() else constraints.solve
        acceleration, damped, forces = solve(problem, int(self.host.opt.iterations))
        data = mjx.sensor_acc(model, data.tree_replace({"qacc": acceleration, "_impl.efc_force": forces}))
        # Euler's step of MJX would solve for the damping once more.
        plain = model.replace(opt=model.opt.replace(disableflags=model.opt.disableflags | mjx.DisableBit.EULERDAMP))
        moved = mjx.euler(plain, data.replace(qacc=damped))
        return moved.replace(qacc_warmstart=acceleration)

    def _sprung_step(self, springs: Springs, model: Any, data: Any) -> Any:
        """One step of MJX with springs instead of constraints, so no solver is needed."""
        data = mjx.fwd_velocity(model, mjx.fwd_position(model, data))
        pushed = data.replace(
            xfrc_applied=self._from_the_ground(springs, model, data), qfrc_applied=self._from_limits(springs, data)
        )
        data = mjx.fwd_acceleration(model, mjx.fwd_actuation(model, pushed))
        return mjx.euler(model, data.replace(qacc=data.qacc_smooth))

    def _from_the_ground(self, springs: Springs, model: Any, data: Any) -> Array:
        """Force and torque (K, 6) on every body about its centre of mass, world frame."""
        balls = np.flatnonzero(self.host.geom_contype)
        owners = self.host.geom_bodyid[balls]
        lowest = data.geom_xpos[balls] - np.array([0.0, 0.0, 1.0]) * self.host.geom_size[balls, :1]
        turning, moving = data.cvel[owners, :3], data.cvel[owners, 3:]
        velocity = moving + jnp.cross(turning, lowest - data.subtree_com[self.host.body_rootid[owners]])
        force = ground_force(springs, lowest, velocity, model.geom_friction[balls, 0])
        torque = jnp.cross(lowest - data.xipos[owners], force)
        wrench = jnp.concatenate([force, torque], axis=1)
        # Sums over a few fixed rows fuse with their neighbours; a scatter would not.
        return jnp.stack([wrench[np.flatnonzero(owners == body)].sum(0) for body in range(self.host.nbody)])

    def _from_limits(self, springs: Springs, data: Any) -> Array:
        """Torques (V,) on the degrees of freedom."""
        limited = np.flatnonzero(self.host.jnt_limited)
        lower, upper = self.host.jnt_range[limited].T
        torque = limit_torque(springs, data.qpos[self.host.jnt_qposadr[limited]], lower, upper)
        return jnp.zeros(self.host.nv).at[self.host.jnt_dofadr[limited]].set(torque)

    def settle(self, position: np.ndarray, simulator_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity after `simulator_steps` in C from rest, without actuation."""
        data = mujoco.MjData(self.host)
        data.qpos[:] = position
        mujoco.mj_step(self.host, data, simulator_steps)
        return data.qpos.astype(np.float32), data.qvel.astype(np.float32)

    def contacts(self, positions: np.ndarray) -> np.ndarray:
        """Number of contacts (S,) in each of the positions (S, Q)."""
        data = mujoco.MjData(self.host)
        found = []
        for position in positions:
            data.qpos[:] = position
            mujoco.mj_fwdPosition(self.host, data)
            found.append(data.ncon)
        return np.array(found)

    def shifted(self, params: BodyParams, shift: Shift) -> BodyParams:
        """Parameters of the same shapes with the shift applied."""
        heavier = copy.copy(self.host)
        heavier.body_mass[:] *= shift.mass_factor
        heavier.body_inertia[:] *= shift.mass_factor
        mujoco.mj_setConst(heavier, mujoco.MjData(heavier))
        return BodyParams(
            mass=params.mass * shift.mass_factor,
            inertia=params.inertia * shift.mass_factor,
            body_yield=params.body_yield * _ratio(heavier.body_invweight0, self.host.body_invweight0),
            joint_yield=params.joint_yield * _ratio(heavier.dof_invweight0, self.host.dof_invweight0),
            damping=params.damping * shift.damping_factor,
            gear=params.gear * shift.force_factor,
            friction=params.friction * shift.friction_factor,
        )


_while_loop = jax.lax.while_loop
_iterations: ContextVar[int | None] = ContextVar("iterations", default=None)


def _loop(condition: Callable[[Any], Array], iterate: Callable[[Any], Any], start: Any) -> Any:
    """`jax.lax.while_loop`, or inside `all_iterations` a scan of fixed length."""
    count = _iterations.get()
    if count is None:
        return _while_loop(condition, iterate, start)

    def once(now: Any, _: None) -> tuple[Any, None]:
        running = condition(now)
        return jax.tree.map(lambda new, old: jnp.where(running, new, old), iterate(now), now), None

    return jax.lax.scan(once, start, None, length=count)[0]


# MJX has no setting for it. Replaced once and for all: other threads may trace other bodies meanwhile.
jax.lax.while_loop = _loop  # type: ignore[assignment]


@contextmanager
def all_iterations(count: int) -> Iterator[None]:
    """Traces MJX's solver with a fixed number of iterations; those after convergence change nothing.

    MJX's own loop tests for convergence after each iteration, which on a GPU needs a transfer to the host.
    """
    token = _iterations.set(count)
    try:
        yield
    finally:
        _iterations.reset(token)


def _declared_springs(model: mujoco.MjModel) -> Springs | None:
    """The springs under <custom> in the body's file; None for MuJoCo's own contacts and limits."""
    if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_NUMERIC, "springs") < 0:
        return None
    return Springs(*(float(number) for number in model.numeric("springs").data))


def _ratio(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Elementwise, 1 where `before` is 0."""
    return np.divide(after, before, out=np.ones_like(before), where=before > 0).astype(np.float32)


@cache
def load_body(name: str) -> MujocoBody:
    """The body of that name, read once per process."""
    return MujocoBody(name)
