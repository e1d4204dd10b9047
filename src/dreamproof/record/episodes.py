"""Complete episodes of several players as one recording."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key
from dreamproof.jaxcore.recordings import Notes, Recording
from dreamproof.jaxcore.types import TimeStep
from dreamproof.record.players import Player

MOST_AT_ONCE = 128

Track = Callable[[list[int]], Iterable[int]]


class Played(NamedTuple):
    """N episodes: observations (T+1, N, O), actions (T, N, A), rewards and ends (T, N)."""

    observation: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array


def make_play(player: Player, envs: int) -> Callable[[Any, tuple[Array, Array, Array]], Played]:
    """A compiled function from acting state and keys (layouts (N,), noise (N,), actions) to N episodes."""
    env, params = player.env, player.env.default_params()

    @eqx.filter_jit
    def play(state: Any, keys: tuple[Array, Array, Array]) -> Played:
        layout, noise, acting = keys
        start, first = env.reset(layout, params)

        def step(carry: tuple[Any, TimeStep, Any], index: Array) -> tuple[Any, Any]:
            inner, seen, memory = carry
            action, memory = player.act(state, memory, seen, jax.random.fold_in(acting, index))
            step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise, index)
            inner, seen = env.step(step_keys, inner, action, params)
            shown = (seen.observation, action, seen.reward, seen.terminated, seen.truncated)
            return (inner, seen, memory), shown

        steps = jnp.arange(env.spec.episode_agent_steps)
        _, (later, *rest) = jax.lax.scan(step, (start, first, player.memory(envs)), steps)
        return Played(jnp.concatenate([first.observation[None], later]), *rest)

    return play


def record(players: list[Player], tasks: list[str], episodes: int, seed: int, track: Track) -> Recording:
    """So many episodes of every player, filled up to the widest task and the longest episode; `track` shows progress.

    Tasks have numbers in the order of their names.
    """
    specs = [next(player.own_spec for player in players if player.task == task) for task in tasks]
    notes = Notes(
        tuple(tasks), tuple(spec.observation_size for spec in specs), tuple(spec.action_size for spec in specs)
    )
    made = blank(len(players) * episodes, 1 + max(spec.episode_agent_steps for spec in specs), notes)
    at_once = min(episodes, MOST_AT_ONCE)
    batches = -(-episodes // at_once)
    plays: dict[int, Any] = {}
    for number in track(list(range(len(players) * batches))):
        index, batch = divmod(number, batches)
        player = players[index]
        if index not in plays:
            plays = {index: make_play(player, at_once)}
        # Every batch starts in layouts of its own.
        keys = (layout_keys(seed, "train", at_once, number), noise_keys(seed, "train", at_once, number))
        played = plays[index](player.state, (*keys, step_key(seed, "record", number)))
        first = index * episodes + batch * at_once
        last = min(first + at_once, (index + 1) * episodes)
        write_into(made, slice(first, last), jax.device_get(played), tasks.index(player.task))
    return made


def blank(episodes: int, rows: int, notes: Notes) -> Recording:
    """A recording of nothing, in the sizes of the widest task."""
    shape = (episodes, rows)
    seen, done = max(notes.observation_sizes), max(notes.action_sizes)
    return Recording(
        observation=np.zeros((*shape, seen), np.float32),
        action=np.zeros((*shape, done), np.float32),
        reward=np.zeros(shape, np.float32),
        task=np.zeros(episodes, np.int32),
        rows=np.zeros(episodes, np.int32),
        terminated=np.zeros(episodes, bool),
        notes=notes,
    )


def write_into(made: Recording, place: slice, played: Played, task: int) -> None:
    """Writes as many of the played episodes as `place` holds; what comes after an episode's end stays 0."""
    assert made.notes is not None
    count = place.stop - place.start
    seen, done = made.notes.observation_sizes[task], made.notes.action_sizes[task]
    over = (played.terminated | played.truncated)[:, :count]
    steps = over.argmax(0) + 1
    assert over.any(0).all(), "an episode that did not end within its time limit"
    kept = np.arange(len(over))[:, None] < steps
    action = np.clip(np.asarray(played.action)[:, :count, :done], -1.0, 1.0) * kept[..., None]
    made.observation[place, 0, :seen] = played.observation[0, :count, :seen]
    later = np.asarray(played.observation)[1:, :count, :seen] * kept[..., None]
    made.observation[place, 1 : len(over) + 1, :seen] = np.moveaxis(later, 0, 1)
    made.action[place, 1 : len(over) + 1, :done] = np.moveaxis(action, 0, 1)
    made.reward[place, 1 : len(over) + 1] = (played.reward[:, :count] * kept).T
    made.task[place], made.rows[place] = task, steps + 1
    made.terminated[place] = played.terminated[steps - 1, np.arange(count)]
