"""Named arrays on disk: back as they were, hashed by content, never pickled."""

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BrokenEvidence
from dreamproof.data.arrays import read_arrays, write_arrays
from dreamproof.jaxcore.checkpoints import all_finite, fill, named_arrays, parameter_hash


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


def test_a_file_has_the_bytes_that_numpy_writes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {
        "long": draw.normal(size=(3, 20_000)),
        "cut": draw.normal(size=(4, 9_000, 3)).astype(np.float32)[:, :7_001],
        "turned": draw.normal(size=(200, 300)).T,
        "backwards": np.arange(40_000)[::-1],
        "one": np.array(3, np.int32),
        "flag": np.array(True),
        "none": np.zeros((0, 3)),
        "words": np.array(["some", "words"]),
    }
    write_arrays(tmp_path / "ours.npz", arrays)
    np.savez(tmp_path / "theirs.npz", **arrays)
    with zipfile.ZipFile(tmp_path / "ours.npz") as ours, zipfile.ZipFile(tmp_path / "theirs.npz") as theirs:
        assert ours.namelist() == theirs.namelist()
        assert [ours.read(name) for name in ours.namelist()] == [theirs.read(name) for name in theirs.namelist()]


def test_writing_copies_little_however_long_an_array_is(tmp_path: Path) -> None:
    rows = np.zeros((8, 100_000, 4), np.float32)[:, :99_999]
    write_arrays(tmp_path / "warm.npz", {"rows": rows})
    tracemalloc.start()
    write_arrays(tmp_path / "a.npz", {"rows": rows})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1e6 < rows.nbytes, f"{most / 1e6:.1f} MB"


def test_what_would_be_pickled_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_arrays(tmp_path / "a.npz", {"trap": np.array([{"a": 1}], dtype=object)})


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


def test_arrays_of_earlier_versions_are_found_under_their_old_names() -> None:
    saved = {"actor/log_sigma": np.ones(2, np.float32), "model/proceed/weight": np.full(3, 2.0, np.float32)}
    template = {
        "actor": {"log_std": np.zeros(2, np.float32)},
        "model": {"continue_head": {"weight": np.zeros(3, np.float32)}},
    }
    filled = fill(template, saved, "old checkpoint")
    np.testing.assert_array_equal(filled["actor"]["log_std"], saved["actor/log_sigma"])
    np.testing.assert_array_equal(filled["model"]["continue_head"]["weight"], saved["model/proceed/weight"])
