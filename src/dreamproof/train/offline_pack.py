"""Replicas that learn from recorded episodes in one compile: a pack whose envs are used for evaluation only.

One env step is one update: first of the model on all tasks, then of the behaviour on the cell's own tasks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Agent, RecordedSteps, SeparateUpdates, SeveralPolicies
from dreamproof.base.errors import BadInput
from dreamproof.data.library import EpisodeLibrary
from dreamproof.envs.api import Env
from dreamproof.envs.episodes import Episodes
from dreamproof.jaxcore.ahead import Program, compiling
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.cell import BehaviorDraws, CellSettings, OfflineCell
from dreamproof.train.offline import (
    WindowIndex,
    index_windows,
    sample_steps,
    sample_task_windows,
    sample_windows,
)
from dreamproof.train.pack import Pack, PackState, ReplicaInputs, freeze_if_nonfinite
from dreamproof.train.replay import Replay
from dreamproof.train.streaming import OfflineData, StreamedData, index_behavior, on_device
from dreamproof.train.world_models import WantedModel, check_world_model, with_world_model

Update = Callable[[ReplicaInputs, PackState], tuple[PackState, dict[str, Array]]]


class OfflinePack(Pack):
    """A pack of offline cells. Cells with policies of several tasks have no env and are not validated."""

    def __init__(self, agent: Agent, env: Env | None, cell: OfflineCell, inputs: ReplicaInputs, steps: int) -> None:
        assert isinstance(agent, SeparateUpdates), type(agent)
        self.agent = self.learner = agent
        self.has_env, self.inputs = env is not None, inputs
        if env is not None:
            self.env = env
        self.replicas, self.envs, self.total_env_steps = inputs.seeds.shape[0], 1, steps
        self.loop, self.data, self.draws = cell.train, cell.data, cell.draws
        self.model_updates = min(cell.model_updates, steps)
        self.later_stages = (self.model_updates,) if 0 < self.model_updates < steps else ()
        self.sources: dict[str, str] = {}
        self.data_returns: dict[str, tuple[float, float]] = {}
        self.stream: StreamedData | None = None
        self._compiled_init = eqx.filter_jit(self._init)
        self._compiled_model = Program(self._make_loop(self._model_update), donate="all-except-first")
        self._compiled_behavior = Program(self._make_loop(self._behavior_update), donate="all-except-first")
        self._compiled_evaluate = Program(self._evaluate)

    @property
    def prefilled_agent_steps(self) -> int:
        """None: an offline cell takes no steps."""
        return 0

    @property
    def facts(self) -> dict[str, Any]:
        """Hashes of the files it learned from, and the returns in them."""
        return {"sources": self.sources, "data_returns": self.data_returns}

    def validate(self, agent: Any, episodes: int) -> tuple[Episodes | None, Any]:
        """Episodes in the true environment of the cell's task, if it has one task."""
        return super().validate(agent, episodes) if self.has_env else (None, agent)

    def compile_ahead(self, state: PackState, first: int, env_steps: int, episodes: int) -> None:
        """Begins to compile the updates that are left, of model and behavior, and the validation."""
        with compiling() as pool:
            given = self._inputs_at(first, self.total_env_steps)[0], state, jnp.asarray(1, jnp.int32)
            if first < self.model_updates:
                self._compiled_model.compile_ahead(pool, *given)
            # A stream has no episodes of the behaviour before its first update.
            if self.model_updates < self.total_env_steps and (self.stream is None or first >= self.model_updates):
                self._compiled_behavior.compile_ahead(pool, *given)
            if self.has_env:
                self._validate_ahead(pool, state, episodes)

    def prepare(self, state: PackState) -> PackState:
        """Takes over the world model of another run, if one is set."""
        source = self.data.world_model
        if source is None:
            return state
        wanted = [WantedModel(self.data.tasks, self.learner.settings)]
        agents, self.sources[source] = with_world_model(state.agent, self.learner.model_fields, Path(source), wanted)
        return state._replace(agent=agents)

    def check_sources(self, sources: dict[str, str]) -> None:
        """Refuses to resume from a checkpoint that learned from other episodes, or started with another world model."""
        for name in self.data.files:
            if self.sources[name] not in sources.values():
                raise BadInput(
                    f"{name}: is not the file that this run started with (its hash differs)",
                    "restore that file, or train the cell in another study folder",
                )
        if self.data.world_model is not None:
            check_world_model(Path(self.data.world_model), sources)
        self.sources = dict(sources)

    def chunk(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Any]]:
        """`env_steps` updates; donates `state`. Metrics are (1, R), means over updates."""
        first, last = int(state.env_steps), int(state.env_steps) + env_steps
        turn = min(max(first, self.model_updates), last)
        state, metrics = self._updates(self._compiled_model, state, first, turn)
        state, more = self._updates(self._compiled_behavior, state, turn, last)
        return state, metrics | more

    def _updates(self, updates: Any, state: PackState, first: int, last: int) -> tuple[PackState, dict[str, Any]]:
        """All updates of one kind from the first to before the last, and their mean metrics (1, R)."""
        sums: dict[str, Array] = {}
        update = first
        while update < last:
            inputs, until = self._inputs_at(update, last)
            # The count is an argument: another count does not recompile.
            state, means = updates(inputs, state, jnp.asarray(until - update, jnp.int32))
            share = (until - update) / (last - first)
            sums = {name: value * share + sums.get(name, 0.0) for name, value in means.items()}
            update = until
        return state, {name: value[None] for name, value in sums.items()}

    def _inputs_at(self, update: int, last: int) -> tuple[ReplicaInputs, int]:
        """What an update learns from, and until which update the next ones do too."""
        if self.stream is None:
            return self.inputs, last
        return self.inputs._replace(recorded=self.stream.at(update)), min(last, self.stream.until(update))

    def _init(self, inputs: ReplicaInputs) -> PackState:
        agent = eqx.filter_vmap(self.agent.init_state)(self._keys(inputs, "parameters", jnp.zeros((), jnp.int32)))
        # A single value replaces everything that only acting needs, so that no array is empty.
        nothing, zero = jnp.zeros((self.replicas, 1)), jnp.zeros((), jnp.int32)
        return PackState(
            agent=agent,
            memory=(),
            env=(),
            seen=TimeStep(*[nothing] * 8),
            action=nothing,
            replay=Replay(nothing[:, None, :, None], zero),
            env_steps=zero,
            episode=zero,
            sums={},
        )

    @staticmethod
    def _make_loop(update: Update) -> Callable[[ReplicaInputs, PackState, Array], tuple[PackState, dict[str, Array]]]:
        """A function that makes `count` updates and returns the means of their metrics (R,)."""
        update = eqx.filter_jit(update)  # traced once, though its metrics are asked for before the loop

        def run(inputs: ReplicaInputs, state: PackState, count: Array) -> tuple[PackState, dict[str, Array]]:
            def one(_: Array, carry: tuple[PackState, dict[str, Array]]) -> tuple[PackState, dict[str, Array]]:
                state, metrics = update(inputs, carry[0])
                return state, jax.tree.map(jnp.add, carry[1], metrics)

            shapes = eqx.filter_eval_shape(update, inputs, state)[1]
            zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
            state, sums = jax.lax.fori_loop(0, count, one, (state, zero))
            return state, {name: value / count for name, value in sums.items()}

        return run

    def _model_update(self, inputs: ReplicaInputs, state: PackState) -> tuple[PackState, dict[str, Array]]:
        """One update of the model on windows of all tasks."""
        all_tasks = inputs.recorded.all_tasks
        last = self.total_env_steps if self.loop.fine_tune else self.model_updates

        def update(agent: Any, key: Array, scalars: dict) -> tuple[Any, dict[str, Array]]:
            return self._update_model(agent, key, inputs.recorded, all_tasks, (scalars, state.env_steps / last))

        return self._update_replicas(inputs, state, update)

    def _behavior_update(self, inputs: ReplicaInputs, state: PackState) -> tuple[PackState, dict[str, Array]]:
        """One update of the behaviour in imagination, and one of the model if it is fine-tuned."""
        recorded: OfflineData = inputs.recorded
        learned = state.env_steps - self.model_updates
        progress = learned / (self.total_env_steps - self.model_updates)

        def update(agent: Any, key: Array, scalars: dict) -> tuple[Any, dict[str, Array]]:
            draw_key, learn_key, model_key = jax.random.split(key, 3)
            steps = draw_steps(recorded, self.draws, draw_key, self.loop.window)
            if not isinstance(self.agent, SeveralPolicies):
                steps = jax.tree.map(lambda part: part[0], steps)
            agent, metrics = self.learner.update_behavior(agent, steps, learn_key, scalars, progress)
            if not self.loop.fine_tune:
                return agent, metrics
            whole = state.env_steps / self.total_env_steps
            agent, modelled = self._update_model(
                agent, model_key, recorded, recorded.own_tasks.windows, (scalars, whole)
            )
            return agent, metrics | modelled

        return self._update_replicas(inputs, state, update)

    def _update_model(
        self, agent: Any, key: Array, recorded: OfflineData, index: WindowIndex, now: tuple[dict, Array]
    ) -> tuple[Any, dict[str, Array]]:
        draw_key, learn_key = jax.random.split(key)
        shape = (self.loop.window, self.loop.batch)
        windows = jax.tree.map(lambda part: part[None], sample_windows(recorded.episodes, index, draw_key, shape))
        return self.learner.update_model(agent, windows, learn_key, *now)

    def _update_replicas(
        self, inputs: ReplicaInputs, state: PackState, update: Any
    ) -> tuple[PackState, dict[str, Array]]:
        """The state after one update of every replica; replicas with non-finite values do not change."""

        def one(agent: Any, key: Array, scalars: dict) -> tuple[Any, dict[str, Array]]:
            changed, metrics = update(agent, key, scalars)
            return freeze_if_nonfinite(changed, agent, changed.finite)._replace(finite=changed.finite), metrics

        keys = self._keys(inputs, "learn", state.env_steps)
        agent, metrics = eqx.filter_vmap(one)(state.agent, keys, inputs.scalars)
        return state._replace(agent=agent, env_steps=state.env_steps + 1), metrics


