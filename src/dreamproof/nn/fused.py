"""LayerNorm and Mish behind a product, there and back, as one GPU kernel each (Pallas, lowered to Triton).

A program of the kernel reads scale and shift once for all of its rows. Where sums over rows are wanted it works through
many and keeps its share of the sums; the shares are added afterwards. Where something is to be noted, a large array
with room for many calls is written in place.
"""

import functools
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from dreamproof.nn.deferred import Notes, Place
from dreamproof.nn.mish import mish, mish_slope

# JAX means to drop this way to Triton; then the compiler makes its own kernels, as it does on a CPU.
HAS_TRITON = find_spec("jax.experimental.pallas.triton") is not None
if HAS_TRITON:
    from jax.experimental.pallas import triton

ROWS = 2
"""Rows that a program takes at a time; one or four take longer on an H200 (`python -m benchmarks.fused`)."""
SHARES = 264
"""Programs that share rows where sums are wanted: two for each multiprocessor of an H200."""
WARP_COLUMNS = 256
"""Columns that one warp takes."""
SUMS = ("bias", "scale", "shift")
NOTES = ("made", "at_product", "at_output")
"""What can be noted: the product, and the gradients that arrive at it and at the output."""

Affine = tuple[Array, Array, Array]
"""What a layer adds to its product, and by what it scales and shifts what was normalised; each (F,)."""


class Cut(NamedTuple):
    """How the work is cut: rows of all programs, tiles of each, and columns, rounded up."""

    rows: int
    span: int
    width: int


def output(y: Array, affine: Affine, epsilon: float) -> Array:
    """Mish(LayerNorm(y + bias)) of products (..., F), in their type."""
    (made,) = _called(y, affine, None, epsilon, ("output",))
    return made


def noted_output(y: Array, affine: Affine, epsilon: float, note: Array, place: Place) -> tuple[Array, Array]:
    """The same, and a note (N, ..., F) in whose place the products are written."""
    made, note = _called(y, affine, None, epsilon, ("output", "made"), place, [note])
    return made, note


def gradient(y: Array, affine: Affine, arrived: Array, epsilon: float) -> Array:
    """The gradient at the products (..., F) of one that arrived at the output."""
    (made,) = _called(y, affine, arrived, epsilon, ("gradient",))
    return made


def noted_gradient(
    made: Array, affine: Affine, arrived: Array, epsilon: float, notes: Notes, place: Place
) -> tuple[Array, Notes]:
    """The same for products noted in a place; and notes of the gradients at product and output, written there."""
    wanted = ("gradient", "at_product", "at_output")
    found, at_product, at_output = _called(made, affine, arrived, epsilon, wanted, place, notes)
    return found, (at_product, at_output)


def gradient_and_sums(y: Array, affine: Affine, arrived: Array, epsilon: float) -> tuple[Array, Affine]:
    """The gradient, and those of bias, scale and shift, in float32."""
    made, *sums = _called(y, affine, arrived, epsilon, ("gradient", "bias", "scale", "shift"))
    return made, (sums[0], sums[1], sums[2])


def output_and_sums(y: Array, affine: Affine, arrived: Array, epsilon: float) -> tuple[Array, tuple[Array, Array]]:
    """The output once more, and the gradients of scale and shift, in float32."""
    made, *sums = _called(y, affine, arrived, epsilon, ("output", "scale", "shift"))
    return made, (sums[0], sums[1])


