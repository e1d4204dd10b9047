"""Replicas in one compile. The only place where the replica axis (always the leading one) exists.

Agents and envs know nothing of it: agents are vmapped, envs see one flat batch of R·N.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Agent
from dreamproof.envs.api import Env, Params
from dreamproof.envs.episodes import Episodes, episode_keys, shared_episodes
from dreamproof.jaxcore.keys import Split, layout_keys, noise_keys, step_key
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.train import Train as Settings
from dreamproof.train.replay import Replay, add, init_replay, sample


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


class Pack:
    """Compiled functions of one pack: what is static of R replicas."""

    def __init__(self, agent: Agent, env: Env, settings: Settings, seeds: list[int], scalars: dict, steps: int) -> None:
        self.agent, self.env, self.settings = agent, env, settings
        self.replicas, self.envs = len(seeds), settings.envs
        self.seeds = jnp.asarray(seeds, jnp.uint32)
        self.scalars = scalars
        self.total_env_steps = -(-steps // settings.envs)
        self.updates_per_step = round(settings.envs * settings.updates_per_agent_step)
        self.init = eqx.filter_jit(self._init)
        self.prefill = eqx.filter_jit(self._prefill, donate="all")
        self.chunk = eqx.filter_jit(self._chunk, donate="all")
        self.evaluate = eqx.filter_jit(self._evaluate)

    def flat(self, tree: Any) -> Any:
        """(R, N, ...) → (R·N, ...)."""
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)

    def split(self, tree: Any) -> Any:
        """(R·N, ...) → (R, N, ...)."""
        return jax.tree.map(lambda x: x.reshape(self.replicas, -1, *x.shape[1:]), tree)

    def _init(self) -> PackState:
        """Fresh agents, envs at the start of their first episode, one row in the replay."""
        keys = jax.vmap(lambda seed: step_key(seed, "parameters", 0))(self.seeds)
        agent = eqx.filter_vmap(self.agent.init_state)(keys)
        memory = eqx.filter_vmap(lambda _: self.agent.init_memory(self.envs))(keys)
        spec = self.env.spec
        per_episode = spec.episode_agent_steps + 1
        capacity = self.total_env_steps * per_episode // spec.episode_agent_steps + per_episode
        env, seen = self._reset(jnp.zeros((), jnp.int32))
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

    def _reset(self, episode: Array) -> tuple[Any, TimeStep]:
        keys = jax.vmap(lambda seed: layout_keys(seed, "train", self.envs, episode))(self.seeds)
        return self.env.reset(self.flat(keys), self.env.default_params())

    def _advance(self, state: PackState, action: Array) -> tuple[PackState, dict[str, Array]]:
        """One env step of every env with `action` (R, N, A); episodes end together and start anew."""
        keys = jax.vmap(lambda seed: noise_keys(seed, "train", self.envs, state.env_steps))(self.seeds)
        env, seen = self.env.step(self.flat(keys), state.env, self.flat(action), self.env.default_params())
        shaped = self.split(seen)
        replay = add(state.replay, shaped, action)
        gained = {"return": shaped.reward, "cost": shaped.cost, "goals": shaped.goals}
        sums = {name: state.sums[name] + gained[name] for name in gained}
        done = seen.truncated.all()
        episode = state.episode + done
        over = {f"episode/{name}": value.mean(1) for name, value in sums.items()} | {"episode/done": done}

        def anew(_: Any) -> Any:
            fresh_env, fresh_seen = self._reset(episode)
            rows = add(replay, self.split(fresh_seen), jnp.zeros_like(action))
            return fresh_env, fresh_seen, rows, jnp.zeros_like(action)

        env, seen, replay, last = jax.lax.cond(done, anew, lambda _: (env, seen, replay, action), None)
        sums = {name: value * (1 - done) for name, value in sums.items()}
        state = state._replace(
            env=env, seen=seen, replay=replay, action=last, episode=episode, sums=sums, env_steps=state.env_steps + 1
        )
        return state, over

    def _keys(self, stream: str, step: Array) -> Array:
        return jax.vmap(lambda seed: step_key(seed, stream, step))(self.seeds)

    def _prefill(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        """Random actions, no updates."""

        def step(state: PackState, _: None) -> tuple[PackState, dict[str, Array]]:
            shape = (self.envs, self.env.spec.action_size)
            keys = self._keys("prefill", state.env_steps)
            action = jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0))(keys)
            return self._advance(state, action)

        return jax.lax.scan(step, state, None, length=env_steps)

    def _chunk(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Array]]:
        """`env_steps` × (act, step, update); metrics are means over the chunk, episodes as they ended."""

        def step(state: PackState, _: None) -> tuple[PackState, Any]:
            state, acted = self._act(state)
            agent, learned = self._learn(state)
            return state._replace(agent=agent), acted | learned

        return jax.lax.scan(step, state, None, length=env_steps)

    def _act(self, state: PackState) -> tuple[PackState, dict[str, Array]]:
        def act(agent: Any, memory: Any, seen: TimeStep, key: Array, scalars: dict) -> Any:
            return self.agent.act(agent, memory, seen, key, scalars, explore=True)

        keys = self._keys("act", state.env_steps)
        decided = eqx.filter_vmap(act)(state.agent, state.memory, self.split(state.seen), keys, self.scalars)
        state, over = self._advance(state._replace(memory=decided.memory), decided.action)
        agent = eqx.filter_vmap(self.agent.calibrate)(state.agent, decided.metrics["risk/missed"])
        metrics = {name: value.mean(1) for name, value in decided.metrics.items()}
        return state._replace(agent=agent), over | metrics

    def _learn(self, state: PackState) -> tuple[Any, dict[str, Array]]:
        progress = state.env_steps / self.total_env_steps
        spec, shape = self.env.spec, (self.settings.window, self.settings.batch)

        def update(agent: Any, rows: Array, key: Array, scalars: dict) -> tuple[Any, dict[str, Array]]:
            sample_key, learn_key = jax.random.split(key)
            batch = sample(rows, state.replay.written, sample_key, shape, spec)
            changed, metrics = self.agent.update(agent, batch, learn_key, scalars, progress)
            # A replica that stopped being finite stays as it was; the others go on.
            held = jax.tree.map(lambda new, old: jnp.where(changed.finite, new, old), changed, agent)
            return held._replace(finite=changed.finite), metrics

        def one(agent: Any, index: Array) -> tuple[Any, dict[str, Array]]:
            keys = self._keys("learn", state.env_steps * self.updates_per_step + index)
            return eqx.filter_vmap(update)(agent, state.replay.rows, keys, self.scalars)

        agent, metrics = jax.lax.scan(one, state.agent, jnp.arange(self.updates_per_step))
        return agent, {name: value.mean(0) for name, value in metrics.items()}

    def _evaluate(self, agent: Any, params: Params, split: Split, episodes: int) -> Episodes:
        """Complete deterministic episodes of every replica on layouts shared by all of them; leaves (R, E)."""

        def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
            def act(agent: Any, memory: Any, seen: TimeStep, scalars: dict) -> Any:
                return self.agent.act(agent, memory, seen, step_key(0, "evaluate", index), scalars, explore=False)

            return tuple(eqx.filter_vmap(act)(agent, memory, seen, self.scalars))

        memory = eqx.filter_vmap(lambda _: self.agent.init_memory(episodes))(self.seeds)
        return shared_episodes(self.env, policy, memory, episode_keys(0, split, episodes), params)
