"""LayerNorm and Mish behind a product, there and back, as one GPU kernel each (Pallas, lowered to Triton).

A program of the kernel reads scale and shift once for all of its rows. Where sums over rows are wanted it works through
many and keeps its share of the sums; the shares are added afterwards.
"""

import functools
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from dreamproof.nn.mish import mish, mish_slope

# JAX means to drop this way to Triton; then the compiler makes its own kernels, as it does on a CPU.
HAS_TRITON = find_spec("jax.experimental.pallas.triton") is not None
if HAS_TRITON:
    from jax.experimental.pallas import triton

ROWS = 2
"""Rows that a program takes at a time; one or four take longer on an H200 (`python -m benchmarks.fused`)."""
SHARES = 528
"""Programs that share rows where sums are wanted: four for each multiprocessor of an H200."""
WARP_COLUMNS = 256
"""Columns that one warp takes."""
SUMS = ("bias", "scale", "shift")

Affine = tuple[Array, Array, Array]
"""What a layer adds to its product, and by what it scales and shifts what was normalised; each (F,)."""


def output(y: Array, affine: Affine, epsilon: float) -> Array:
    """Mish(LayerNorm(y + bias)) of products (..., F), in their type."""
    (made,) = _called(y, affine, None, epsilon, ("output",))
    return made


def gradient(y: Array, affine: Affine, arrived: Array, epsilon: float) -> Array:
    """The gradient at the products (..., F) of one that arrived at the output."""
    (made,) = _called(y, affine, arrived, epsilon, ("gradient",))
    return made


def gradient_and_sums(y: Array, affine: Affine, arrived: Array, epsilon: float) -> tuple[Array, Affine]:
    """The same, and the gradients of bias, scale and shift, in float32."""
    made, *sums = _called(y, affine, arrived, epsilon, ("gradient", "bias", "scale", "shift"))
    return made, (sums[0], sums[1], sums[2])


def output_and_sums(y: Array, affine: Affine, arrived: Array, epsilon: float) -> tuple[Array, tuple[Array, Array]]:
    """The output once more, and the gradients of scale and shift, in float32."""
    made, *sums = _called(y, affine, arrived, epsilon, ("output", "scale", "shift"))
    return made, (sums[0], sums[1])


def _called(y: Array, affine: Affine, arrived: Array | None, epsilon: float, wanted: tuple[str, ...]) -> list[Array]:
    """What is wanted: of the shape of `y`, or summed over all rows."""
    features = y.shape[-1]
    rows = y.size // features
    given = [part.reshape(rows, features) for part in (y, arrived) if part is not None]
    tiles = -(-rows // ROWS)
    programs = min(tiles, SHARES) if set(wanted) & set(SUMS) else tiles
    width = pl.next_power_of_2(features)
    whole, share = (
        jax.ShapeDtypeStruct((rows, features), y.dtype),
        jax.ShapeDtypeStruct((programs, features), jnp.float32),
    )
    made = pl.pallas_call(
        functools.partial(_kernel, wanted=wanted, span=-(-tiles // programs), width=width, epsilon=epsilon),
        out_shape=[share if name in SUMS else whole for name in wanted],
        grid=(programs,),
        compiler_params=triton.CompilerParams(num_warps=min(max(width // WARP_COLUMNS, 1), 8), num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name="normed_" + "_".join(wanted),
    )(*affine, *given)
    return [part.sum(0) if name in SUMS else part.reshape(y.shape) for name, part in zip(wanted, made, strict=True)]


def _kernel(*refs: Any, wanted: tuple[str, ...], span: int, width: int, epsilon: float) -> None:
    """One program: `span` tiles of ROWS rows one after the other.

    `refs` are bias, scale, shift, y, what arrived where anything did, and the wanted.
    """
    (bias_ref, scale_ref, shift_ref, y_ref, *arrived_ref), made_refs = refs[: -len(wanted)], refs[-len(wanted) :]
    made_ref = dict(zip(wanted, made_refs, strict=True))
    rows, features = y_ref.shape
    program, columns = pl.program_id(0), jnp.arange(width)
    inside = columns < features
    bias, scale, shift = (
        triton.load(ref.at[columns], mask=inside, other=0.0)[None] for ref in (bias_ref, scale_ref, shift_ref)
    )

    def mean(x: Array) -> Array:
        return jnp.sum(jnp.where(inside[None], x, 0.0), 1, keepdims=True) / features

    def tile(index: Any, sums: dict[str, Array]) -> dict[str, Array]:
        place = (program * span + index) * ROWS + jnp.arange(ROWS)
        at, there = (place[:, None], columns[None]), (place < rows)[:, None] & inside[None]
        y = triton.load(y_ref.at[at], mask=there, other=0.0)
        level = (y + bias.astype(y.dtype)).astype(jnp.float32)
        level = level - mean(level)
        inverse = jax.lax.rsqrt(mean(level * level) + epsilon)
        normal = level * inverse
        x = normal * scale + shift
        found: dict[str, Array] = {}
        if "output" in wanted:
            found["output"] = mish(x)
        if arrived_ref:
            arrived = triton.load(arrived_ref[0].at[at], mask=there, other=0.0)
            at_x = arrived.astype(jnp.float32) * mish_slope(x)
            found |= {"scale": at_x * normal, "shift": at_x}
        if "gradient" in wanted:
            at_normal = at_x * scale
            at_normal = at_normal - mean(at_normal)
            found["gradient"] = found["bias"] = inverse * (at_normal - normal * mean(at_normal * normal))
        for name in set(wanted) - set(SUMS):
            ref = made_ref[name]
            triton.store(ref.at[at], found[name].astype(ref.dtype), mask=there)
        return {name: total + found[name].sum(0) for name, total in sums.items()}

    sums = {name: jnp.zeros(width, jnp.float32) for name in SUMS if name in wanted}
    sums = tile(0, sums) if span == 1 else jax.lax.fori_loop(0, span, tile, sums)
    for name, total in sums.items():
        triton.store(made_ref[name].at[program, columns], total, mask=inside)
