"""Checkpoints: one per cell of a pack, and a pack restored from them."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.base.code import own_code
from dreamproof.base.commit import code_name
from dreamproof.base.files import canonical_json, text_hash
from dreamproof.data.arrays import read_arrays, write_arrays
from dreamproof.jaxcore.ahead import stand_in
from dreamproof.jaxcore.checkpoints import (
    AGENT_FILE,
    all_finite,
    fill,
    named_arrays,
    parameter_hash,
)
from dreamproof.jaxcore.devices import library_versions
from dreamproof.runs.layout import CheckpointFolder
from dreamproof.runs.reader import checkpoint_fault
from dreamproof.runs.records import RunSettings
from dreamproof.runs.writer import RunWriter
from dreamproof.settings.resolved import Resolved, resolve, resolved_hash
from dreamproof.train.pack import PackState, TrainingPack, own_part, with_agent
from dreamproof.version import __version__

RESUME_FILE = "resume.npz"

# One program for all leaves and replicas: leaf by leaf, every shape would compile its own program, which keeps more
# than a megabyte of host memory.
_compiled_own_part = eqx.filter_jit(own_part)
_compiled_with_agent = eqx.filter_jit(with_agent)


def cell_arrays(cell: PackState) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Arrays of one replica's agent, and the other arrays that resuming needs."""
    written = min(int(cell.replay.written), cell.replay.rows.shape[1])
    rest = {
        "memory": cell.memory,
        "env": cell.env,
        "seen": cell.seen,
        "action": cell.action,
        "sums": cell.sums,
        # Sliced on the host: every new length of a slice on the device would be compiled and kept.
        "rows": np.asarray(cell.replay.rows)[:, :written],
        "written": cell.replay.written,
        "env_steps": cell.env_steps,
        "episode": cell.episode,
    }
    return named_arrays(cell.agent), named_arrays(rest)


def save_cell(writer: RunWriter, state: PackState, index: int, facts: dict[str, Any]) -> CheckpointFolder:
    """Saves the checkpoint of one replica."""
    agent, rest = cell_arrays(_compiled_own_part(state, np.asarray(index, np.int32)))

    def write(folder: Path) -> None:
        write_arrays(folder / AGENT_FILE, agent)
        write_arrays(folder / RESUME_FILE, rest)

    finite = all_finite(agent) and not facts.pop("frozen")
    return writer.save(write, facts | {"parameter_hash": parameter_hash(agent), "finite": finite})


def checkpoint_facts(settings: RunSettings, agent_steps: int, gradient_steps: int, pack: list[str]) -> dict[str, Any]:
    """Metadata of a checkpoint."""
    return {
        "agent_steps": agent_steps,
        "gradient_steps": gradient_steps,
        "task": settings.task,
        "settings_hash": text_hash(canonical_json([settings.task, settings.trainer, settings.settings])),
        "resolved_hash": resolved_hash(resolved_run(settings)),
        "code_hash": running_code(settings.task),
        "code_version": __version__,
        "code_commit": code_name(),
        "pack": pack,
        "versions": library_versions(),
    }


def resolved_run(settings: RunSettings) -> Resolved:
    """The resolved settings of a run in this version."""
    place = f"settings of {settings.arm}/{settings.seed}"
    return resolve(settings.trainer, settings.task, settings.agent_steps, settings.settings, place)


@functools.cache
def running_code(task: str) -> str:
    """The hash of the code that this process trains with, taken at the first call."""
    return own_code(task, Path.cwd()).hash


def shared_checkpoints(writers: list[RunWriter]) -> list[CheckpointFolder] | None:
    """Valid checkpoints at the newest step that all cells of a pack have; None if there is none."""
    found = [{folder.agent_steps for folder in writer.run.checkpoint_folders()} for writer in writers]
    for step in sorted(set.intersection(*found), reverse=True):
        folders = [writer.run.checkpoint(step) for writer in writers]
        if all(checkpoint_fault(folder) is None for folder in folders):
            return folders
    return None


def restore(pack: TrainingPack, folders: list[CheckpointFolder]) -> PackState:
    """The pack state of these checkpoints."""
    fresh = template(pack)
    cells = []
    for index, folder in enumerate(folders):
        agent, rest = cell_arrays(own_part(fresh, index))
        found = read_arrays(folder.root / RESUME_FILE)
        rows = found.pop("rows")
        rest.pop("rows")
        shaped = fill(rest, found, str(folder.root))
        shaped["rows"] = rows
        cells.append((fill(agent, read_arrays(folder.root / AGENT_FILE), str(folder.root)), shaped))
    return _join(fresh, cells)


def with_agent_from(state: PackState, index: int, folder: CheckpointFolder) -> PackState:
    """The pack with the agent of one replica from a checkpoint; counters, envs and replay do not change."""
    arrays = eqx.filter(state.agent, eqx.is_array)
    shapes = jax.tree.map(lambda x: stand_in(jax.ShapeDtypeStruct(x.shape[1:], x.dtype)), arrays)
    before = fill(shapes, read_arrays(folder.root / AGENT_FILE), str(folder.root))
    counters = {name: np.asarray(getattr(arrays, name))[index] for name in ("gradient_steps", "finite")}
    place = np.asarray(index, np.int32)
    return state._replace(agent=_compiled_with_agent(state.agent, place, before._replace(**counters)))


Arrays = dict[str, np.ndarray]


def template(pack: TrainingPack) -> PackState:
    """Shapes and types of a fresh state: nothing is compiled or put on the device."""

    def zeros(leaf: Any) -> Any:
        return stand_in(leaf) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

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
