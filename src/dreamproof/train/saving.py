"""Cells of a pack on disk: one checkpoint a cell, and a pack put together again from them."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.base.commit import code_name
from dreamproof.base.files import canonical_json, text_hash
from dreamproof.jaxcore.checkpoints import all_finite, fill, named_arrays, parameter_hash, read_arrays, write_arrays
from dreamproof.jaxcore.devices import library_versions
from dreamproof.runs.layout import CheckpointFolder
from dreamproof.runs.reader import checkpoint_fault
from dreamproof.runs.records import RunSettings
from dreamproof.runs.writer import RunWriter
from dreamproof.train.pack import Pack, PackState
from dreamproof.version import __version__

AGENT_FILE = "agent.npz"
RESUME_FILE = "resume.npz"


def cell_arrays(pack: Pack, state: PackState, index: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the agent of one replica is, and what is needed beside it to go on as if never stopped."""
    agent = named_arrays(jax.tree.map(lambda x: x[index], eqx.filter(state.agent, eqx.is_array)))
    envs = slice(index * pack.envs, (index + 1) * pack.envs)
    written = min(int(state.replay.written), state.replay.rows.shape[2])
    rest = {
        "memory": jax.tree.map(lambda x: x[index], state.memory),
        "env": jax.tree.map(lambda x: x[envs], state.env),
        "seen": jax.tree.map(lambda x: x[envs], state.seen),
        "action": state.action[index],
        "sums": jax.tree.map(lambda x: x[index], state.sums),
        # Cut on the host: every new length of a slice on the device would be compiled and kept.
        "rows": np.asarray(state.replay.rows[index])[:, :written],
        "written": state.replay.written,
        "env_steps": state.env_steps,
        "episode": state.episode,
    }
    return agent, named_arrays(rest)


def save_cell(writer: RunWriter, pack: Pack, state: PackState, index: int, facts: dict[str, Any]) -> CheckpointFolder:
    """Commits the checkpoint of one replica."""
    agent, rest = cell_arrays(pack, state, index)

    def write(folder: Path) -> None:
        write_arrays(folder / AGENT_FILE, agent)
        write_arrays(folder / RESUME_FILE, rest)

    finite = all_finite(agent) and not facts.pop("frozen")
    return writer.save(write, facts | {"parameter_hash": parameter_hash(agent), "finite": finite})


def checkpoint_facts(settings: RunSettings, agent_steps: int, gradient_steps: int, pack: list[str]) -> dict[str, Any]:
    """What the record of a checkpoint says beside its files."""
    return {
        "agent_steps": agent_steps,
        "gradient_steps": gradient_steps,
        "task": settings.task,
        "settings_hash": text_hash(canonical_json([settings.task, settings.trainer, settings.settings])),
        "code_version": __version__,
        "code_commit": code_name(),
        "pack": pack,
        "versions": library_versions(),
    }


def shared_checkpoints(writers: list[RunWriter]) -> list[CheckpointFolder] | None:
    """The good checkpoints at the newest step that all cells of a pack have; None to start from nothing."""
    found = [{folder.agent_steps for folder in writer.run.checkpoint_folders()} for writer in writers]
    for step in sorted(set.intersection(*found), reverse=True):
        folders = [writer.run.checkpoint(step) for writer in writers]
        if all(checkpoint_fault(folder) is None for folder in folders):
            return folders
    return None


def restore(pack: Pack, folders: list[CheckpointFolder]) -> PackState:
    """The pack as it was when these checkpoints were saved."""
    template = _template(pack)
    cells = []
    for index, folder in enumerate(folders):
        agent, rest = cell_arrays(pack, template, index)
        found = read_arrays(folder.root / RESUME_FILE)
        rows = found.pop("rows")
        rest.pop("rows")
        shaped = fill(rest, found, str(folder.root))
        shaped["rows"] = rows
        cells.append((fill(agent, read_arrays(folder.root / AGENT_FILE), str(folder.root)), shaped))
    return _join(template, cells)


def with_networks_of(state: PackState, index: int, folder: CheckpointFolder) -> PackState:
    """The pack with one replica's agent as it was in a checkpoint; counters, envs and replay stay."""
    arrays, static = eqx.partition(state.agent, eqx.is_array)
    now = jax.tree.map(lambda x: x[index], arrays)
    before = fill(now, read_arrays(folder.root / AGENT_FILE), str(folder.root))
    before = before._replace(gradient_steps=now.gradient_steps, finite=now.finite)
    changed = jax.tree.map(lambda all_replicas, one: all_replicas.at[index].set(one), arrays, before)
    return state._replace(agent=eqx.combine(changed, static))


Arrays = dict[str, np.ndarray]


def _template(pack: Pack) -> PackState:
    """Shapes and dtypes of a pack as arrays that hold one zero each: nothing is compiled, nothing put on the device."""

    def zeros(leaf: Any) -> Any:
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

    shaped: PackState = jax.tree.map(zeros, eqx.filter_eval_shape(pack.init))
    return shaped


def _join(template: PackState, cells: list[tuple[Arrays, Arrays]]) -> PackState:
    agents = {name: np.stack([agent[name] for agent, _ in cells]) for name in cells[0][0]}
    rest = [cell for _, cell in cells]

    def part(prefix: str, join: Any) -> dict[str, np.ndarray]:
        names = [name for name in rest[0] if name.startswith(prefix + "/")]
        return {name.removeprefix(prefix + "/"): join([cell[name] for cell in rest]) for name in names}

    rows = np.zeros(template.replay.rows.shape, np.float32)
    for index, cell in enumerate(rest):
        rows[index, :, : cell["rows"].shape[1]] = cell["rows"]
    joined = {
        "agent": fill(template.agent, agents, "agent"),
        "memory": fill(template.memory, part("memory", np.stack), "memory"),
        "env": fill(template.env, part("env", np.concatenate), "env"),
        "seen": fill(template.seen, part("seen", np.concatenate), "seen"),
        "sums": fill(template.sums, part("sums", np.stack), "sums"),
        "action": np.stack([cell["action"] for cell in rest]),
        "replay": template.replay._replace(rows=jnp.asarray(rows), written=jnp.asarray(rest[0]["written"])),
        "env_steps": rest[0]["env_steps"],
        "episode": rest[0]["episode"],
    }
    return jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array_like(x) else x, template._replace(**joined))
