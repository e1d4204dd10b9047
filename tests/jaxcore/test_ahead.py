"""Programs that are compiled before they are called."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from dreamproof.jaxcore import ahead
from dreamproof.jaxcore.ahead import Program, can_compile_ahead, compiling, stand_in
from dreamproof.jaxcore.compile_events import announce_compiles


class Scaling:
    """A function that notes what it is traced for: only tracing runs its Python code."""

    def __init__(self) -> None:
        self.traced: list[tuple[tuple[int, ...], int]] = []

    def scaled(self, values: dict[str, Array], times: int) -> Array:
        """A static argument beside an array."""
        self.traced.append((values["x"].shape, times))
        return values["x"] * times


def vector(length: int) -> dict[str, Array]:
    return {"x": jnp.arange(float(length))}


def compiled_ahead(program: Program, *args: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        program.compile_ahead(pool, *args)


def test_a_program_compiled_ahead_is_neither_traced_nor_compiled_by_its_call() -> None:
    scaling, compiles = Scaling(), []
    program = Program(scaling.scaled)
    compiled_ahead(program, vector(3), 2)
    assert scaling.traced == [((3,), 2)] and program.has_begun(vector(3), 2)
    compiled_ahead(program, vector(3), 2)
    other = {"x": jnp.asarray([1.0, 5.0, 7.0])}
    with announce_compiles(lambda begun: None, lambda: compiles.append(1)):
        found = program(other, 2)
    np.testing.assert_array_equal(found, [2.0, 10.0, 14.0])
    assert scaling.traced == [((3,), 2)] and not compiles


@pytest.mark.parametrize(
    "args", [(vector(4), 2), (vector(3), 5), ({"x": jnp.arange(3)}, 2)], ids=["shape", "static value", "type"]
)
def test_other_arguments_are_compiled_when_they_come(args: tuple[dict[str, Array], int]) -> None:
    scaling = Scaling()
    program = Program(scaling.scaled)
    compiled_ahead(program, vector(3), 2)
    assert not program.has_begun(*args)
    values, times = args
    np.testing.assert_array_equal(program(*args), np.asarray(values["x"]) * times)
    assert len(scaling.traced) == 2


def test_arguments_may_be_donated() -> None:
    program = Program(lambda kept, given: kept + given, donate="all-except-first")
    compiled_ahead(program, jnp.ones(3), jnp.ones(3))
    given = jnp.full(3, 4.0)
    np.testing.assert_array_equal(program(jnp.ones(3), given), np.full(3, 5.0))
    assert given.is_deleted()


def test_the_call_waits_for_a_compile_that_has_begun_and_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(lambda x: x)

    def fail() -> None:
        raise MemoryError("out of memory while compiling")

    monkeypatch.setattr(program, "_jitted", SimpleNamespace(lower=lambda *args: SimpleNamespace(compile=fail)))
    compiled_ahead(program, jnp.ones(2))
    with pytest.raises(MemoryError, match="while compiling"):
        program(jnp.ones(2))


@pytest.mark.parametrize(
    "value", [jnp.ones(3), jnp.ones((2, 1), jnp.int32), jnp.full(2, 1.5), jnp.full((), 4), jnp.ones(2, jnp.bfloat16)]
)
def test_zeros_stand_for_an_array_that_is_not_computed_yet(value: Array) -> None:
    zeros = stand_in(eqx.filter_eval_shape(lambda: value))
    assert jax.typeof(zeros) == jax.typeof(value) and not zeros.any()
    program = Program(lambda x: x + 1)
    compiled_ahead(program, zeros)
    assert program.has_begun(value)
    np.testing.assert_array_equal(program(value), value + 1)


@pytest.mark.parametrize(("cores", "several"), [(1, False), (3, False), (4, True), (16, True)])
def test_a_machine_of_few_cores_compiles_one_program_after_the_other(
    cores: int, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "usable_cores", lambda: cores)
    assert can_compile_ahead() == several


def test_what_was_begun_is_finished() -> None:
    go = threading.Event()
    with compiling() as pool:
        waiting = pool.submit(go.wait, 60)
    assert not waiting.done()
    go.set()
    assert waiting.result()


FAILING = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from dreamproof.jaxcore.ahead import run_main
ThreadPoolExecutor(1).submit(time.sleep, 3600)
def main():
    if sys.argv[1] == "raises":
        raise ValueError("no such file")
    return int(sys.argv[1])
run_main(main)
"""


@pytest.mark.parametrize(("ending", "code"), [("3", 3), ("raises", 1)])
def test_a_process_that_failed_waits_for_no_compile(ending: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING, ending], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == code
    assert ("ValueError: no such file" in done.stderr) == (ending == "raises")
