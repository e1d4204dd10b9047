"""One body in MuJoCo's two forms: the C model, and its steps in MJX as a pure function of a small state.

The only module that imports mujoco; tasks see motions and parameters.
"""

import copy
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array

from dreamproof.envs.locomotion.params import BodyParams
from dreamproof.settings.env import Shift

# MJX prints that its Warp backend, which nothing here uses, is not installed.
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


class Motion(NamedTuple):
    """All that a body carries from step to step.

    position (Q,), velocity (V,); guess (V,): the last accelerations, where the solver starts; felt (S,): touch sensors
    of the last simulator step, newtons.
    """

    position: Array
    velocity: Array
    guess: Array
    felt: Array


class Body:
    """A body read from `bodies/NAME.xml`; compared by identity, so get it from `load_body`."""

    def __init__(self, name: str) -> None:
        text = (files("dreamproof.envs.locomotion") / "bodies" / f"{name}.xml").read_text()
        self.name = name
        self.host = mujoco.MjModel.from_xml_string(text)
        # A body may be loaded while something is traced; what is kept must not belong to that trace.
        with jax.ensure_compile_time_eval():
            self.model = mjx.put_model(self.host, impl="jax")
            self.blank = mjx.make_data(self.host, impl="jax")
            self.params = BodyParams(*(jnp.asarray(getattr(self.host, name), jnp.float32) for name in MODEL_FIELDS))

    @property
    def motors(self) -> int:
        """How many actions there are."""
        return int(self.host.nu)

    def still(self, position: Array, velocity: Array) -> Motion:
        """A motion that nothing came before."""
        return Motion(position, velocity, jnp.zeros(self.host.nv), jnp.zeros(self.host.nsensordata))

    def advance(self, motion: Motion, action: Array, params: BodyParams) -> Motion:
        """The motion one simulator step later under an action (A,)."""
        model = self.model.replace(**dict(zip(MODEL_FIELDS, params, strict=True)))
        # MJX derives everything else in its data anew each step, so only the motion is carried.
        data = self.blank.replace(qpos=motion.position, qvel=motion.velocity, qacc_warmstart=motion.guess, ctrl=action)
        with all_iterations(int(self.host.opt.iterations)):
            data = mjx.step(model, data)
        return Motion(data.qpos, data.qvel, data.qacc_warmstart, data.sensordata)

    def settle(self, position: np.ndarray, simulator_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity so many steps in C after lying still in a position, with no motor on."""
        data = mujoco.MjData(self.host)
        data.qpos[:] = position
        mujoco.mj_step(self.host, data, simulator_steps)
        return data.qpos.astype(np.float32), data.qvel.astype(np.float32)

    def shifted(self, params: BodyParams, shift: Shift) -> BodyParams:
        """Parameters of the same shapes with the shift in them."""
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


@contextmanager
def all_iterations(count: int) -> Iterator[None]:
    """What is traced inside makes all iterations of MJX's solver; those after it has converged change nothing.

    MJX asks after each one whether to go on, and on a GPU that answer has to travel to the host first.
    """
    asking = jax.lax.while_loop

    def counting(go_on: Callable[[Any], Array], iterate: Callable[[Any], Any], start: Any) -> Any:
        def once(now: Any, _: None) -> tuple[Any, None]:
            goes_on = go_on(now)
            return jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), iterate(now), now), None

        return jax.lax.scan(once, start, None, length=count)[0]

    jax.lax.while_loop = counting  # type: ignore[assignment]
    try:
        yield
    finally:
        jax.lax.while_loop = asking


def _ratio(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Elementwise, 1 where both are nothing."""
    return np.divide(after, before, out=np.ones_like(before), where=before > 0).astype(np.float32)


@cache
def load_body(name: str) -> Body:
    """The body of that name, read once a process."""
    return Body(name)
