"""Pytrees as plain files of named arrays: no pickle, no code, and a hash that names the parameters."""

import hashlib
from typing import Any

import equinox as eqx
import jax
import numpy as np

from dreamproof.base.errors import BrokenEvidence

AGENT_FILE = "agent.npz"
"""The part of a checkpoint that acting needs; the rest, for resuming, may stay on the training machine."""
OLD_NAMES = {
    "continue_head": "proceed",
    "log_std": "log_sigma",
    "risk_coef_offset": "risk_price_raised",
    "touch": "felt",
}
"""Parts of array names as checkpoints of earlier versions have them."""


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Every array of a pytree on the host, by its path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def fill(template: Any, arrays: dict[str, np.ndarray], source: str) -> Any:
    """`template` with its arrays replaced by the named ones; shapes and dtypes must agree."""
    dynamic, static = eqx.partition(template, eqx.is_array)
    leaves, structure = jax.tree_util.tree_flatten_with_path(dynamic)
    filled = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found = arrays.get(name, arrays.get(_old_name(name)))
        if found is None or found.shape != leaf.shape or found.dtype != leaf.dtype:
            seen = "is missing" if found is None else f"is {found.dtype}{found.shape}, not {leaf.dtype}{leaf.shape}"
            raise BrokenEvidence(
                f"{source}: the array '{name}' {seen}; the checkpoint is of other settings or of another version",
                "dreamproof verify STUDY",
            )
        filled.append(found)
    return eqx.combine(jax.tree_util.tree_unflatten(structure, filled), static)


def known_names(template: Any) -> set[str]:
    """Names under which `fill` looks for arrays."""
    names = set(named_arrays(template))
    return names | {_old_name(name) for name in names}


def _old_name(name: str) -> str:
    return "/".join(OLD_NAMES.get(part, part) for part in name.split("/"))


def parameter_hash(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def all_finite(arrays: dict[str, np.ndarray]) -> bool:
    """Whether every number in every array is finite."""
    return all(np.isfinite(array).all() for array in arrays.values() if np.issubdtype(array.dtype, np.floating))