def _called(
    y: Array,
    affine: Affine,
    arrived: Array | None,
    epsilon: float,
    wanted: tuple[str, ...],
    place: Place | None = None,
    notes: Sequence[Array] = (),
) -> list[Array]:
    """What is wanted: of the shape of what arrived, or of `y` where nothing did; summed over all rows; or notes.

    `y` is a note itself where it has room for more rows than that.
    """
    shape, features = (y if arrived is None else arrived).shape, y.shape[-1]
    rows = math.prod(shape[:-1])
    given = [part.reshape(-1, features) for part in (y, arrived, *notes) if part is not None]
    tiles = -(-rows // ROWS)
    programs = min(tiles, SHARES) if set(wanted) & set(SUMS) else tiles
    width = pl.next_power_of_2(features)
    whole, share = (
        jax.ShapeDtypeStruct((rows, features), y.dtype),
        jax.ShapeDtypeStruct((programs, features), jnp.float32),
    )
    first = [] if place is None else [place.first.reshape(1)]
    untouched = [name for name in wanted if name not in NOTES]
    inputs = len(first) + len(affine) + len(given)
    made = pl.pallas_call(
        functools.partial(
            _kernel,
            wanted=wanted,
            cut=Cut(rows, -(-tiles // programs), width),
            ahead=0 if place is None else place.ahead,
            epsilon=epsilon,
        ),
        out_shape=[
            *(share if name in SUMS else whole for name in untouched),
            *(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in given[len(given) - len(notes) :]),
        ],
        grid=(programs,),
        input_output_aliases={inputs - len(notes) + at: len(untouched) + at for at in range(len(notes))},
        compiler_params=triton.CompilerParams(num_warps=min(max(width // WARP_COLUMNS, 1), 8), num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name="normed_" + "_".join(wanted),
    )(*first, *affine, *given)
    shapes = [*(shape for _ in untouched), *(note.shape for note in notes)]
    return [
        part.sum(0) if name in SUMS else part.reshape(own) for name, part, own in zip(wanted, made, shapes, strict=True)
    ]


def _kernel(*refs: Any, wanted: tuple[str, ...], cut: Cut, ahead: int, epsilon: float) -> None:
    """One program: tiles of ROWS rows one after the other.

    `refs` are the place where anything is noted; bias, scale, shift, y, what arrived where anything did, and the notes;
    and the wanted, notes last.
    """
    rows, span, width = cut
    noted = [name for name in wanted if name in NOTES]
    given, made_refs = refs[: -len(wanted)], refs[-len(wanted) :]
    first = (given[0][0] + ahead) * rows if noted else 0
    bias_ref, scale_ref, shift_ref, y_ref, *arrived_ref = given[bool(noted) : len(given) - len(noted)]
    made_ref = dict(zip(wanted, made_refs, strict=True))
    features = y_ref.shape[-1]
    program, columns = pl.program_id(0), jnp.arange(width)
    inside = columns < features
    bias, scale, shift = (
        triton.load(ref.at[columns], mask=inside, other=0.0)[None] for ref in (bias_ref, scale_ref, shift_ref)
    )

    def mean(x: Array) -> Array:
        return jnp.sum(x, 1, keepdims=True) / features

    def tile(index: Any, sums: dict[str, Array]) -> dict[str, Array]:
        own = (program * span + index) * ROWS + jnp.arange(ROWS)
        there = (own < rows)[:, None] & inside[None]
        at, at_note = ((place[:, None], columns[None]) for place in (own, first + own))
        y = triton.load(y_ref.at[at_note if "at_product" in wanted else at], mask=there, other=0.0)
        # Columns outside are 0, and so is what arrives there and in rows outside: no mean sees them.
        level = (y + bias.astype(y.dtype)).astype(jnp.float32)
        centre = mean(level)
        inverse = jax.lax.rsqrt(jnp.maximum(mean(level * level) - centre * centre, 0.0) + epsilon)
        normal = (level - centre) * inverse
        x = normal * scale + shift
        found: dict[str, Array] = {"made": y}
        if "output" in wanted:
            found["output"] = mish(x)
        if arrived_ref:
            arrived = triton.load(arrived_ref[0].at[at], mask=there, other=0.0)
            at_x = arrived.astype(jnp.float32) * mish_slope(x)
            found |= {"scale": at_x * normal, "shift": at_x, "at_output": arrived}
        if "gradient" in wanted:
            at_normal = at_x * scale
            made = inverse * (at_normal - mean(at_normal) - normal * mean(at_normal * normal))
            found |= {"gradient": made, "bias": made, "at_product": made}
        for name in wanted:
            if name not in SUMS:
                ref = made_ref[name]
                triton.store(ref.at[at_note if name in NOTES else at], found[name].astype(ref.dtype), mask=there)
        return {name: total + found[name].sum(0) for name, total in sums.items()}

    sums = {name: jnp.zeros(width, jnp.float32) for name in SUMS if name in wanted}
    sums = tile(0, sums) if span == 1 else jax.lax.fori_loop(0, span, tile, sums)
    for name, total in sums.items():
        triton.store(made_ref[name].at[program, columns], total, mask=inside)