def draw_steps(recorded: OfflineData, draws: BehaviorDraws, key: Array, window: int) -> RecordedSteps:
    """What one update of the behaviours of K tasks learns from, (K, ...)."""
    episodes, own = recorded.episodes, recorded.own_tasks
    copied = own if recorded.copied is None else recorded.copied
    steps = sample_steps(episodes, copied if draws.copied_starts else own, key, draws.starts)
    if recorded.copied is not None or draws.cloned is not None:
        count = draws.starts if draws.cloned is None else draws.cloned
        steps = steps._replace(copied=sample_steps(episodes, copied, jax.random.fold_in(key, 1), count))
    if draws.windows:
        shape = (window, draws.windows)
        steps = steps._replace(windows=sample_task_windows(episodes, copied, jax.random.fold_in(key, 2), shape))
    return steps


def make_offline_pack(
    agent: Agent, env: Env | None, cell: CellSettings, seeds: list[int], scalars: dict, steps: int
) -> OfflinePack:
    """A pack of offline cells of the same tasks, with its episodes, or a share of them, on the device."""
    assert isinstance(cell, OfflineCell), type(cell)
    library, window = EpisodeLibrary(cell.data), cell.train.window
    own = [cell.data.number_of(task) for task in cell.data.policies] if env is None else [env.spec.task or 0]
    library.require(own, window)
    inputs = ReplicaInputs(jnp.asarray(seeds, jnp.uint32), scalars)
    pack = OfflinePack(agent, env, cell, inputs, steps)
    pack.sources |= library.hashes()
    pack.data_returns = library.returns()
    cloned = library.best(cell.data.cloning_share) if cell.data.cloning_share < 1 else None
    if cell.data.device_episodes is not None and cell.data.device_episodes < len(library):
        library.check()  # now, not when their turn comes
        pack.stream = StreamedData(library, own, window, pack.model_updates, cloned)
        return pack
    episodes = on_device(library, np.arange(len(library)))
    tasks = index_behavior(library.tasks, library.rows, (window, own), cloned)
    recorded = OfflineData(episodes, index_windows(episodes, window), *tasks)
    pack.inputs = inputs._replace(recorded=recorded)
    return pack
