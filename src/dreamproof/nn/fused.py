"""Norms and activations after a matrix product: LayerNorm and Mish in either order, or root-mean-square norm and SiLU.

Forward and backward are one GPU kernel each. A LayerNorm without Mish and a root-mean-square norm have the backward
kernels alone: their forward pass fuses with what follows it.

Written in Pallas and lowered to Triton. A program of the kernel reads scale and shift once for all of its rows. For
sums over rows, each program processes many rows and writes a partial sum; partial sums are added afterwards.
Consecutive calls write their records into one large array in place, and add to the partial sums of earlier calls.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from dreamproof.jaxcore.kernels import HAS_TRITON
from dreamproof.nn.activations import mish, mish_slope, silu_slope
from dreamproof.nn.deferred import BufferIndex, LayerGradients

if HAS_TRITON:
    from jax.experimental.pallas import triton

PROGRAMS = 264
"""Programs for sums of a single call: two per multiprocessor of an H200."""
FEW = 2**18
"""Values of an array that are few for a GPU: as many programs and threads as possible share them."""
SUMMED = 2**18
"""Columns of all partial sums that every recorded call reads and writes again; more cost more than they save."""
THREADS, WARPS = 32, 16
"""Threads of a warp, and warps of a program at most."""
RECORDS = ("product", "output_record", "product_gradient")
"""What can be recorded: product and output, and the gradient of the product."""

Order = Literal["norm_then_mish", "mish_then_norm", "norm", "rms_then_silu", "rms"]
KERNEL_NAMES: dict[Order, str] = {
    "norm_then_mish": "normed",
    "mish_then_norm": "activated",
    "norm": "norm",
    "rms_then_silu": "rms_normed",
    "rms": "rms",
}
LAYER_NORM = ("bias", "scale", "shift")
AFFINE: dict[Order, tuple[str, ...]] = {
    "norm_then_mish": LAYER_NORM,
    "mish_then_norm": LAYER_NORM,
    "norm": LAYER_NORM,
    "rms_then_silu": ("bias", "scale"),
    "rms": ("scale",),
}
"""Rows of the affine parameters: bias of the product, scale and shift of the norm. One array is one kernel."""


class Activation(NamedTuple):
    """An activation and its slope."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]


ACTIVATIONS: dict[Order, Activation] = {
    "norm_then_mish": Activation(mish, mish_slope),
    "rms_then_silu": Activation(jax.nn.silu, silu_slope),
}
"""What follows the norm."""


class Cut(NamedTuple):
    """Rows per tile, and values of a tile per thread."""

    rows: int
    values: int


class Tiling(NamedTuple):
    """All rows, rows per tile, tiles per program, and columns, rounded up."""

    rows: int
    tile: int
    span: int
    width: int


def output(y: Array, affine: Array, epsilon: float, order: Order = "norm_then_mish") -> Array:
    """Mish(LayerNorm(y + bias)) of products (..., F), or LayerNorm(Mish(y + bias)), in their type."""
    (output,) = _called(y, affine, None, epsilon, ("output",), order=order)
    return output


def recorded_output(
    y: Array, affine: Array, epsilon: float, records: tuple[Array, Array], index: BufferIndex
) -> tuple[Array, tuple[Array, Array]]:
    """The same, and buffers (N, ..., F) into which product and output are written."""
    names = ("output", "product", "output_record")
    output, *written = _called(y, affine, None, epsilon, names, index, records)
    return output, (written[0], written[1])


def gradient(y: Array, affine: Array, cotangent: Array, epsilon: float, order: Order = "norm_then_mish") -> Array:
    """Gradient of the products (..., F) for a cotangent of the output."""
    (found,) = _called(y, affine, cotangent, epsilon, ("gradient",), order=order)
    return found


def gradient_and_sums(
    y: Array, affine: Array, cotangent: Array, epsilon: float, order: Order = "norm_then_mish"
) -> tuple[Array, Array]:
    """The same, and the gradient of the affine parameters, in float32."""
    found, sums = _called(y, affine, cotangent, epsilon, ("gradient", "sums"), order=order)
    return found, sums.sum(0)


def gradients(
    y: Array, affine: Array, cotangent: Array, epsilon: float, order: Order, learns: bool
) -> tuple[Array, Array | None]:
    """The gradient of the products, and that of the affine parameters if they learn."""
    if learns:
        return gradient_and_sums(y, affine, cotangent, epsilon, order)
    return gradient(y, affine, cotangent, epsilon, order), None


def recorded_gradient(
    products: Array,
    affine: Array,
    cotangent: Array,
    epsilon: float,
    records: LayerGradients,
    index: BufferIndex,
    order: Order = "norm_then_mish",
) -> tuple[Array, LayerGradients]:
    """Gradient of recorded products, and buffers with this gradient and the sums so far."""
    wanted = ("gradient", "product_gradient", "sums")
    found, *written = _called(products, affine, cotangent, epsilon, wanted, index, records, order)
    return found, LayerGradients(*written)


