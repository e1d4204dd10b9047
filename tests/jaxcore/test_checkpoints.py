"""Named arrays on disk: back as they were, hashed by content, never pickled."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BrokenEvidence
from dreamproof.jaxcore.checkpoints import all_finite, fill, named_arrays, parameter_hash, read_arrays, write_arrays


class Part(eqx.Module):
    """Arrays, a list of arrays and something static."""

    weight: jax.Array
    layers: list[jax.Array]
    name: str = eqx.field(static=True, default="part")


TREE: dict[str, Any] = {
    "part": Part(jnp.arange(6.0).reshape(2, 3), [jnp.ones(2), jnp.zeros((), jnp.int32)]),
    "finite": jnp.asarray(True),
}


def test_a_tree_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", named_arrays(TREE))
    empty = jax.tree.map(jnp.zeros_like, TREE)
    back = fill(empty, read_arrays(tmp_path / "a.npz"), "a.npz")
    assert back["part"].name == "part"
    jax.tree.map(np.testing.assert_array_equal, back, TREE)
    assert [leaf.dtype for leaf in jax.tree.leaves(back)] == [leaf.dtype for leaf in jax.tree.leaves(TREE)]


def test_names_say_the_place_of_an_array() -> None:
    assert set(named_arrays(TREE)) == {"part/weight", "part/layers/0", "part/layers/1", "finite"}


def test_a_missing_or_misshapen_array_is_refused_by_name() -> None:
    arrays = named_arrays(TREE)
    with pytest.raises(BrokenEvidence, match="'part/weight' is missing"):
        fill(TREE, {name: array for name, array in arrays.items() if name != "part/weight"}, "a.npz")
    with pytest.raises(BrokenEvidence, match=r"'part/weight' is float32\(3, 2\), not float32\(2, 3\)"):
        fill(TREE, arrays | {"part/weight": np.zeros((3, 2), np.float32)}, "a.npz")
    with pytest.raises(BrokenEvidence, match="float64"):
        fill(TREE, arrays | {"part/weight": np.zeros((2, 3))}, "a.npz")


def test_the_hash_depends_on_every_number_name_shape_and_type_but_not_on_order() -> None:
    arrays = {"a": np.arange(6.0), "b": np.zeros(2, np.float32)}
    same = parameter_hash(arrays)
    assert parameter_hash(dict(reversed(arrays.items()))) == same
    others = [
        {"a": arrays["a"] + [0, 0, 0, 0, 0, 1e-12], "b": arrays["b"]},
        {"a": arrays["a"].reshape(2, 3), "b": arrays["b"]},
        {"a": arrays["a"], "c": arrays["b"]},
        {"a": arrays["a"], "b": arrays["b"].view(np.int32)},
    ]
    assert len({same, *map(parameter_hash, others)}) == 5


def test_pickled_content_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", trap=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_arrays(tmp_path / "bad.npz")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_number_that_is_not_finite_is_found(bad: float) -> None:
    assert all_finite({"a": np.ones(3), "steps": np.array(3), "flag": np.array(True)})
    assert not all_finite({"a": np.ones(3), "b": np.array([[1.0, bad]])})
