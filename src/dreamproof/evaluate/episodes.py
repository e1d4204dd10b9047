"""Evaluates a run under named conditions and writes what it saw; layouts are the same for every arm and seed."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Condition, Env
from dreamproof.envs.episodes import Episodes, complete_episodes, episode_keys, shared_episodes
from dreamproof.envs.scripted import floors
from dreamproof.envs.shift import find_condition
from dreamproof.evaluate import certificate
from dreamproof.evaluate.drawing import as_trail, first_places
from dreamproof.evaluate.loading import Loaded
from dreamproof.jaxcore.devices import code_commit
from dreamproof.jaxcore.keys import Split, step_key
from dreamproof.jaxcore.types import TimeStep
from dreamproof.runs.records import EvaluatedCheckpoint, EvaluationRecord
from dreamproof.version import __version__

LAYOUT_SEED = 0
SIGNALS = ("shadow/uncertainty", "shadow/violation", "shadow/innovation")


@eqx.filter_jit
def _run(fixed: tuple[Any, Env], state: Any, scalars: Any, params: Any, keys: tuple[Array, Array]) -> Episodes:
    agent, env = fixed

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        def act(memory: Any, seen: TimeStep) -> Any:
            return agent.act(state, memory, seen, step_key(LAYOUT_SEED, "evaluate", index), scalars, explore=False)

        return tuple(eqx.filter_vmap(act)(memory, seen))

    def trace(env_state: Any, seen: TimeStep, memory: Any) -> dict[str, Any]:
        kept = {"places": first_places(env, env_state, seen, params)}
        return kept | ({"barrier": memory.barrier} if hasattr(memory, "barrier") else {})

    memory = eqx.filter_vmap(lambda _: agent.init_memory(keys[0].shape[0]))(jnp.zeros(1))
    return shared_episodes(env, policy, memory, keys, params, trace)


def run_episodes(loaded: Loaded, condition: Condition, split: Split, episodes: int) -> Episodes:
    """Complete deterministic episodes of one agent under one condition; leaves have a leading axis of 1."""
    params = condition.change(loaded.env.default_params())
    if condition.latent_swaps and "latent_swaps" not in loaded.scalars:
        raise BadInput(
            f"condition '{condition.name}' swaps parts of the latent, which the agent '{loaded.run.trainer}' cannot do",
            "set latent_swaps: 0 in the settings of the condition",
        )
    scalars = loaded.scalars | {"latent_swaps": jnp.asarray(float(condition.latent_swaps))}
    keys = episode_keys(LAYOUT_SEED, split, episodes)
    return _run((loaded.agent, loaded.env), loaded.state, scalars, params, keys)


def evaluated(loaded: Loaded, episodes: Episodes, facts: dict[str, float]) -> EvaluatedCheckpoint:
    """One checkpoint's episodes as a record."""
    values = {
        "return": episodes.returns,
        "cost": episodes.costs,
        "goals": episodes.goals,
        "length": episodes.lengths,
    } | {
        name: value
        for name, value in episodes.metrics.items()
        if name.startswith(("shadow/", "risk_penalty", "forward/"))
    }
    return EvaluatedCheckpoint(
        agent_steps=loaded.record.agent_steps,
        gradient_steps=loaded.record.gradient_steps,
        parameter_hash=loaded.record.parameter_hash,
        episodes={name: [float(number) for number in np.asarray(value)[0]] for name, value in values.items()},
        scalars=facts,
    )


@functools.cache
def _floor(env: Env, name: str) -> Callable[..., Episodes]:
    """Complete episodes of one scripted policy, compiled once for all conditions."""
    scripted = floors(env.spec)[name]

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        return scripted(step_key(LAYOUT_SEED, "floor", index), seen.observation), memory, {}

    return jax.jit(lambda keys, params: complete_episodes(env, policy, None, keys, params))


def floor_means(env: Env, condition: Condition, episodes: int) -> dict[str, dict[str, float]]:
    """What the scripted policies reach on the same layouts: means of return, cost and goals."""
    params = condition.change(env.default_params())
    found = {}
    for name in floors(env.spec):
        result = _floor(env, name)(episode_keys(LAYOUT_SEED, "test", episodes), params)
        means = {"return": result.returns, "cost": result.costs, "goals": result.goals}
        found[name] = {key: float(values.mean()) for key, values in means.items()}
    return found


class Evaluator:
    """Evaluates the checkpoints of one run; calibration and nominal signals are made once and reused."""

    def __init__(self, checkpoints: dict[str, Loaded], told: dict[str, dict[str, Any]], episodes: int) -> None:
        self.checkpoints, self.told, self.episodes = checkpoints, told, episodes
        self._nominal: dict[str, Episodes] = {}
        self._offsets: dict[str, float] = {}

    def evaluate(self, name: str) -> EvaluationRecord:
        """The record of one condition."""
        first = next(iter(self.checkpoints.values()))
        condition = find_condition(first.env, name, self.told.get(name, {}).get("settings") or None)
        made, places = {}, {}
        for which, loaded in self.checkpoints.items():
            episodes = run_episodes(loaded, condition, "test", self.episodes)
            made[which] = evaluated(loaded, episodes, self._facts(which, loaded, episodes))
            places[which] = episodes.trace["places"]
        return EvaluationRecord(
            condition=name,
            kind=self.told.get(name, {}).get("kind") or condition.kind,
            task=first.run.task,
            checkpoints=made,
            floors=floor_means(first.env, condition, self.episodes),
            trail=as_trail(places["final"]),
            code_version=__version__,
            code_commit=code_commit(),
        )

    def _facts(self, which: str, loaded: Loaded, episodes: Episodes) -> dict[str, float]:
        """Coverage of the certificate on these episodes, and how well each signal tells them from nominal ones.

        Nothing of an agent that certifies nothing, and no promise from too few episodes.
        """
        risk = getattr(loaded.agent.settings, "risk", None)
        if risk is None:
            return {}
        facts = {}
        offset = self._offset(which, loaded)
        if np.isfinite(offset):
            fresh = self._scores(episodes, risk.barrier_discount)
            facts = {
                "certificate/offset": offset,
                "certificate/claimed": 1 - risk.miscoverage,
                "certificate/coverage": certificate.coverage(fresh, offset),
            }
        nominal = self._nominal_episodes(which, loaded)
        for signal in SIGNALS:
            if signal in episodes.metrics:
                pair = (np.asarray(nominal.metrics[signal])[0], np.asarray(episodes.metrics[signal])[0])
                facts[f"auroc/{signal.removeprefix('shadow/')}"] = certificate.auroc(*pair)
        return facts

    def _nominal_episodes(self, which: str, loaded: Loaded) -> Episodes:
        """Validation episodes without any shift: what calibrates, and what shifted episodes are told from."""
        if which not in self._nominal:
            nominal = find_condition(loaded.env, "id")
            self._nominal[which] = run_episodes(loaded, nominal, "validation", self.episodes)
        return self._nominal[which]

    def _offset(self, which: str, loaded: Loaded) -> float:
        if which not in self._offsets:
            risk = loaded.agent.settings.risk
            calibration = self._scores(self._nominal_episodes(which, loaded), risk.barrier_discount)
            self._offsets[which] = certificate.offset(calibration, risk.miscoverage)
        return self._offsets[which]

    @staticmethod
    def _scores(episodes: Episodes, discount: float) -> np.ndarray:
        values, margins = np.asarray(episodes.trace["barrier"])[:, 0], np.asarray(episodes.margins)[0]
        # A value is noted before its step, a margin after it.
        return certificate.scores(values[1:], margins[:-1], discount, seed=LAYOUT_SEED)
