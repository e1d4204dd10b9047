"""Several probes as one task, so that one pack trains seeds of all of them in one compile."""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.api import Env, Params, Spec, State, TimeStep
from dreamproof.envs.probes import PROBES, KnownReturns, ProbeEnv, ProbeParams


def way_from_random(returns: np.ndarray, known: KnownReturns) -> np.ndarray:
    """How much of the way from random actions (0) to the best (1) returns are."""
    return (returns - known.random_return) / (known.best_return - known.random_return)


@dataclass(frozen=True)
class ManyProbes(Env):
    """Several probes side by side: the first share of the envs plays the first probe, and so on.

    A pack whose replicas are a multiple of the probes then trains the same number of agents on each of them in one
    compile: first all of the first probe, then all of the second. Observations are filled up with zeros.
    """

    probes: tuple[ProbeEnv, ...] = tuple(make(episode_agent_steps=10) for make in PROBES.values())

    @cached_property
    def spec(self) -> Spec:
        """The widest observation; one action."""
        size = max(probe.spec.observation_size for probe in self.probes)
        length = self.probes[0].spec.episode_agent_steps
        return Spec("ManyProbes", size, 1, length, has_cost=True, has_margin=True, terminates=True)

    def default_params(self) -> ProbeParams:
        """Rewards as they are."""
        return self.probes[0].default_params()

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts every probe in every env; each env shows one of them."""
        return self._joined([probe.reset(keys, params) for probe in self.probes])

    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One step of every probe in every env."""
        pairs = zip(self.probes, state, strict=True)
        return self._joined([probe.step(keys, inner, action, params) for probe, inner in pairs])

    def _joined(self, results: list[tuple[State, TimeStep]]) -> tuple[State, TimeStep]:
        width, probes = self.spec.observation_size, len(self.probes)
        shown = [
            seen._replace(observation=jnp.pad(seen.observation, ((0, 0), (0, width - seen.observation.shape[1]))))
            for _, seen in results
        ]

        def shares(*rows: Array) -> Array:
            return jnp.concatenate([jnp.split(row, probes)[index] for index, row in enumerate(rows)])

        return tuple(state for state, _ in results), jax.tree.map(shares, *shown)
