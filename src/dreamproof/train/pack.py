"""Replicas in one compile. The only place where the replica axis (always the leading one) exists.

Agents are vmapped, envs see one flat batch of R·N.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Agent, Calibrated, EpochBatch, Reflective
from dreamproof.envs.api import Env, Params
from dreamproof.envs.episodes import Episodes, episode_keys, shared_episodes
from dreamproof.jaxcore.ahead import Program, compiling
from dreamproof.jaxcore.keys import Split, layout_keys, noise_keys, step_key
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.train import EpochTrain, OnlineSettings, StepTrain
from dreamproof.train.replay import Replay, add, init_replay, make_sampler, sample


class PackState(NamedTuple):
    """Everything that training changes: agents and memory (R, ...), envs flat (R·N, ...), replay, counters."""

    agent: Any
    memory: Any
    env: Any
    seen: TimeStep
    action: Array
    replay: Replay
    env_steps: Array
    episode: Array
    sums: dict[str, Array]


class ReplicaInputs(NamedTuple):
    """Inputs of the compiled programs besides the state: seeds (R,), traced settings (R,), recorded episodes if any."""

    seeds: Array
    scalars: dict[str, Any]
    recorded: Any = None


class TrainingPack(Protocol):
    """What the loop, saving and the preflight probe require of a pack.

    later_stages: env steps from which another compiled program is used.
    sources: hashes of the files and world models that it learns from, by name.
    """

    envs: int
    total_env_steps: int
    sources: dict[str, str]
    later_stages: tuple[int, ...]

    @property
    def prefilled_agent_steps(self) -> int:
        """Agent steps of a fresh run before its first chunk."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the record of every checkpoint says about the data it learned from."""

    def init(self) -> PackState:
        """Fresh agents."""

    def compile_ahead(self, state: PackState, first: int, env_steps: int, episodes: int) -> None:
        """Begins to compile chunks of `env_steps`, from env step `first` on, and the validation of `episodes`.

        Of `state` only shapes and types are used.
        """

    def prepare(self, state: PackState) -> PackState:
        """The state in which training starts; donates `state`."""

    def check_sources(self, sources: dict[str, str]) -> None:
        """Refuses to resume from a checkpoint that learned from other sources."""

    def chunk(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        """Trains for `env_steps`; donates `state`. Metrics are (T, R)."""

    def validate(self, agent: Any, episodes: int) -> tuple[Episodes | None, Any]:
        """`episodes` validation episodes per replica if the pack has an env, and the agents (R, ...) calibrated."""


class Pack:
    """A pack that collects its own experience: the static parts of R replicas and their compiled functions."""

    later_stages: tuple[int, ...] = ()

    def __init__(
        self, agent: Agent, env: Env, settings: OnlineSettings, seeds: list[int], scalars: dict, steps: int
    ) -> None:
        self.agent, self.env, self.settings = agent, env, settings
        self.sources: dict[str, str] = {}
        self.replicas, self.envs = len(seeds), settings.envs
        self.inputs = ReplicaInputs(jnp.asarray(seeds, jnp.uint32), scalars)
        self.total_env_steps = -(-steps // settings.envs)
        self.epoch_env_steps = settings.epoch_env_steps if isinstance(settings, EpochTrain) else None
        often = settings.updates_per_agent_step if isinstance(settings, StepTrain) else 1 / settings.envs
        self.updates_per_step = round(settings.envs * often)
        self.staggered = isinstance(settings, EpochTrain) and settings.staggered
        # Inputs are arguments, not constants: packs that differ only in them share compiled programs.
        self._compiled_init = eqx.filter_jit(self._init)
        self._compiled_prefill = eqx.filter_jit(self._prefill, donate="all-except-first")
        self._compiled_chunk = Program(self._chunk, donate="all-except-first")
        self._compiled_epoch = Program(self._epoch, donate="all-except-first")
        self._compiled_evaluate = Program(self._evaluate)
        self._compiled_calibrate = eqx.filter_jit(self._calibrate)

    @property
    def prefilled_agent_steps(self) -> int:
        """Whole steps of all envs."""
        return -(-self.settings.prefill_agent_steps // self.envs) * self.envs

    @property
    def facts(self) -> dict[str, Any]:
        """Hashes of the files it learned from."""
        return {"sources": self.sources}

    def init(self) -> PackState:
        """Fresh agents, envs at the start of their first episode, one row in the replay."""
        return self._compiled_init(self.inputs)

    def compile_ahead(self, state: PackState, first: int, env_steps: int, episodes: int) -> None:
        """Begins to compile what training calls after the prefill: on a GPU each program takes a minute or more."""
        with compiling() as pool:
            if self.epoch_env_steps is None:
                self._compiled_chunk.compile_ahead(pool, self.inputs, state, env_steps)
            else:
                self._compiled_epoch.compile_ahead(pool, self.inputs, state)
            self._validate_ahead(pool, state, episodes)

    def _validate_ahead(self, pool: Executor, state: PackState, episodes: int) -> None:
        keys = episode_keys(0, "validation", episodes)
        self._compiled_evaluate.compile_ahead(pool, self.inputs, state.agent, self.env.default_params(), keys)

    def prepare(self, state: PackState) -> PackState:
        """Fills the replay; donates `state`."""
        return self.prefill(state, self.prefilled_agent_steps // self.envs)[0]

    def check_sources(self, sources: dict[str, str]) -> None:
        """Accepts any checkpoint: experience from envs has no source files."""
        self.sources = dict(sources)

    def prefill(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        """`env_steps` without updates; donates `state`."""
        return self._compiled_prefill(self.inputs, state, env_steps)

    def chunk(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        """`env_steps` × (act, step, update), or the whole epochs that cover them; donates `state`.

        Metrics are (T, R). `episode/done` counts the episodes that ended in a step; other episode metrics are their
        means.
        """
        if self.epoch_env_steps is None:
            return self._compiled_chunk(self.inputs, state, env_steps)
        rows = []
        for _ in range(-(-env_steps // self.epoch_env_steps)):
            state, metrics = self._compiled_epoch(self.inputs, state)
            rows.append(metrics)
        return state, {name: jnp.concatenate([row[name] for row in rows]) for name in rows[0]}

    def evaluate(self, agent: Any, params: Params, split: Split, episodes: int) -> Episodes:
        """Complete deterministic episodes of every replica on shared layouts; leaves (R, E)."""
        return self._compiled_evaluate(self.inputs, agent, params, episode_keys(0, split, episodes))

    def validate(self, agent: Any, episodes: int) -> tuple[Episodes | None, Any]:
        """`episodes` on validation layouts, and the agents (R, ...) after calibration on as many other layouts.

        Calibration comes first: its offset changes what an agent does, so it is the calibrated agent that is validated.
        """
        params = self.env.default_params()
        if isinstance(self.agent, Calibrated):
            agent = self._compiled_calibrate(agent, self.evaluate(agent, params, "calibration", episodes))
        return self.evaluate(agent, params, "validation", episodes), agent

    def flat(self, tree: Any) -> Any:
        """(R, N, ...) → (R·N, ...)."""
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)

    def split(self, tree: Any) -> Any:
        """(R·N, ...) → (R, N, ...)."""
        return jax.tree.map(lambda x: x.reshape(self.replicas, -1, *x.shape[1:]), tree)

    def _init(self, inputs: ReplicaInputs) -> PackState:
        keys = self._keys(inputs, "parameters", jnp.zeros((), jnp.int32))
        agent = eqx.filter_vmap(self.agent.init_state)(keys)
        memory = eqx.filter_vmap(lambda _: self.agent.init_memory(self.envs))(keys)
        spec = self.env.spec
        per_episode = spec.episode_agent_steps + 1
        capacity = self.total_env_steps * per_episode // spec.episode_agent_steps + per_episode
        if self.settings.replay_agent_steps is not None:
            capacity = max(self.settings.window, min(capacity, self.settings.replay_agent_steps // self.envs))
        env, seen = self._reset(inputs, jnp.zeros((), jnp.int32))
        action = jnp.zeros((self.replicas, self.envs, spec.action_size))
        zero = jnp.zeros((self.replicas, self.envs))
        state = PackState(
            agent=agent,
            memory=memory,
            env=env,
            seen=seen,
            action=action,
            replay=init_replay(spec, self.replicas, self.envs, capacity),
            env_steps=jnp.zeros((), jnp.int32),
            episode=jnp.zeros((), jnp.int32),
            sums={"return": zero, "cost": zero, "goals": zero},
        )
        return state._replace(replay=add(state.replay, self.split(seen), action))

    def _keys(self, inputs: ReplicaInputs, stream: str, step: Array) -> Array:
        return jax.vmap(lambda seed: step_key(seed, stream, step))(inputs.seeds)

    def _reset(self, inputs: ReplicaInputs, episode: Array) -> tuple[Any, TimeStep]:
        keys = jax.vmap(lambda seed: layout_keys(seed, "train", self.envs, episode))(inputs.seeds)
        return self.env.reset(self.flat(keys), self._params(inputs, episode))

    def _params(self, inputs: ReplicaInputs, episode: Array) -> Params:
        """Parameters of training episodes: the task's own, or randomised ones for every env and episode."""
        params = self.env.default_params()
        if "randomise" not in inputs.scalars:
            return params
        keys = self._keys(inputs, "randomise", episode)
        drawn = jax.vmap(lambda key, spreads: draw_factors(key, spreads, self.envs))(keys, inputs.scalars["randomise"])
        return self.env.vary(params, self.flat(drawn))

    def _advance(self, inputs: ReplicaInputs, state: PackState, action: Array) -> tuple[PackState, dict[str, Array]]:
        """One step of every env with `action` (R, N, A); ended episodes restart."""
        keys = jax.vmap(lambda seed: noise_keys(seed, "train", self.envs, state.env_steps))(inputs.seeds)
        params = self._params(inputs, state.episode)
        env, seen = self.env.step(self.flat(keys), state.env, self.flat(action), params)
        separate = self.env.spec.terminates or self.staggered
        cut = self._cut(state.env_steps + 1)
        if separate:
            seen = seen._replace(truncated=seen.truncated | cut)
            env, seen, action = self._restart(inputs, state, (env, seen, action))
        shaped = self.split(seen)
        # The model learns what actions do when they take effect; the filters of the belief find how late that is.
        learned = self.split(self.env.executed(env)) if "randomise" in inputs.scalars else action
        replay = add(state.replay, shaped, learned)
        gained = {"return": shaped.reward, "cost": shaped.cost, "goals": shaped.goals}
        sums = {name: state.sums[name] + gained[name] for name in gained}
        state = state._replace(env=env, seen=seen, replay=replay, action=action, env_steps=state.env_steps + 1)
        if separate:
            ended = shaped.terminated | shaped.truncated
        else:
            state, ended = self._restart_together(inputs, state)
        whole = ended & ~self.split(cut)
        count = whole.sum(1)
        over = {f"episode/{name}": (value * whole).sum(1) / jnp.maximum(1, count) for name, value in sums.items()}
        sums = {name: value * (1 - ended) for name, value in sums.items()}
        return state._replace(sums=sums), over | {"episode/done": count}

    def _cut(self, env_step: Array) -> Array:
        """Envs (R·N,) whose first episode is truncated here: once each, evenly spread over its length."""
        ends = (1 + jnp.arange(self.envs)) * self.env.spec.episode_agent_steps // self.envs
        # An episode that ends here anyway is not truncated.
        cut = self.staggered & (ends == env_step) & (ends < self.env.spec.episode_agent_steps)
        return jnp.tile(cut, self.replicas)

    def _restart(
        self, inputs: ReplicaInputs, state: PackState, moved: tuple[Any, TimeStep, Array]
    ) -> tuple[Any, TimeStep, Array]:
        """Replaces the step of envs whose episode had ended by the first observation of a new one.

        The last and the first observation are then two consecutive rows of the replay, one per step, in every env.
        """
        over = state.seen.terminated | state.seen.truncated

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(over.reshape(over.shape + (1,) * (old.ndim - 1)), new, old)

        def restarted(_: None) -> tuple[Any, TimeStep]:
            # An env starts at most one episode per step, so the step is a unique episode number.
            fresh = self._reset(inputs, state.env_steps + 1)
            return jax.tree.map(choose, fresh, moved[:2])

        env, seen = jax.lax.cond(over.any(), restarted, lambda _: moved[:2], None)
        return env, seen, moved[2] * (1 - self.split(over))[..., None]

    def _restart_together(self, inputs: ReplicaInputs, state: PackState) -> tuple[PackState, Array]:
        """Episodes of equal length end and restart in the same step; also returns which ended (R, N)."""
        done = state.seen.truncated.all()
        episode = state.episode + done

        def restarted(_: None) -> tuple[Any, TimeStep, Replay, Array]:
            env, seen = self._reset(inputs, episode)
            action = jnp.zeros_like(state.action)
            return env, seen, add(state.replay, self.split(seen), action), action

        kept = (state.env, state.seen, state.replay, state.action)
        env, seen, replay, action = jax.lax.cond(done, restarted, lambda _: kept, None)
        state = state._replace(env=env, seen=seen, replay=replay, action=action, episode=episode)
        return state, jnp.broadcast_to(done, (self.replicas, self.envs))

    def _prefill(self, inputs: ReplicaInputs, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        by_policy = isinstance(self.settings, EpochTrain) and self.settings.prefill_actions == "policy"

        def step(state: PackState, _: None) -> tuple[PackState, dict[str, Array]]:
            if by_policy:
                return self._act(inputs, state)
            shape = (self.envs, self.env.spec.action_size)
            keys = self._keys(inputs, "prefill", state.env_steps)
            action = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0))(keys)
            return self._advance(inputs, state, action)

        return scan_with_metrics(step, state, None, env_steps)

    def _chunk(self, inputs: ReplicaInputs, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        def step(state: PackState, _: None) -> tuple[PackState, Any]:
            state, acted = self._act(inputs, state)
            agent, learned = self._learn(inputs, state)
            return state._replace(agent=agent), acted | learned

        return scan_with_metrics(step, state, None, env_steps)

    def _epoch(self, inputs: ReplicaInputs, state: PackState) -> tuple[PackState, dict[str, Array]]:
        def step(state: PackState, _: None) -> tuple[PackState, Any]:
            return self._act(inputs, state)

        state, acted = scan_with_metrics(step, state, None, self.epoch_env_steps)
        agent, learned = self._learn(inputs, state)
        return state._replace(agent=agent), acted | {name: value[None] for name, value in learned.items()}

    def _act(self, inputs: ReplicaInputs, state: PackState) -> tuple[PackState, dict[str, Array]]:
        def act(agent: Any, memory: Any, seen: TimeStep, key: Array, scalars: dict) -> Any:
            return self.agent.act(agent, memory, seen, key, scalars, explore=True)

        keys = self._keys(inputs, "act", state.env_steps)
        decided = eqx.filter_vmap(act)(state.agent, state.memory, self.split(state.seen), keys, inputs.scalars)
        state, over = self._advance(inputs, state._replace(memory=decided.memory), decided.action)

        if isinstance(self.agent, Reflective):
            shown = decided.metrics | {name: over[name] for name in ("episode/done", "episode/cost")}
            agent = eqx.filter_vmap(self._reflected)(state.agent, shown, inputs.scalars)
            state = state._replace(agent=agent)
        return state, over | {name: value.mean(1) for name, value in decided.metrics.items()}

    def _reflected(self, agent: Any, shown: dict[str, Array], scalars: dict[str, Any]) -> Any:
        assert isinstance(self.agent, Reflective)
        return freeze_if_nonfinite(self.agent.reflect(agent, shown, scalars), agent, agent.finite)

    def _learn(self, inputs: ReplicaInputs, state: PackState) -> tuple[Any, dict[str, Array]]:
        progress = state.env_steps / self.total_env_steps

        def update(agent: Any, rows: Array, now: TimeStep, key: Array, scalars: dict) -> tuple[Any, dict[str, Array]]:
            sample_key, learn_key = jax.random.split(key)
            batch = self._sample_batch(rows, state.replay.written, now, sample_key)
            return self.agent.update(agent, batch, learn_key, scalars, progress)

        def one(agent: Any, index: Array) -> tuple[Any, dict[str, Array]]:
            keys = self._keys(inputs, "learn", state.env_steps * self.updates_per_step + index)
            return eqx.filter_vmap(update)(agent, state.replay.rows, self.split(state.seen), keys, inputs.scalars)

        changed, metrics = scan_with_metrics(one, state.agent, jnp.arange(self.updates_per_step))
        # Once after all updates of a step: selecting between two whole agents costs about as much as Adam.
        agent = eqx.filter_vmap(_freeze_if_nonfinite)(changed, state.agent)
        return agent, {name: value.mean(0) for name, value in metrics.items()}

    def _sample_batch(self, rows: Array, written: Array, now: TimeStep, key: Array) -> Any:
        """Data of one update of one replica: a Batch, or an EpochBatch."""
        shape, spec = (self.settings.window, self.settings.batch), self.env.spec
        if not isinstance(self.settings, EpochTrain):
            return sample(rows, written, key, shape, spec)
        keys = jax.random.split(key, self.settings.batches)
        draw = make_sampler(rows, written, shape, spec, self.settings.replay_sampling)
        return EpochBatch(jax.vmap(draw)(keys), now)

    def _calibrate(self, agent: Any, played: Episodes) -> Any:
        """Agents calibrated on episodes; frozen replicas do not change."""
        assert isinstance(self.agent, Calibrated)
        changed = eqx.filter_vmap(self.agent.calibrate)(agent, jnp.moveaxis(played.trace, 1, 0), played.margins)
        return eqx.filter_vmap(lambda new, old: freeze_if_nonfinite(new, old, old.finite))(changed, agent)

    def _evaluate(self, inputs: ReplicaInputs, agent: Any, params: Params, keys: tuple[Array, Array]) -> Episodes:
        def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
            def act(agent: Any, memory: Any, seen: TimeStep, scalars: dict) -> Any:
                return self.agent.act(agent, memory, seen, step_key(0, "evaluate", index), scalars, explore=False)

            return tuple(eqx.filter_vmap(act)(agent, memory, seen, inputs.scalars))

        memory = eqx.filter_vmap(lambda _: self.agent.init_memory(len(keys[0])))(inputs.seeds)
        trace = _barrier if isinstance(self.agent, Calibrated) else None
        return shared_episodes(self.env, policy, memory, keys, params, trace)


def _barrier(state: Any, seen: TimeStep, memory: Any) -> Array:
    """Value of the certificate at a decision, (R, E)."""
    del state, seen
    barrier: Array = memory.barrier
    return barrier


def draw_factors(key: Array, spreads: dict[str, Array], envs: int) -> dict[str, Array]:
    """Log-uniform factors (N,) between 1/spread and spread, and a delay in whole agent steps."""
    names = ("mass", "damping", "force")
    uniforms = jax.random.uniform(key, (len(names) + 1, envs))
    factors = {name: spreads[f"{name}_spread"] ** (2 * uniforms[row] - 1) for row, name in enumerate(names)}
    delay = jnp.floor(uniforms[-1] * (spreads["max_delay"] + 1)).astype(jnp.int32)
    return factors | {"delay": delay}


def scan_with_metrics(
    step: Callable[[Any, Any], tuple[Any, dict[str, Array]]], first: Any, xs: Any, length: int | None = None
) -> tuple[Any, dict[str, Array]]:
    """jax.lax.scan of a step whose output is metrics, (R,) each: one array in the loop, so one write per step."""
    names: list[str] = []

    def one(carry: Any, x: Any) -> tuple[Any, Array]:
        carry, metrics = step(carry, x)
        names[:] = sorted(metrics)
        return carry, jnp.stack([metrics[name].astype(jnp.float32) for name in names])

    last, rows = jax.lax.scan(one, first, xs, length=length)
    return last, {name: rows[:, index] for index, name in enumerate(names)}


def own_part(state: PackState, index: Any) -> PackState:
    """The part of one replica, without the replica axis: its envs are (N, ...), counters are shared."""
    replicas = len(state.action)

    def own(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[index], eqx.filter(tree, eqx.is_array))

    def own_envs(tree: Any) -> Any:
        # The number of envs is explicit: physics without contacts has arrays of size 0.
        return jax.tree.map(lambda x: x.reshape(replicas, len(x) // replicas, *x.shape[1:])[index], tree)

    return state._replace(
        agent=own(state.agent),
        memory=own(state.memory),
        env=own_envs(state.env),
        seen=own_envs(state.seen),
        action=state.action[index],
        replay=state.replay._replace(rows=state.replay.rows[index]),
        sums=own(state.sums),
    )


def with_agent(agents: Any, index: Any, agent: Any) -> Any:
    """The agents of a pack with the agent of one replica replaced."""
    arrays, static = eqx.partition(agents, eqx.is_array)
    changed = jax.tree.map(lambda all_replicas, one: all_replicas.at[index].set(one), arrays, agent)
    return eqx.combine(changed, static)


def _freeze_if_nonfinite(changed: Any, before: Any) -> Any:
    return freeze_if_nonfinite(changed, before, changed.finite)._replace(finite=changed.finite)


def freeze_if_nonfinite(changed: Any, before: Any, finite: Array) -> Any:
    """`changed` for finite replicas; replicas with non-finite values keep the state `before`."""
    return jax.tree.map(lambda new, old: jnp.where(finite, new, old), changed, before)
