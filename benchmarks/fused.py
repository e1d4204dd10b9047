"""Microseconds of the GPU's kernels behind a product, by how their work is cut: `python -m benchmarks.fused`.

Prints each kernel's fastest cuts and what the one in the code takes; needs a GPU.
"""

import argparse
import functools
import itertools
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.pallas import next_power_of_2

from dreamproof.nn import fused
from dreamproof.nn.deferred import BufferIndex, LayerGradients
from dreamproof.nn.normed import EPSILON

REPEATS = 12
EVALUATIONS = 8
"""For which there is room where calls note something."""
CUTS = {
    "rows": (1, 2, 4, 8),
    "values": (4, 8, 16, 32),
    "PROGRAMS": (132, 264, 528, 1056),
}
Cuts = tuple[tuple[str, ...], tuple[int, ...]]
KERNELS: dict[str, Cuts] = {
    "output": (("rows", "values"), (1024, 16_384)),
    "recorded_output": (("rows", "values"), (1024,)),
    "gradient": (("rows", "values"), (1024,)),
    "recorded_gradient": (("rows", "values"), (1024,)),
    "gradient_and_sums": (("rows", "values", "PROGRAMS"), (16_384,)),
}
"""What each kernel is cut by, and for how many rows it is timed."""


class Timed(NamedTuple):
    """One kernel, ready to run."""

    name: str
    rows: int
    cut: tuple[int, ...]
    lowered: Any
    given: tuple[Any, ...]


def layer(rows: int, features: int) -> tuple[Array, Array, Array, Array]:
    """Products, affine parameters (3, F), what arrives, and a record of many such, in bfloat16."""
    keys = jax.random.split(jax.random.key(0), 6)
    y, cotangent = (jax.random.normal(key, (rows, features)).astype(jnp.bfloat16) for key in keys[:2])
    affine = jax.random.normal(keys[2], (len(fused.LAYER_NORM), features))
    note = jax.random.normal(keys[5], (EVALUATIONS, rows, features)).astype(jnp.bfloat16)
    return y, affine, cotangent, note


def call(name: str, y: Array, affine: Array, cotangent: Array, note: Array) -> Any:
    """One kernel; what it notes is written into memory that is made for it."""
    place = BufferIndex(jnp.asarray(3), 1)
    if name == "output":
        return fused.output(y, affine, EPSILON)
    if name == "recorded_output":
        return fused.recorded_output(y, affine, EPSILON, (jnp.zeros_like(note), jnp.ones_like(note)), place)
    if name == "recorded_gradient":
        sums = jnp.zeros((fused.partial_sums(*y.shape), *affine.shape))
        return fused.recorded_gradient(
            note, affine, cotangent, EPSILON, LayerGradients(jnp.zeros_like(note), sums), place
        )
    return {"gradient": fused.gradient, "gradient_and_sums": fused.gradient_and_sums}[name](
        y, affine, cotangent, EPSILON
    )


def own_cut(name: str, parts: tuple[str, ...], rows: int, features: int) -> tuple[int, ...]:
    """How the code cuts this kernel."""
    cut = fused.cut(rows, next_power_of_2(features), has_records=name == "recorded_gradient")
    return (*cut, fused.PROGRAMS)[: len(parts)]


def lowered(chosen: dict[str, Cuts], features: int) -> Iterator[Timed]:
    """These kernels with all cuts, the code's own among them."""
    for name, (parts, sizes) in chosen.items():
        for rows in sizes:
            given, own = layer(rows, features), own_cut(name, parts, rows, features)
            cuts = itertools.product(*(sorted({*CUTS[part], mine}) for part, mine in zip(parts, own, strict=True)))
            for cut in cuts:
                changed: dict[str, Any] = dict(zip(parts[2:], cut[2:], strict=True))
                with mock.patch.multiple(fused, cut=lambda *_, cut=cut, **__: fused.Cut(*cut[:2]), **changed):
                    made = jax.jit(functools.partial(call, name)).lower(*given)
                yield Timed(name, rows, cut, made, given)


def microseconds(programs: list[tuple[Timed, Any]]) -> list[float]:
    """The median time of each kernel on the device."""
    for timed, program in programs:
        jax.block_until_ready(program(*timed.given))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for timed, program in programs:
                for _ in range(REPEATS):
                    made = program(*timed.given)
                jax.block_until_ready(made)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
    lines = itertools.chain.from_iterable(plane.lines for plane in planes if "GPU" in plane.name)
    events = [event for line in lines if line.name.startswith("Stream") for event in line.events]
    taken = [
        event.duration_ns / 1000
        for event in sorted(events, key=lambda event: event.start_ns)
        if event.name.startswith("normed_")
    ]
    assert len(taken) == REPEATS * len(programs), f"{len(taken)} kernels of {len(programs)} programs"
    return [statistics.median(taken[at : at + REPEATS]) for at in range(0, len(taken), REPEATS)]


def main() -> None:
    """Measures all kernels with all cuts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=1792)
    parser.add_argument("--rows", type=int, nargs="+", help="instead of the sizes of each kernel")
    parser.add_argument("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS))
    asked = parser.parse_args()
    chosen = {name: (KERNELS[name][0], tuple(asked.rows or KERNELS[name][1])) for name in asked.kernels}
    if jax.default_backend() != "gpu":
        raise SystemExit("there is no GPU here; the kernels' values are tested in tests/nn/test_fused.py")
    every = list(lowered(chosen, asked.features))
    with ThreadPoolExecutor() as pool:
        programs = list(pool.map(lambda timed: timed.lowered.compile(), every))
    times = microseconds(list(zip(every, programs, strict=True)))
    for name, (parts, sizes) in chosen.items():
        for rows in sizes:
            own = own_cut(name, parts, rows, asked.features)
            found = {
                timed.cut: time
                for timed, time in zip(every, times, strict=True)
                if (timed.name, timed.rows) == (name, rows)
            }
            fastest = sorted(found, key=found.__getitem__)[:4]
            print(f"{name}, {rows:,} rows of {asked.features}, by {' · '.join(parts)}")
            print(f"  as it is {own}: {found[own]:.2f} µs; " + ", ".join(f"{cut}: {found[cut]:.2f}" for cut in fastest))


if __name__ == "__main__":
    main()
