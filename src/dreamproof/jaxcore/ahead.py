"""Programs that are compiled in the background before they are called, several at the same time."""

import os
import sys
import traceback
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.jaxcore import usable_cores
from dreamproof.jaxcore.devices import COMPILE_THREADS

CORES_PER_COMPILE = 2


class Program:
    """A jitted function. For arguments of known shapes it can be compiled ahead of its first call."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        """`options` are those of `eqx.filter_jit`."""
        self.function = function
        self._jitted: Any = eqx.filter_jit(function, **options)
        self._ahead: dict[Hashable, Future[Any]] = {}

    def compile_ahead(self, pool: Executor, *args: Any) -> None:
        """Traces the function now and compiles it in `pool`; an error of the compiler is raised by the call."""
        if not self.has_begun(*args):
            self._ahead[_types(args)] = pool.submit(self._jitted.lower(*args).compile)

    def has_begun(self, *args: Any) -> bool:
        """Whether a compile for such arguments has begun in the background, or is over."""
        return _types(args) in self._ahead

    def __call__(self, *args: Any) -> Any:
        """Calls it; waits for a compile that has begun."""
        found = self._ahead.get(_types(args)) if self._ahead else None
        return self._jitted(*args) if found is None else found.result()(*args)


def can_compile_ahead() -> bool:
    """Whether this machine has the cores to compile two programs at the same time."""
    return usable_cores() >= 2 * CORES_PER_COMPILE


@contextmanager
def compiling() -> Iterator[Executor]:
    """A pool for compiles, which it finishes afterwards."""
    pool = ThreadPoolExecutor(COMPILE_THREADS, "compile")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False)


def run_main(main: Callable[[], int]) -> None:
    """Runs a program; after a failure its process ends at once, without waiting for compiles in the background."""
    try:
        code = main()
    except Exception:  # noqa: BLE001, an error of any kind must not keep the machine
        traceback.print_exc()
        code = 1
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def stand_in(part: jax.ShapeDtypeStruct) -> Array | np.ndarray:
    """Zeros that share one element, in the place of an array that is not computed yet; a weak type stays weak."""
    if part.weak_type:
        return jnp.full(part.shape, part.dtype.type(0).item())
    return np.broadcast_to(np.zeros((), part.dtype), part.shape)


def _types(args: Any) -> Hashable:
    """What decides whether a compiled program fits: structure, types and shapes of arrays, values of the rest."""
    leaves, structure = jax.tree.flatten(args)
    return structure, tuple(jax.typeof(leaf) if eqx.is_array(leaf) else leaf for leaf in leaves)
