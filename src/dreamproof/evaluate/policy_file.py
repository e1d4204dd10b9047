"""A trained policy as one small file: the arrays that acting needs, and the settings that rebuild its agent."""

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from dreamproof.agents.api import Calibrated
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.evaluate.calibration import with_offset
from dreamproof.evaluate.loading import Loaded, assemble
from dreamproof.jaxcore.checkpoints import named_arrays, parameter_hash
from dreamproof.jaxcore.types import TimeStep
from dreamproof.runs.records import CheckpointRecord, RunSettings

HEADER = "policy"
FORMAT = 1


def write_policy(loaded: Loaded, path: Path, half: bool = False) -> int:
    """Writes the policy file and returns its size in bytes; `half` rounds its arrays to float16."""
    arrays = {name: halved(array) if half else array for name, array in acting_arrays(loaded).items()}
    header: dict[str, Any] = {
        "format": FORMAT,
        "run": loaded.run.model_dump(mode="json"),
        "record": loaded.record.model_dump(mode="json"),
        "arrays_hash": parameter_hash(arrays),
    }
    if loaded.is_calibrated:
        assert isinstance(loaded.agent, Calibrated)
        header["certificate_offset"] = float(loaded.agent.certificate_offset(loaded.state))
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)
    members: dict[str, Any] = {name.replace("/", "|"): array for name, array in arrays.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **members | {HEADER: text})
    return path.stat().st_size


def read_policy(path: Path) -> Loaded:
    """The agent of a policy file; everything that only learning needs is zero.

    A file without the offset of an evaluation (of version 0.1, or of a cell that was not evaluated) has the offset of
    the last validation in training, and an evaluation of it calibrates it.
    """
    header, arrays = _content(path)
    if header.get("format") != FORMAT:
        raise BadInput(
            f"{path}: is of format {header.get('format')}, this version reads {FORMAT}", "install the newest version"
        )
    if parameter_hash(arrays) != header.get("arrays_hash"):
        raise BrokenEvidence(f"{path}: its arrays do not match their hash", "write it again: dreamproof export")
    run, record = RunSettings.model_validate(header["run"]), CheckpointRecord.model_validate(header["record"])
    wide = {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in arrays.items()}
    loaded, offset = assemble(run, record, wide, str(path), partial=True), header.get("certificate_offset")
    return loaded if offset is None else with_offset(loaded, offset)


def halved(array: np.ndarray) -> np.ndarray:
    """The array in float16; unchanged if it has no float32 or a value that float16 cannot hold."""
    if array.dtype != np.float32 or not (np.abs(array) < np.finfo(np.float16).max).all():
        return array
    return array.astype(np.float16)


def _content(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if path.is_file() and not zipfile.is_zipfile(path):
        raise BadInput(f"{path}: is no policy file", "dreamproof export STUDY FILE --policy ARM/SEED")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name.replace("|", "/"): file[name] for name in file.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(
            f"{path}: is no policy file ({error})", "dreamproof export STUDY FILE --policy ARM/SEED"
        ) from None
    return header, arrays


def acting_arrays(loaded: Loaded) -> dict[str, np.ndarray]:
    """The arrays of the learning state on which actions and their metrics depend, with or without exploration."""
    arrays, static = eqx.partition(loaded.state, eqx.is_array)
    memory, scalars = loaded.agent.init_memory(1), loaded.scalars | {"latent_swaps": jnp.zeros(())}

    def act(arrays: Any, explore: bool) -> Any:
        zeros, spec = jnp.zeros(1), loaded.env.spec
        seen = TimeStep(jnp.zeros((1, spec.observation_size)), zeros, zeros, zeros, zeros, zeros, zeros, zeros)
        state = eqx.combine(arrays, static)
        decided = loaded.agent.act(state, memory, seen, jax.random.key(0), scalars, explore=explore)
        return decided.action, eqx.filter(decided.memory, eqx.is_array), decided.metrics

    used = np.zeros(len(jax.tree.leaves(arrays)), bool)
    for explore in (False, True):
        jaxpr = jax.make_jaxpr(act, static_argnums=1)(arrays, explore).jaxpr
        used |= np.array(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1])
    names = list(named_arrays(arrays))
    return {
        name: np.asarray(leaf) for name, leaf, keep in zip(names, jax.tree.leaves(arrays), used, strict=True) if keep
    }
