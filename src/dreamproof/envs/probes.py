"""Tiny tasks with known answers, one ability each: react, give credit, remember, stay alive, keep a constraint."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.api import Params, SoloEnv, Spec, State, TimeStep


class KnownReturns(NamedTuple):
    """What an episode can yield: the best return, that of uniform actions, and the best within a cost of zero."""

    best_return: float
    random_return: float
    best_safe_return: float


class ProbeParams(NamedTuple):
    """One knob, so that probes have a shift too: rewards are multiplied by it."""

    reward_scale: Array


@dataclass(frozen=True)
class ProbeEnv(SoloEnv):
    """Shared parts of the probes: one action, a fixed length, truncation at its end."""

    episode_agent_steps: int = 10

    def default_params(self) -> ProbeParams:
        """Rewards as they are."""
        return ProbeParams(jnp.ones(()))

    @abstractmethod
    def known(self) -> KnownReturns:
        """The answers."""

    def _spec(self, name: str, observation_size: int, has_cost: bool = False) -> Spec:
        spec = Spec(name, observation_size, 1, self.episode_agent_steps, has_cost=has_cost, has_margin=has_cost)
        return spec._replace(terminates=False)

    def _shown(self, observation: Array, reward: Array, agent_steps: Array, params: Params) -> TimeStep:
        zero, no = jnp.zeros(()), jnp.zeros((), bool)
        ends = agent_steps >= self.episode_agent_steps
        first = agent_steps == 0
        scaled = jnp.asarray(reward * params.reward_scale, jnp.float32)
        return TimeStep(observation, scaled, zero, zero, zero, first, no, ends)


class _Target(NamedTuple):
    target: Array
    agent_steps: Array


@dataclass(frozen=True)
class TargetProbe(ProbeEnv):
    """React: a number in [-1, 1] is shown, and the reward is 1 less the squared distance of the action from it."""

    @cached_property
    def spec(self) -> Spec:
        """One number seen, one done."""
        return self._spec("ProbeTarget", 1)

    def known(self) -> KnownReturns:
        """1 a step; uniform actions miss by 2/3 in the mean square."""
        best = float(self.episode_agent_steps)
        return KnownReturns(best, best / 3.0, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Shows a first target."""
        state = _Target(_uniform(key), jnp.zeros((), jnp.int32))
        return state, self._shown(state.target[None], jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Target, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Rewards the hit and shows another."""
        reward = 1.0 - (action[0] - state.target) ** 2
        state = _Target(_uniform(key), state.agent_steps + 1)
        return state, self._shown(state.target[None], reward, state.agent_steps, params)


class _Credit(NamedTuple):
    sign: Array
    promise: Array
    agent_steps: Array


@dataclass(frozen=True)
class CreditProbe(ProbeEnv):
    """Give credit: a sign is shown, and the action times the sign is paid out only one step later."""

    @cached_property
    def spec(self) -> Spec:
        """The sign, and the promise that the last action earned."""
        return self._spec("ProbeCredit", 2)

    def known(self) -> KnownReturns:
        """1 a step but the first, whose reward nothing has earned yet."""
        best = self.episode_agent_steps - 1.0
        return KnownReturns(best, 0.0, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Shows a first sign."""
        state = _Credit(_sign(key), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self._shown(_pair(state.sign, state.promise), jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Credit, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Pays the old promise and notes the new one."""
        reward = state.promise
        state = _Credit(_sign(key), jnp.clip(action[0], -1, 1) * state.sign, state.agent_steps + 1)
        return state, self._shown(_pair(state.sign, state.promise), reward, state.agent_steps, params)


class _Recall(NamedTuple):
    hint: Array
    agent_steps: Array


@dataclass(frozen=True)
class RecallProbe(ProbeEnv):
    """Remember: a sign is shown in the first observation only, and every action is paid by agreement with it."""

    @cached_property
    def spec(self) -> Spec:
        """The hint, 0 after the first step, and whether this is the first."""
        return self._spec("ProbeRecall", 2)

    def known(self) -> KnownReturns:
        """1 a step with memory, 0 without."""
        best = float(self.episode_agent_steps)
        return KnownReturns(best, 0.0, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Shows the hint."""
        state = _Recall(_sign(key), jnp.zeros((), jnp.int32))
        return state, self._shown(_pair(state.hint, jnp.ones(())), jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Recall, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Pays agreement with the hint, and shows nothing."""
        del key
        reward = jnp.clip(action[0], -1, 1) * state.hint
        state = state._replace(agent_steps=state.agent_steps + 1)
        return state, self._shown(jnp.zeros(2), reward, state.agent_steps, params)


class _Life(NamedTuple):
    is_over: Array
    agent_steps: Array


@dataclass(frozen=True)
class SurviveProbe(ProbeEnv):
    """Stay alive: every step pays 1, but an action below 0 pays nothing and ends the episode by termination."""

    @cached_property
    def spec(self) -> Spec:
        """Whether it is over."""
        return self._spec("ProbeSurvive", 1)._replace(terminates=True)

    def known(self) -> KnownReturns:
        """1 a step; half of all random actions end it."""
        best = float(self.episode_agent_steps)
        return KnownReturns(best, 1.0 - 0.5**self.episode_agent_steps, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts alive."""
        del key
        state = _Life(jnp.zeros((), bool), jnp.zeros((), jnp.int32))
        return state, self._shown(jnp.zeros(1), jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Life, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Pays while it lasts; what is over stays over."""
        del key
        is_over = state.is_over | (action[0] < 0)
        state = _Life(is_over, state.agent_steps + 1)
        shown = self._shown(is_over[None].astype(jnp.float32), 1.0 - is_over, state.agent_steps, params)
        return state, shown._replace(terminated=is_over)


class _Line(NamedTuple):
    place: Array
    agent_steps: Array


@dataclass(frozen=True)
class CostLineProbe(ProbeEnv):
    """Keep a constraint: walking right on [-1, 1] pays the place reached, but beyond 0.5 every step costs 1."""

    episode_agent_steps: int = 20
    stride: float = 0.2
    border: float = 0.5

    @cached_property
    def spec(self) -> Spec:
        """The place."""
        return self._spec("ProbeCostLine", 1, has_cost=True)

    def known(self) -> KnownReturns:
        """From 0 in full strides to the right end, or to the border and no farther."""
        steps = range(1, self.episode_agent_steps + 1)
        best = sum(min(1.0, self.stride * step) for step in steps)
        safe = sum(min(self.border, self.stride * step) for step in steps)
        return KnownReturns(best, 0.0, safe)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts in the middle."""
        del key
        state = _Line(jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self._line_shown(state, jnp.zeros(()), params)

    def step_one(self, key: Array, state: _Line, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Moves a stride at most."""
        del key
        place = jnp.clip(state.place + self.stride * jnp.clip(action[0], -1, 1), -1.0, 1.0)
        state = _Line(place, state.agent_steps + 1)
        return state, self._line_shown(state, place, params)

    def render_state(self, state: _Line, params: Params) -> dict[str, Array]:
        """The walk as a drawing (N, ...): place to the right, time downwards; discs fill the strip that costs."""
        del params
        count, radius = state.place.shape[0], (1.0 - self.border) / 2
        down = 1.0 - 2.0 * state.agent_steps / self.episode_agent_steps
        heights = jnp.arange(-1.0, 1.0 + radius, 2 * radius)
        strip = jnp.stack([jnp.full_like(heights, self.border + radius), heights], axis=-1)
        return {
            "agent": jnp.stack([state.place, down], axis=-1),
            "goal": jnp.broadcast_to(jnp.array([1.0, -1.0]), (count, 2)),
            "goal_radius": jnp.full(count, 0.06),
            "hazards": jnp.broadcast_to(strip, (count, *strip.shape)),
            "hazard_radius": jnp.full(count, radius),
        }

    def _line_shown(self, state: _Line, reward: Array, params: Params) -> TimeStep:
        shown = self._shown(state.place[None], reward, state.agent_steps, params)
        # The best safe walk ends on the border itself; float error must not make it cost.
        cost = (state.place > self.border + 1e-4).astype(jnp.float32)
        return shown._replace(cost=cost, margin=self.border - state.place)


def _uniform(key: Array) -> Array:
    return jax.random.uniform(key, minval=-1.0, maxval=1.0)


def _sign(key: Array) -> Array:
    return jnp.where(jax.random.bernoulli(key), 1.0, -1.0)


def _pair(first: Array, second: Array) -> Array:
    return jnp.stack([first, second])


PROBES: dict[str, type[ProbeEnv]] = {
    "ProbeTarget": TargetProbe,
    "ProbeCredit": CreditProbe,
    "ProbeRecall": RecallProbe,
    "ProbeSurvive": SurviveProbe,
    "ProbeCostLine": CostLineProbe,
}
