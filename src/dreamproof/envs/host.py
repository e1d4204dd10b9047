"""Environments that step on the host (any Gymnasium env with a cost) behind the `Env` interface.

`HostBatch` steps them with NumPy arrays; `HostEnv` makes the batch callable from a compiled loop. It cannot be vmapped
over replicas: call it with one flat batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import io_callback

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Env, Params, Spec, TimeStep

Maker = Callable[[], Any]
DEFAULT_EPISODE_STEPS = 1000


@dataclass(frozen=True)
class HostRules:
    """Where cost and margin of a host environment are, and whether ended episodes restart inside the step.

    margin_key: the key of the margin in `info`; None for an environment without a margin.
    """

    has_cost: bool = True
    cost_key: str = "cost"
    margin_key: str | None = None
    restarts: bool = True
    episode_agent_steps: int | None = None


class HostBatch:
    """N host environments of one kind, stepped sequentially; every result is a TimeStep of NumPy arrays."""

    def __init__(self, make_env: Maker, name: str, rules: HostRules, spec: Spec | None = None) -> None:
        self._make_env = make_env
        self._rules = rules
        self._envs: list[Any] = [make_env()]
        self._scale = _action_scale(self._envs[0], name)
        self.spec = spec or _host_spec(self._envs[0], name, rules)
        self._shown: TimeStep | None = None

    def reset(self, seeds: Sequence[int] | np.ndarray) -> TimeStep:
        """Starts one episode per seed; environments are created as needed."""
        while len(self._envs) < len(seeds):
            self._envs.append(self._make_env())
        pairs = [env.reset(seed=int(seed)) for env, seed in zip(self._envs, seeds, strict=False)]
        observation = np.stack([_flat(first) for first, _ in pairs])
        margin = np.array([self._margin(info) for _, info in pairs], np.float32)
        zero, no = np.zeros(len(pairs), np.float32), np.zeros(len(pairs), bool)
        costs = np.zeros((len(pairs), len(self.spec.costs)), np.float32)
        self._shown = self._time_step(observation, zero, zero, margin, zero, ~no, no, no, observation, costs)
        return self._shown

    def step(self, action: np.ndarray) -> TimeStep:
        """One step of every environment with actions (N, A) in [-1, 1]."""
        if self._shown is None:
            raise BadInput(f"'{self.spec.name}' was stepped before it was reset", "call reset first")
        rows = [self._step_one(index, row) for index, row in enumerate(np.asarray(action))]
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        self._shown = self._time_step(*columns)
        return self._shown

    def _time_step(self, *columns: Any) -> TimeStep:
        """A TimeStep of NumPy columns, the last one the costs of all constraints."""
        return TimeStep(*columns[:-1])._replace(costs=columns[-1] if self.spec.costs else None)

    def _margin(self, info: dict[str, Any]) -> float:
        key = self._rules.margin_key
        if key is None:
            return 0.0
        if key not in info:
            known = ", ".join(map(str, info)) or "nothing"
            seen = f"'{self.spec.name}': info holds no '{key}' (it holds {known})"
            raise BadInput(seen, "set HostRules(margin_key=...), or HostRules(margin_key=None)")
        return float(info[key])

    def _costs(self, cost: float, info: dict[str, Any]) -> np.ndarray:
        """The cost of each constraint (K,); of a single one it is the total."""
        costs = info["costs"] if len(self.spec.costs) > 1 else [cost] * len(self.spec.costs)
        return np.asarray(costs, np.float32)

    def _step_one(self, index: int, action: np.ndarray) -> tuple[Any, ...]:
        assert self._shown is not None
        ended_before = bool(self._shown.terminated[index] | self._shown.truncated[index])
        if ended_before and not self._rules.restarts:
            return self._repeat_last(index)
        low, high = self._scale
        env = self._envs[index]
        outcome = env.step((low + (np.clip(action, -1.0, 1.0) + 1.0) * 0.5 * (high - low)).astype(np.float32))
        observation, reward, cost, terminated, truncated, info = _six(outcome, self._rules, self.spec.name)
        last = _flat(observation)
        ended = terminated or truncated
        # The next layout comes from the environment's own stream, as for Gymnasium's reset without a seed.
        shown = _flat(env.reset()[0]) if ended and self._rules.restarts else last
        numbers = [reward, cost, self._margin(info), info.get("goals", 0.0)]
        flags = [ended and self._rules.restarts, terminated, truncated]
        return (shown, *map(np.float32, numbers), *map(np.bool_, flags), last, self._costs(cost, info))

    def _repeat_last(self, index: int) -> tuple[Any, ...]:
        """An ended environment repeats its last observation, with reward and cost 0."""
        assert self._shown is not None
        row = [np.asarray(column[index]) for column in self._shown if column is not None]
        zero, costs = np.float32(0.0), np.zeros(len(self.spec.costs), np.float32)
        return (row[0], zero, zero, row[3], zero, np.bool_(False), row[6], row[7], row[8], costs)


class HostState(NamedTuple):
    """Only a counter: the host holds the state, so a host environment cannot be saved or resumed mid-episode."""

    agent_steps: Array


class HostEnv(Env):
    """A host batch behind the `Env` interface; calls are ordered, so it can be used in a scan."""

    def __init__(self, batch: HostBatch) -> None:
        self._batch = batch

    @property
    def spec(self) -> Spec:
        """The spec of the host environment."""
        return self._batch.spec

    def default_params(self) -> Params:
        """Empty: a host environment has no parameters."""
        return ()

    def reset(self, keys: Array, params: Params) -> tuple[HostState, TimeStep]:
        """Starts N episodes with seeds drawn from the keys."""
        del params
        seeds = jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys)
        shown = io_callback(self._batch.reset, self._shape(keys.shape[0]), seeds, ordered=True)
        return HostState(jnp.zeros((), jnp.int32)), shown

    def step(self, keys: Array, state: HostState, action: Array, params: Params) -> tuple[HostState, TimeStep]:
        """One agent step of N envs."""
        del keys, params
        shown = io_callback(self._batch.step, self._shape(action.shape[0]), action, ordered=True)
        return HostState(state.agent_steps + 1), shown

    def _shape(self, count: int) -> TimeStep:
        vector = np.zeros((count, self.spec.observation_size), np.float32)
        real, flag = np.zeros(count, np.float32), np.zeros(count, bool)
        costs: Any = np.zeros((count, len(self.spec.costs)), np.float32) if self.spec.costs else None
        columns: list[Any] = [vector, *[real] * 4, *[flag] * 3, vector]
        shape: TimeStep = jax.eval_shape(lambda: TimeStep(*columns)._replace(costs=costs))
        return shape


def _flat(observation: Any) -> np.ndarray:
    return np.asarray(observation, np.float32).reshape(-1)


def _six(outcome: tuple[Any, ...], rules: HostRules, name: str) -> tuple[Any, float, float, bool, bool, dict[str, Any]]:
    """A Safety-Gymnasium 6-tuple from itself, or from a Gymnasium 5-tuple with the cost in info."""
    if len(outcome) == 6:
        observation, reward, cost, terminated, truncated, info = outcome
        return observation, float(reward), float(cost), bool(terminated), bool(truncated), info
    observation, reward, terminated, truncated, info = outcome
    if rules.has_cost and rules.cost_key not in info:
        known = ", ".join(map(str, info)) or "nothing"
        seen = f"'{name}': info holds no '{rules.cost_key}' (it holds {known})"
        raise BadInput(seen, "set HostRules(cost_key=...), or HostRules(has_cost=False)")
    cost = float(info[rules.cost_key]) if rules.has_cost else 0.0
    return observation, float(reward), cost, bool(terminated), bool(truncated), info


def _action_scale(env: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    space = env.action_space
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or not np.all(np.isfinite(low) & np.isfinite(high)):
        raise BadInput(f"'{name}': actions must be a bounded box, not {space}", "wrap it, e.g. with RescaleAction")
    return np.asarray(low, np.float32), np.asarray(high, np.float32)


def _host_spec(env: Any, name: str, rules: HostRules) -> Spec:
    shape = getattr(env.observation_space, "shape", None)
    if not shape:
        seen = f"'{name}': observations must be one array, not {env.observation_space}"
        raise BadInput(seen, "wrap it with gymnasium.wrappers.FlattenObservation")
    declared = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    length = rules.episode_agent_steps or declared or DEFAULT_EPISODE_STEPS
    size, actions = int(np.prod(shape)), int(np.prod(env.action_space.shape))
    return Spec(name, size, actions, length, has_cost=rules.has_cost, has_margin=rules.margin_key is not None)
