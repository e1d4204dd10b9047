"""Cells on disk: each is its own part of a pack, and neither saving nor rolling back compiles leaf by leaf."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.data.arrays import read_arrays
from dreamproof.jaxcore.types import TimeStep
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.writer import RunWriter
from dreamproof.train.pack import PackState
from dreamproof.train.replay import Replay
from dreamproof.train.saving import save_cell, with_agent_from

REPLICAS, ENVS, CAPACITY, WRITTEN = 3, 2, 11, 5


class Networks(NamedTuple):
    """An agent that is nothing but numbers."""

    weights: list[jax.Array]
    gradient_steps: jax.Array
    finite: jax.Array


def counted(*shape: int) -> jax.Array:
    """As many different numbers as there are places, made on the host."""
    return jnp.asarray(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def pack_of(sizes: range) -> PackState:
    """A pack whose leaves have many shapes; an env has an array without numbers, as physics without contacts has."""
    return PackState(
        agent=Networks(
            [counted(REPLICAS, size) for size in sizes],
            jnp.asarray(np.array([40, 50, 60], np.int32)),
            jnp.asarray(np.array([True, True, True])),
        ),
        memory=counted(REPLICAS, ENVS, 13),
        env={"place": counted(REPLICAS * ENVS, 2), "contacts": counted(REPLICAS * ENVS, 0, 3)},
        seen=TimeStep(*[counted(REPLICAS * ENVS, 1)] * 8),
        action=counted(REPLICAS, ENVS, 1),
        replay=Replay(counted(REPLICAS, ENVS, CAPACITY, 4), jnp.asarray(np.int32(WRITTEN))),
        env_steps=jnp.asarray(np.int32(7)),
        episode=jnp.asarray(np.int32(1)),
        sums={"return": counted(REPLICAS, ENVS)},
    )


def saved(place: Path, state: PackState, index: int) -> CheckpointFolder:
    """The checkpoint of one replica."""
    facts: dict[str, Any] = {"agent_steps": 1, "gradient_steps": 1, "task": "t", "frozen": False}
    return save_cell(RunWriter(RunFolder(place / str(index))), state, index, facts)


@contextmanager
def compiled(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What is compiled meanwhile, known when it is over."""
    found: list[str] = []
    caplog.clear()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        yield found
    messages = [record.getMessage() for record in caplog.records]
    found += [text.split(" with ")[0] for text in messages if text.startswith("Compiling")]


def test_every_checkpoint_holds_the_part_of_its_replica_cut_out_by_one_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Sizes that no other test has, so that nothing is compiled yet.
    state = pack_of(range(117, 125))
    with compiled(caplog) as programs:
        folders = [saved(tmp_path, state, index).root for index in range(REPLICAS)]
    assert programs == ["Compiling jit(own_part)"]
    for index, folder in enumerate(folders):
        agent, rest = read_arrays(folder / "agent.npz"), read_arrays(folder / "resume.npz")
        envs = slice(index * ENVS, (index + 1) * ENVS)
        np.testing.assert_array_equal(agent["weights/7"], np.asarray(state.agent.weights[7])[index])
        assert agent["gradient_steps"] == [40, 50, 60][index]
        np.testing.assert_array_equal(rest["memory"], np.asarray(state.memory)[index])
        np.testing.assert_array_equal(rest["env/place"], np.asarray(state.env["place"])[envs])
        assert rest["env/contacts"].shape == (ENVS, 0, 3)
        np.testing.assert_array_equal(rest["seen/reward"], np.asarray(state.seen.reward)[envs])
        np.testing.assert_array_equal(rest["rows"], np.asarray(state.replay.rows)[index, :, :WRITTEN])
        assert (rest["written"], rest["env_steps"], rest["episode"]) == (WRITTEN, 7, 1)


def test_rolling_back_changes_the_networks_of_one_replica_by_one_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = pack_of(range(217, 225))
    folders = [saved(tmp_path, state, index) for index in range(REPLICAS)]
    changed = [counted(*weights.shape) + 1 for weights in state.agent.weights]
    later = jnp.asarray(np.array([70, 80, 90], np.int32))
    trained = state._replace(agent=state.agent._replace(weights=changed, gradient_steps=later))
    with compiled(caplog) as programs:
        back = [with_agent_from(trained, index, folder) for index, folder in enumerate(folders)]
    assert programs == ["Compiling jit(with_agent)"]
    for index, pack in enumerate(back):
        for was, now, found in zip(state.agent.weights, changed, pack.agent.weights, strict=True):
            expected = np.array(now)
            expected[index] = np.asarray(was)[index]
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(pack.agent.gradient_steps, [70, 80, 90])
        assert pack.replay is trained.replay
