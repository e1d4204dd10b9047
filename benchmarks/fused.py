"""Microseconds of the GPU's kernels behind a product, by how their work is cut: `python -m benchmarks.fused`.

Prints, for every number of rows, each kernel's best cut and what the one in the code takes; needs a GPU.
"""

import argparse
import collections
import itertools
import statistics
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn import fused
from dreamproof.nn.normed import EPSILON

REPEATS = 20
Cut = tuple[int, int, int]
"""Rows of a tile, columns of a warp, programs that share sums."""
IN_CODE: Cut = (fused.ROWS, fused.WARP_COLUMNS, fused.SHARES)


def layer(rows: int, features: int) -> tuple[Array, fused.Affine, Array]:
    """Products, affine parts and what arrives, in bfloat16."""
    keys = jax.random.split(jax.random.key(0), 5)
    y, arrived = (jax.random.normal(key, (rows, features)).astype(jnp.bfloat16) for key in keys[:2])
    bias, scale, shift = (jax.random.normal(key, (features,)) for key in keys[2:])
    return y, (bias, scale, shift), arrived


def everything(y: Array, affine: fused.Affine, arrived: Array) -> list[object]:
    """All four kernels."""
    told = (y, affine, arrived, EPSILON)
    return [
        fused.output(y, affine, EPSILON),
        fused.gradient(*told),
        fused.gradient_and_sums(*told),
        fused.output_and_sums(*told),
    ]


def microseconds(given: tuple[Array, fused.Affine, Array], cut: Cut) -> dict[str, float]:
    """The median time of each kernel on the device, by its name."""
    fused.ROWS, fused.WARP_COLUMNS, fused.SHARES = cut
    compiled = jax.jit(lambda *parts: everything(*parts)).lower(*given).compile()
    jax.block_until_ready(compiled(*given))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(REPEATS):
                made = compiled(*given)
            jax.block_until_ready(made)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
    found = collections.defaultdict(list)
    for line in itertools.chain.from_iterable(plane.lines for plane in planes if "GPU" in plane.name):
        for event in line.events:
            if event.name.startswith("normed_"):
                found[event.name].append(event.duration_ns / 1000)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """Measures all cuts for all numbers of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 16_384, 131_072])
    parser.add_argument("--features", type=int, default=1792)
    parser.add_argument("--tile-rows", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--warp-columns", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--shares", type=int, nargs="+", default=[264, 528, 1056])
    asked = parser.parse_args()
    if jax.default_backend() != "gpu":
        raise SystemExit("there is no GPU here; the kernels' values are tested in tests/nn/test_fused.py")
    cuts = [IN_CODE, *itertools.product(asked.tile_rows, asked.warp_columns, asked.shares)]
    for rows in asked.rows:
        given = layer(rows, asked.features)
        times = {cut: microseconds(given, cut) for cut in cuts}
        print(f"{rows:,} rows of {asked.features}")
        for name, taken in times[IN_CODE].items():
            best = min(cuts, key=lambda cut: times[cut][name])
            print(f"  {name:<36} {taken:8.1f} µs as it is, {times[best][name]:8.1f} µs with {best}", flush=True)


if __name__ == "__main__":
    main()
