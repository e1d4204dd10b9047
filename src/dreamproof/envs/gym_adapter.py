"""Our environments as Gymnasium and Safety-Gymnasium envs, and any Gymnasium env for our agents."""

from typing import Any

import gymnasium
import jax
import numpy as np

from dreamproof.envs import registry
from dreamproof.envs.api import Env, TimeStep
from dreamproof.envs.host import HostBatch, HostEnv, HostRules, Maker
from dreamproof.jaxcore.keys import member_keys, step_key
from dreamproof.settings.env import EnvSettings


class GymnasiumEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One env; `info` holds cost, margin and goals of the step."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, env: Env, params: Any = None) -> None:
        self._env = env
        self._params = env.default_params() if params is None else params
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)
        self._seed, self._episode, self._ticks = 0, 0, 0
        self._state: Any = None
        size = env.spec.observation_size
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (env.spec.action_size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; without a seed, the next one of the same stream."""
        super().reset(seed=seed)
        del options
        if seed is not None:
            self._seed, self._episode = seed, 0
        keys = member_keys(step_key(self._seed, "gymnasium/layout", self._episode), 1)
        self._episode, self._ticks = self._episode + 1, 0
        self._state, shown = self._reset(keys, self._params)
        return np.asarray(shown.observation[0]), _info(shown)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One agent step."""
        shown = self._advance(action)
        ends = bool(shown.terminated[0]), bool(shown.truncated[0])
        return np.asarray(shown.observation[0]), float(shown.reward[0]), *ends, _info(shown)

    def _advance(self, action: np.ndarray) -> Any:
        stream = f"gymnasium/noise/{self._episode}"
        keys = member_keys(step_key(self._seed, stream, self._ticks), 1)
        self._ticks += 1
        self._state, shown = self._step(keys, self._state, np.asarray(action, np.float32)[None], self._params)
        return shown


class SafetyGymnasiumEnv(GymnasiumEnv):
    """The same with a separate cost: observation, reward, cost, terminated, truncated, info."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """One agent step as a Safety-Gymnasium 6-tuple."""
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info["cost"], terminated, truncated, info


def _info(shown: TimeStep) -> dict[str, Any]:
    return {name: float(getattr(shown, name)[0]) for name in ("cost", "margin", "goals")}


def make_gymnasium(task: str, settings: EnvSettings | dict[str, Any] | None = None, params: Any = None) -> GymnasiumEnv:
    """A task as a Gymnasium env."""
    return GymnasiumEnv(registry.make(task, settings), params)


def make_safety_gymnasium(
    task: str, settings: EnvSettings | dict[str, Any] | None = None, params: Any = None
) -> SafetyGymnasiumEnv:
    """A task as a Safety-Gymnasium env."""
    return SafetyGymnasiumEnv(registry.make(task, settings), params)


def from_gymnasium(make_env: Maker, name: str, rules: HostRules | None = None) -> HostEnv:
    """Any Gymnasium or Safety-Gymnasium env for our agents; `make_env` builds one."""
    return HostEnv(HostBatch(make_env, name, rules or HostRules()))
