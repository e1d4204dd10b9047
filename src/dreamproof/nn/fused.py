"""LayerNorm and Mish after a matrix product, in either order: forward and backward as one GPU kernel each.

Written in Pallas and lowered to Triton. A program of the kernel reads scale and shift once for all of its rows. For
sums over rows, each program processes many rows and writes a partial sum; partial sums are added afterwards.
Consecutive calls write their records into one large array in place, and add to the partial sums of earlier calls.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from dreamproof.jaxcore.kernels import HAS_TRITON
from dreamproof.nn.deferred import BufferIndex, LayerGradients
from dreamproof.nn.mish import mish, mish_slope

if HAS_TRITON:
    from jax.experimental.pallas import triton

ROWS = 2
"""Rows per tile; on an H200 one is slower, four about as fast (benchmarks/RESULTS.md)."""
RECORDED_ROWS = 4
"""The same if partial sums are read and written in every call: half as many programs have half as many.

On an H200 a call with eight took less (docs/notebook/pwm.md); gradients with eight have not been checked there."""
PROGRAMS = 264
"""Programs for sums of a single call: two per multiprocessor of an H200."""
WARP_COLUMNS = 256
"""Columns per warp."""
SUMS = ("bias", "scale", "shift")
RECORDS = ("product", "output_record", "product_gradient")
"""What can be recorded: product and output, and the gradient of the product."""

Affine = tuple[Array, Array, Array]
"""Bias of the product, scale and shift of the norm; each (F,)."""
Order = Literal["norm_then_mish", "mish_then_norm"]


class Tiling(NamedTuple):
    """All rows, rows per tile, tiles per program, and columns, rounded up."""

    rows: int
    tile: int
    span: int
    width: int


def output(y: Array, affine: Affine, epsilon: float, order: Order = "norm_then_mish") -> Array:
    """Mish(LayerNorm(y + bias)) of products (..., F), or LayerNorm(Mish(y + bias)), in their type."""
    (output,) = _called(y, affine, None, epsilon, ("output",), order=order)
    return output


def recorded_output(
    y: Array, affine: Affine, epsilon: float, records: tuple[Array, Array], index: BufferIndex
) -> tuple[Array, tuple[Array, Array]]:
    """The same, and buffers (N, ..., F) into which product and output are written."""
    names = ("output", "product", "output_record")
    output, *written = _called(y, affine, None, epsilon, names, index, records)
    return output, (written[0], written[1])


def gradient(y: Array, affine: Affine, cotangent: Array, epsilon: float, order: Order = "norm_then_mish") -> Array:
    """Gradient of the products (..., F) for a cotangent of the output."""
    (found,) = _called(y, affine, cotangent, epsilon, ("gradient",), order=order)
    return found


def gradient_and_sums(
    y: Array, affine: Affine, cotangent: Array, epsilon: float, order: Order = "norm_then_mish"
) -> tuple[Array, Affine]:
    """The same, and the gradients of bias, scale and shift, in float32."""
    found, *sums = _called(y, affine, cotangent, epsilon, ("gradient", "bias", "scale", "shift"), order=order)
    return found, (sums[0].sum(0), sums[1].sum(0), sums[2].sum(0))


def recorded_gradient(
    products: Array, affine: Affine, cotangent: Array, epsilon: float, records: LayerGradients, index: BufferIndex
) -> tuple[Array, LayerGradients]:
    """Gradient of recorded products, and buffers with this gradient and the sums so far."""
    wanted = ("gradient", "product_gradient", "bias", "scale", "shift")
    found, *written = _called(products, affine, cotangent, epsilon, wanted, index, records)
    return found, LayerGradients(*written)


def partial_sums(rows: int) -> int:
    """Number of partial sums in the records."""
    return -(-rows // RECORDED_ROWS)


def _called(
    y: Array,
    affine: Affine,
    cotangent: Array | None,
    epsilon: float,
    wanted: tuple[str, ...],
    index: BufferIndex | None = None,
    records: Sequence[Array] = (),
    order: Order = "norm_then_mish",
) -> list[Array]:
    """The wanted arrays: of the shape of the cotangent or of `y`; partial sums; and last the records.

    If the gradient is recorded, `y` is a record too.
    """
    shape, features = (y if cotangent is None else cotangent).shape, y.shape[-1]
    rows = math.prod(shape[:-1])
    tile = RECORDED_ROWS if index is not None and set(wanted) & set(SUMS) else ROWS
    tiles = -(-rows // tile)
    programs = min(tiles, PROGRAMS) if index is None and set(wanted) & set(SUMS) else tiles
    width = pl.next_power_of_2(features)
    flat = [part.reshape(-1, features) for part in (y, cotangent, *records) if part is not None]
    given = [*([] if index is None else [index.first.reshape(1)]), *affine, *flat]
    fresh = wanted[: len(wanted) - len(records)]
    outputs = pl.pallas_call(
        functools.partial(
            _kernel,
            wanted=wanted,
            order=order,
            tiling=Tiling(rows, tile, -(-tiles // programs), width),
            offset=None if index is None else index.offset,
            epsilon=epsilon,
        ),
        out_shape=[
            *(
                jax.ShapeDtypeStruct((programs, features), jnp.float32)
                if name in SUMS
                else jax.ShapeDtypeStruct((rows, features), y.dtype)
                for name in fresh
            ),
            *(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in flat[len(flat) - len(records) :]),
        ],
        grid=(programs,),
        input_output_aliases={len(given) - len(records) + at: len(fresh) + at for at in range(len(records))},
        compiler_params=triton.CompilerParams(num_warps=min(max(width // WARP_COLUMNS, 1), 8), num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name="_".join(["normed" if order == "norm_then_mish" else "activated", *wanted]),
    )(*given)
    shapes = [*(None if name in SUMS else shape for name in fresh), *(record.shape for record in records)]
    return [part if own is None else part.reshape(own) for part, own in zip(outputs, shapes, strict=True)]


def _kernel(
    *refs: Any, wanted: tuple[str, ...], order: Order, tiling: Tiling, offset: int | None, epsilon: float
) -> None:
    """One program: its tiles one after the other.

    `refs` are the row index if anything is recorded; bias, scale, shift, y, the cotangent if there is one, the records;
    and the wanted outputs, records last.
    """
    rows, tile_rows, span, width = tiling
    given, output_refs = refs[: -len(wanted)], dict(zip(wanted, refs[-len(wanted) :], strict=True))
    first = 0
    if offset is not None:
        first, given = (given[0][0] + offset) * rows, given[1:]
    bias_ref, scale_ref, shift_ref, y_ref, *more = given
    features = y_ref.shape[-1]
    program, columns = pl.program_id(0), jnp.arange(width)
    inside = columns < features
    bias, scale, shift = (
        triton.load(ref.at[columns], mask=inside, other=0.0)[None] for ref in (bias_ref, scale_ref, shift_ref)
    )

    def mean(x: Array) -> Array:
        return jnp.sum(x, 1, keepdims=True) / features

    def tile(index: Any, sums: dict[str, Array]) -> dict[str, Array]:
        own = (program * span + index) * tile_rows + jnp.arange(tile_rows)
        there = (own < rows)[:, None] & inside[None]
        at, at_record = ((index[:, None], columns[None]) for index in (own, first + own))
        y = triton.load(y_ref.at[at_record if "product_gradient" in wanted else at], mask=there, other=0.0)
        # Columns and rows outside are 0, and so are their cotangents: they change no mean.
        biased = (y + bias.astype(y.dtype)).astype(jnp.float32)
        level = mish(biased) if order == "mish_then_norm" else biased
        centre = mean(level)
        inverse = jax.lax.rsqrt(jnp.maximum(mean(level * level) - centre * centre, 0.0) + epsilon)
        normal = (level - centre) * inverse
        x = normal * scale + shift
        found: dict[str, Array] = {"product": y}
        if "output" in wanted:
            found["output"] = found["output_record"] = x if order == "mish_then_norm" else mish(x)
        if "gradient" in wanted:
            cotangent = triton.load(more[0].at[at], mask=there, other=0.0).astype(jnp.float32)
            at_x = cotangent if order == "mish_then_norm" else cotangent * mish_slope(x)
            at_normal = at_x * scale
            at_level = inverse * (at_normal - mean(at_normal) - normal * mean(at_normal * normal))
            at_product = at_level * mish_slope(biased) if order == "mish_then_norm" else at_level
            found |= dict.fromkeys(("gradient", "product_gradient", "bias"), at_product)
            found |= {"scale": at_x * normal, "shift": at_x}
        for name in wanted:
            if name not in SUMS:
                ref = output_refs[name]
                triton.store(ref.at[at_record if name in RECORDS else at], found[name].astype(ref.dtype), mask=there)
        return {name: total + found[name].sum(0) for name, total in sums.items()}

    # The last inputs are the sums so far, if those are recorded.
    sums = {
        name: jnp.zeros(width, jnp.float32)
        if offset is None
        else triton.load(more[len(more) - len(SUMS) + at].at[program, columns], mask=inside, other=0.0)
        for at, name in enumerate(SUMS)
        if name in wanted
    }
    sums = tile(0, sums) if span == 1 else jax.lax.fori_loop(0, span, tile, sums)
    for name, total in sums.items():
        triton.store(output_refs[name].at[program, columns], total, mask=inside)