def partial_sums(rows: int, features: int) -> int:
    """Number of partial sums in the records."""
    return -(-rows // cut(rows, pl.next_power_of_2(features), has_records=True).rows)


def cut(rows: int, width: int, has_records: bool = False) -> Cut:
    """The fastest on an H200 (docs/results/performance.md): one row per tile where values are few, otherwise two.

    Records with partial sums take as many rows as keep those sums small.
    """
    few = rows * width <= FEW
    tile = min(pl.next_power_of_2(-(-rows * width // SUMMED)), 8) if has_records else 1 if few else 2
    return Cut(tile, 4 if few else 16)


def warps(cut: Cut, width: int) -> int:
    """Warps of a program whose tiles are of this width."""
    return min(max(cut.rows * width // (THREADS * cut.values), 1), WARPS)


def _called(
    y: Array,
    affine: Array,
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
    width = pl.next_power_of_2(features)
    own = cut(rows, width, has_records=index is not None and "sums" in wanted)
    tiles = -(-rows // own.rows)
    programs = min(tiles, PROGRAMS) if index is None and "sums" in wanted else tiles
    flat = [part.reshape(-1, features) for part in (y, cotangent) if part is not None]
    fresh, recorded = wanted[: len(wanted) - len(records)], wanted[len(wanted) - len(records) :]
    flat += [
        part if name == "sums" else part.reshape(-1, features) for name, part in zip(recorded, records, strict=True)
    ]
    given = [*([] if index is None else [index.first.reshape(1)]), affine, *flat]
    outputs = pl.pallas_call(
        functools.partial(
            _kernel,
            wanted=wanted,
            order=order,
            tiling=Tiling(rows, own.rows, -(-tiles // programs), width),
            offset=None if index is None else index.offset,
            epsilon=epsilon,
        ),
        out_shape=[
            *(
                jax.ShapeDtypeStruct((programs, len(AFFINE[order]), features), jnp.float32)
                if name == "sums"
                else jax.ShapeDtypeStruct((rows, features), y.dtype)
                for name in fresh
            ),
            *(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in flat[len(flat) - len(records) :]),
        ],
        grid=(programs,),
        input_output_aliases={len(given) - len(records) + at: len(fresh) + at for at in range(len(records))},
        compiler_params=triton.CompilerParams(num_warps=warps(own, width), num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name="_".join([KERNEL_NAMES[order], *wanted]),
    )(*given)
    shapes = [*(None if name == "sums" else shape for name in fresh), *(record.shape for record in records)]
    return [part if own is None else part.reshape(own) for part, own in zip(outputs, shapes, strict=True)]


def _kernel(
    *refs: Any, wanted: tuple[str, ...], order: Order, tiling: Tiling, offset: int | None, epsilon: float
) -> None:
    """One program: its tiles one after the other.

    `refs` are the row index if anything is recorded; affine parameters, y, the cotangent if there is one, the records;
    and the wanted outputs, records last.
    """
    rows, tile_rows, span, width = tiling
    given, output_refs = refs[: -len(wanted)], dict(zip(wanted, refs[-len(wanted) :], strict=True))
    first = 0
    if offset is not None:
        first, given = (given[0][0] + offset) * rows, given[1:]
    affine_ref, y_ref, *more = given
    features, is_centred, last = y_ref.shape[-1], "shift" in AFFINE[order], ACTIVATIONS.get(order)
    program, columns = pl.program_id(0), jnp.arange(width)
    inside = columns < features
    affine = {
        name: triton.load(affine_ref.at[row, columns], mask=inside, other=0.0)[None]
        for row, name in enumerate(AFFINE[order])
    }

    def mean(x: Array) -> Array:
        return jnp.sum(x, 1, keepdims=True) / features

    def tile(index: Any, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        own = (program * span + index) * tile_rows + jnp.arange(tile_rows)
        there = (own < rows)[:, None] & inside[None]
        at, at_record = ((index[:, None], columns[None]) for index in (own, first + own))
        y = triton.load(y_ref.at[at_record if "product_gradient" in wanted else at], mask=there, other=0.0)
        # Columns and rows outside are 0, and so are their cotangents: they change no mean.
        biased = ((y + affine["bias"].astype(y.dtype)) if "bias" in affine else y).astype(jnp.float32)
        level = mish(biased) if order == "mish_then_norm" else biased
        centre = mean(level) if is_centred else 0.0
        inverse = jax.lax.rsqrt(jnp.maximum(mean(level * level) - centre * centre, 0.0) + epsilon)
        normal = (level - centre) * inverse
        x = normal * affine["scale"] + (affine["shift"] if is_centred else 0.0)
        found: dict[str, Array] = {"product": y}
        if "output" in wanted:
            found["output"] = found["output_record"] = x if last is None else last.value(x)
        if "gradient" in wanted:
            cotangent = triton.load(more[0].at[at], mask=there, other=0.0).astype(jnp.float32)
            at_x = cotangent if last is None else cotangent * last.slope(x)
            at_normal = at_x * affine["scale"]
            along = normal * mean(at_normal * normal)
            at_level = inverse * (at_normal - (mean(at_normal) if is_centred else 0.0) - along)
            at_product = at_level * mish_slope(biased) if order == "mish_then_norm" else at_level
            found |= dict.fromkeys(("gradient", "product_gradient"), at_product)
        for name in wanted:
            if name != "sums":
                ref = output_refs[name]
                triton.store(ref.at[at_record if name in RECORDS else at], found[name].astype(ref.dtype), mask=there)
        if not sums:
            return ()
        parts = {"bias": at_product, "scale": at_x * normal, "shift": at_x}
        return tuple(total + parts[name].sum(0) for name, total in zip(affine, sums, strict=True))

    sums: tuple[Array, ...] = ()
    if "sums" in wanted:
        # The last input is the sums so far, if those are recorded.
        sums = tuple(
            jnp.zeros(width, jnp.float32)
            if offset is None
            else triton.load(more[-1].at[program, row, columns], mask=inside, other=0.0)
            for row in range(len(affine))
        )
    sums = tile(0, sums) if span == 1 else jax.lax.fori_loop(0, span, tile, sums)
    for row, total in enumerate(sums):
        triton.store(output_refs["sums"].at[program, row, columns], total, mask=inside)
