"""Base class of locomotion tasks: control steps, time limit, forward distance, and conditions."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Condition, Env, Spec, TimeStep, per_env
from dreamproof.envs.locomotion.params import BodyParams
from dreamproof.envs.locomotion.physics import Motion, MujocoBody, load_body
from dreamproof.settings.env import EnvSettings, Shift

Carry = TypeVar("Carry")
Slots = tuple[tuple[str, int], ...]

_SHIFTS: dict[str, tuple[str, Shift]] = {
    "mass_x1.5": ("mass and inertia of every link times 1.5", Shift(mass_factor=1.5)),
    "mass_x0.7": ("mass and inertia of every link times 0.7", Shift(mass_factor=0.7)),
    "force_x0.6": ("motors of 0.6 times the strength", Shift(force_factor=0.6)),
    "force_x1.5": ("motors of 1.5 times the strength", Shift(force_factor=1.5)),
    "damping_x3": ("joint damping times 3", Shift(damping_factor=3.0)),
    "friction_x0.5": ("friction of all contacts halved", Shift(friction_factor=0.5)),
}
_FACTORS = ("mass_factor", "damping_factor", "force_factor", "friction_factor")


class LocomotionState(NamedTuple):
    """N envs: motions, last actions and step counts."""

    motion: Motion
    last_action: Array
    agent_steps: Array


class _Sums(NamedTuple):
    """Reward and cost (N,) of one agent step."""

    reward: Array
    cost: Array


@dataclass(frozen=True)
class Locomotion(Env):
    """A body with a task; class variables are static, everything else is in the parameters.

    body_name: the file under bodies/. substeps: simulator steps per control step. action_repeat: control steps per
    agent step. forward: index of the forward position, None if there is none.
    costs: the name of the constraint, if there is one; such a task defines `violates` and `margin`.
    """

    name: str
    episode_agent_steps: int

    body_name: ClassVar[str]
    substeps: ClassVar[int]
    action_repeat: ClassVar[int]
    slots: ClassVar[Slots]
    forward: ClassVar[int | None]
    costs: ClassVar[tuple[str, ...]] = ()
    terminates: ClassVar[bool] = False
    has_contacts: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, task: str, settings: EnvSettings, **fields: Any) -> Self:
        """The task with the time limit of the settings; refuses settings of others. `fields`: those of a subclass."""
        plain = EnvSettings()
        changed = {name for name in EnvSettings.model_fields if getattr(settings, name) != getattr(plain, name)}
        if settings.action_repeat == cls.action_repeat:
            changed.discard("action_repeat")
        if foreign := sorted(changed - {"episode_simulator_steps"}):
            raise BadInput(
                f"the task '{task}' does not support the env settings {', '.join(foreign)} "
                f"(its action repeat is {cls.action_repeat})",
                "remove all env settings except episode_simulator_steps",
            )
        return cls(task, settings.episode_simulator_steps // cls.action_repeat, **fields)

    @property
    def body(self) -> MujocoBody:
        """The body, read once per process."""
        return load_body(self.body_name)

    @cached_property
    def spec(self) -> Spec:
        """Sizes and named slots of the observation; a margin belongs to every cost."""
        ends = [sum(width for _, width in self.slots[: index + 1]) for index in range(len(self.slots))]
        named = zip(self.slots, ends, strict=True)
        return Spec(
            name=self.name,
            observation_size=ends[-1],
            action_size=self.body.motors,
            episode_agent_steps=self.episode_agent_steps,
            has_cost=bool(self.costs),
            max_step_cost=float(self.action_repeat) if self.costs else 0.0,
            has_margin=bool(self.costs),
            action_repeat=self.action_repeat,
            slots=tuple((name, end - width, end) for (name, width), end in named),
            terminates=self.terminates,
            agent_step_seconds=float(self.body.host.opt.timestep) * self.substeps * self.action_repeat,
            max_return=self.max_return,
            costs=self.costs,
        )

    @property
    def max_return(self) -> float | None:
        """The largest return of an episode, if rewards are bounded."""
        return None

    def default_params(self) -> BodyParams:
        """The parameters of the body's file."""
        return self.body.params

    def named_shifts(self) -> Mapping[str, Shift]:
        """The named shifts, without those that have no effect on this body."""
        shifts = {name: shift for name, (_, shift) in _SHIFTS.items()}
        if not self.has_contacts:
            del shifts["friction_x0.5"]
        return shifts

    def conditions(self) -> Mapping[str, Condition]:
        """The named shifts, all genuine."""
        return dict(super().conditions()) | {
            name: Condition(name, "genuine", _SHIFTS[name][0], partial(self.apply_shift, shift=shift))
            for name, shift in self.named_shifts().items()
        }

    def apply_shift(self, params: BodyParams, shift: Shift) -> BodyParams:
        """The parameters with the shift applied; refuses shifts that a body does not support."""
        plain = Shift()
        changed = {name for name in Shift.model_fields if getattr(shift, name) != getattr(plain, name)}
        if foreign := sorted(changed - set(_FACTORS)):
            raise BadInput(
                f"the task '{self.name}' does not support the shift {', '.join(foreign)}",
                f"use {', '.join(_FACTORS)}; see docs/environments.md",
            )
        return self.body.shifted(params, shift)

    @abstractmethod
    def start(self, key: Array) -> tuple[Array, Array]:
        """Position (Q,) and velocity (V,) at the start of an episode."""

    def target(self, key: Array) -> Array | None:
        """The point (G,) to reach in an episode, if the task has one."""
        del key
        return None

    @abstractmethod
    def observe(self, motion: Motion, last_action: Array) -> Array:
        """The observation of a motion."""

    @abstractmethod
    def reward(self, before: Motion, after: Motion, action: Array) -> Array:
        """The reward of one control step."""

    def violates(self, after: Motion) -> Array:
        """Whether a control step costs, judged by the motion after it; at most one constraint per task."""
        del after
        return jnp.zeros((), bool)

    def margin(self, motion: Motion) -> Array:
        """Distance to a violation, negative beyond it; 0 for a task without a cost."""
        del motion
        return jnp.zeros(())

    def has_fallen(self, motion: Motion) -> Array:
        """Whether the episode terminates."""
        del motion
        return jnp.zeros((), bool)

    def reset(self, keys: Array, params: BodyParams) -> tuple[LocomotionState, TimeStep]:
        """Starts N episodes."""
        del params
        count = keys.shape[0]

        def begin(key: Array) -> Motion:
            return self.body.still(*self.start(key), self.target(jax.random.fold_in(key, 1)))

        state = LocomotionState(
            motion=jax.vmap(begin)(keys),
            last_action=jnp.zeros((count, self.body.motors)),
            agent_steps=jnp.zeros(count, jnp.int32),
        )
        with jax.default_matmul_precision("highest"):
            return state, self._shown(state, _Sums(jnp.zeros(count), jnp.zeros(count)), jnp.zeros(count))

    def step(
        self, keys: Array, state: LocomotionState, action: Array, params: BodyParams
    ) -> tuple[LocomotionState, TimeStep]:
        """One agent step of N envs; reward and cost are sums over its control steps.

        If episodes may terminate, a non-finite simulation terminates one, at rest in its last finite position.
        """
        del keys
        action = jnp.clip(action, -1.0, 1.0)
        # The default matmul precision of a device may be too low for a simulator.
        with jax.default_matmul_precision("highest"):
            motion, sums = self._simulate(state.motion, action, params)
            is_over = jnp.zeros(sums.reward.shape, bool)
            if self.terminates:
                motion, is_finite = _at_rest_if_nonfinite(motion, state.motion)
                is_over = jax.vmap(self.has_fallen)(motion) | ~is_finite
            gained = self._distance(motion) - self._distance(state.motion)
            state = LocomotionState(motion, action, state.agent_steps + 1)
            return state, self._shown(state, sums, gained)._replace(terminated=is_over)

    def _simulate(self, motion: Motion, action: Array, params: BodyParams) -> tuple[Motion, _Sums]:
        """Motions after one agent step, its rewards and costs. vmap is inside the loops: that traces faster."""
        advance = per_env(self.body.advance, self.default_params())

        def control(carry: tuple[Motion, _Sums]) -> tuple[Motion, _Sums]:
            before, sums = carry
            after = repeated(lambda motion: advance(motion, action, params), before, self.substeps)
            reward, cost = jax.vmap(self.reward)(before, after, action), jax.vmap(self.violates)(after)
            return after, _Sums(sums.reward + reward, sums.cost + cost)

        zero = jnp.zeros(action.shape[0])
        return repeated(control, (motion, _Sums(zero, zero)), self.action_repeat)

    def _distance(self, motion: Motion) -> Array:
        return jnp.zeros(()) if self.forward is None else motion.position[:, self.forward]

    def _shown(self, state: LocomotionState, sums: _Sums, gained: Array) -> TimeStep:
        no = jnp.zeros(sums.reward.shape, bool)
        return TimeStep(
            observation=jax.vmap(self.observe)(state.motion, state.last_action),
            reward=sums.reward,
            cost=sums.cost,
            margin=jax.vmap(self.margin)(state.motion),
            goals=jnp.zeros_like(sums.reward),
            first=state.agent_steps == 0,
            terminated=no,
            truncated=state.agent_steps >= self.episode_agent_steps,
            forward_metres=None if self.forward is None else gained,
            costs=sums.cost[:, None] if self.costs else None,
        )


def repeated(function: Callable[[Carry], Carry], start: Carry, times: int) -> Carry:
    """A function applied `times` times to its own result, compiled once."""
    return function(start) if times == 1 else lax.fori_loop(0, times, lambda _, carry: function(carry), start)


def _at_rest_if_nonfinite(motion: Motion, before: Motion) -> tuple[Motion, Array]:
    """The motions (N, ...) with non-finite ones replaced by rest at their last position, and which are finite (N,)."""
    is_finite = jnp.isfinite(motion.position).all(1) & jnp.isfinite(motion.velocity).all(1)
    rest = jax.tree.map(jnp.zeros_like, motion)._replace(position=before.position, target=before.target)
    return jax.tree.map(lambda new, old: jnp.where(is_finite[:, None], new, old), motion, rest), is_finite
