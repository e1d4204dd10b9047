"""Replicas whose world models learn before the first epoch, from the steps that filled the replay."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Agent, SeparateUpdates
from dreamproof.envs.api import Env
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.train import EpochTrain
from dreamproof.train.pack import Pack, PackState, ReplicaInputs, freeze_if_nonfinite


class BootstrappedPack(Pack):
    """A pack that updates the model `bootstrap_updates` times after the prefill."""

    def __init__(
        self, agent: Agent, env: Env, settings: EpochTrain, seeds: list[int], scalars: dict[str, Any], steps: int
    ) -> None:
        assert isinstance(agent, SeparateUpdates), type(agent)
        super().__init__(agent, env, settings, seeds, scalars, steps)
        self.learner, self.calls = agent, settings.bootstrap_updates // settings.batches
        self._compiled_bootstrap = eqx.filter_jit(self._bootstrap, donate="all-except-first")

    def prepare(self, state: PackState) -> PackState:
        """Fills the replay, then trains the model on it; donates `state`."""
        state = super().prepare(state)
        for index in range(self.calls):
            state = self._compiled_bootstrap(self.inputs, state, jnp.asarray(index, jnp.int32))
        return state

    def _bootstrap(self, inputs: ReplicaInputs, state: PackState, index: Array) -> PackState:
        """One update of every model for each batch of an epoch."""

        def one(agent: Any, rows: Array, now: TimeStep, key: Array, scalars: dict) -> Any:
            sample_key, learn_key = jax.random.split(key)
            windows = self._sample_batch(rows, state.replay.written, now, sample_key).windows
            changed, _ = self.learner.update_model(agent, windows, learn_key, scalars, jnp.zeros(()))
            return freeze_if_nonfinite(changed, agent, changed.finite)._replace(finite=changed.finite)

        keys = self._keys(inputs, "bootstrap", index)
        agents = eqx.filter_vmap(one)(state.agent, state.replay.rows, self.split(state.seen), keys, inputs.scalars)
        return state._replace(agent=agents)
