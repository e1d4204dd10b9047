"""Tiny tasks with known optimal returns, one ability each: reaction, credit, memory, survival, constraint."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs.api import Params, SoloEnv, Spec, State, TimeStep


class KnownReturns(NamedTuple):
    """Known returns of an episode: the best, that of uniform actions, and the best with zero cost."""

    best_return: float
    random_return: float
    best_safe_return: float


class ProbeParams(NamedTuple):
    """A single parameter, so that probes have a shift too: rewards are multiplied by it."""

    reward_scale: Array


@dataclass(frozen=True)
class ProbeEnv(SoloEnv):
    """What the probes share: one action and a fixed length."""

    episode_agent_steps: int = 10

    def default_params(self) -> ProbeParams:
        """Unscaled rewards."""
        return ProbeParams(jnp.ones(()))

    @abstractmethod
    def known(self) -> KnownReturns:
        """The known returns."""

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
    """Reaction: a number in [-1, 1] is observed; the reward is 1 minus the squared distance of the action from it."""

    @cached_property
    def spec(self) -> Spec:
        """One observed value, one action."""
        return self._spec("ProbeTarget", 1)

    def known(self) -> KnownReturns:
        """1 per step; uniform actions have a mean squared error of 2/3."""
        best = float(self.episode_agent_steps)
        return KnownReturns(best, best / 3.0, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Draws the first target."""
        state = _Target(_uniform(key), jnp.zeros((), jnp.int32))
        return state, self._shown(state.target[None], jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Target, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Rewards the action and draws the next target."""
        reward = 1.0 - (action[0] - state.target) ** 2
        state = _Target(_uniform(key), state.agent_steps + 1)
        return state, self._shown(state.target[None], reward, state.agent_steps, params)


class _Credit(NamedTuple):
    sign: Array
    pending: Array
    agent_steps: Array


@dataclass(frozen=True)
class CreditProbe(ProbeEnv):
    """Credit assignment: a sign is observed; action times sign is the reward of the next step."""

    @cached_property
    def spec(self) -> Spec:
        """The sign, and the pending reward."""
        return self._spec("ProbeCredit", 2)

    def known(self) -> KnownReturns:
        """1 per step except the first."""
        best = self.episode_agent_steps - 1.0
        return KnownReturns(best, 0.0, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Draws the first sign."""
        state = _Credit(_sign(key), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self._shown(_pair(state.sign, state.pending), jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Credit, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Gives the pending reward and sets the next one."""
        reward = state.pending
        state = _Credit(_sign(key), jnp.clip(action[0], -1, 1) * state.sign, state.agent_steps + 1)
        return state, self._shown(_pair(state.sign, state.pending), reward, state.agent_steps, params)


class _Recall(NamedTuple):
    sign: Array
    agent_steps: Array


@dataclass(frozen=True)
class RecallProbe(ProbeEnv):
    """Memory: a sign is observed only in the first step; the reward is action times sign."""

    @cached_property
    def spec(self) -> Spec:
        """The hint, 0 after the first step, and whether this is the first."""
        return self._spec("ProbeRecall", 2)

    def known(self) -> KnownReturns:
        """1 per step with memory, 0 without."""
        best = float(self.episode_agent_steps)
        return KnownReturns(best, 0.0, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Draws the sign."""
        state = _Recall(_sign(key), jnp.zeros((), jnp.int32))
        return state, self._shown(_pair(state.sign, jnp.ones(())), jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Recall, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Rewards agreement with the sign; the observation is 0."""
        del key
        reward = jnp.clip(action[0], -1, 1) * state.sign
        state = state._replace(agent_steps=state.agent_steps + 1)
        return state, self._shown(jnp.zeros(2), reward, state.agent_steps, params)


class _Life(NamedTuple):
    is_over: Array
    agent_steps: Array


@dataclass(frozen=True)
class SurviveProbe(ProbeEnv):
    """Survival: a reward of 1 per step, but an action below 0 gives no reward and terminates the episode."""

    @cached_property
    def spec(self) -> Spec:
        """Whether it is over."""
        return self._spec("ProbeSurvive", 1)._replace(terminates=True)

    def known(self) -> KnownReturns:
        """1 per step; half of all random actions end it."""
        best = float(self.episode_agent_steps)
        return KnownReturns(best, 1.0 - 0.5**self.episode_agent_steps, best)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts alive."""
        del key
        state = _Life(jnp.zeros((), bool), jnp.zeros((), jnp.int32))
        return state, self._shown(jnp.zeros(1), jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Life, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Reward while alive; a terminated episode stays terminated."""
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
    """Constraint: on the line [-1, 1] the reward is the position, but beyond 0.5 every step costs 1."""

    episode_agent_steps: int = 20
    stride: float = 0.2
    border: float = 0.5

    @cached_property
    def spec(self) -> Spec:
        """The position."""
        return self._spec("ProbeCostLine", 1, has_cost=True)

    def known(self) -> KnownReturns:
        """From 0 in full strides to the right end, or to the border."""
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
        """Moves by at most one stride."""
        del key
        place = jnp.clip(state.place + self.stride * jnp.clip(action[0], -1, 1), -1.0, 1.0)
        state = _Line(place, state.agent_steps + 1)
        return state, self._line_shown(state, place, params)

    def render_state(self, state: _Line, params: Params) -> dict[str, Array]:
        """Rendering (N, ...): position to the right, time downwards; discs fill the region with cost."""
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
        # The best safe episode ends on the border; rounding must not add cost.
        cost = (state.place > self.border + 1e-4).astype(jnp.float32)
        return shown._replace(cost=cost, margin=self.border - state.place)


def _uniform(key: Array) -> Array:
    return jax.random.uniform(key, minval=-1.0, maxval=1.0)


def _sign(key: Array) -> Array:
    # Not weakly typed: a restored array never is, and another type would need another compiled program.
    return jnp.where(jax.random.bernoulli(key), jnp.float32(1), jnp.float32(-1))


def _pair(first: Array, second: Array) -> Array:
    return jnp.stack([first, second])


PROBES: dict[str, type[ProbeEnv]] = {
    "ProbeTarget": TargetProbe,
    "ProbeCredit": CreditProbe,
    "ProbeRecall": RecallProbe,
    "ProbeSurvive": SurviveProbe,
    "ProbeCostLine": CostLineProbe,
}
