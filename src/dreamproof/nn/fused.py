"""LayerNorm and Mish behind a product, there and back, as one GPU kernel each (Pallas, lowered to Triton).

A program of the kernel reads scale and shift once for all of its rows. Where sums over rows are wanted it works through
many and keeps its share of the sums; the shares are added afterwards. Where calls follow each other, what is noted of
each is written into one large array in place, and shares are added to those of the calls before.
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
"""Rows that a program takes at a time; on an H200 one takes longer, four about as long (benchmarks/RESULTS.md)."""
NOTED_ROWS = 4
"""The same where shares are read and written in every call: half as many programs have half as many. Not timed yet."""
SHARES = 264
"""Programs that share rows where sums are wanted of a single call: two for each multiprocessor of an H200."""
WARP_COLUMNS = 256
"""Columns that one warp takes."""
SUMS = ("bias", "scale", "shift")
NOTES = ("made", "kept_output", "at_product")
"""What can be noted: product and output, and the gradient that arrives at the product."""

Affine = tuple[Array, Array, Array]
"""What a layer adds to its product, and by what it scales and shifts what was normalised; each (F,)."""


class Cut(NamedTuple):
    """How the work is cut: all rows, rows of a tile, tiles of a program, and columns, rounded up."""

    rows: int
    tile: int
    span: int
    width: int


def output(y: Array, affine: Affine, epsilon: float) -> Array:
    """Mish(LayerNorm(y + bias)) of products (..., F), in their type."""
    (made,) = _called(y, affine, None, epsilon, ("output",))
    return made


def noted_output(
    y: Array, affine: Affine, epsilon: float, notes: tuple[Array, Array], place: Place
) -> tuple[Array, tuple[Array, Array]]:
    """The same, and notes (N, ..., F) in whose place products and outputs are written."""
    made, product, kept = _called(y, affine, None, epsilon, ("output", "made", "kept_output"), place, notes)
    return made, (product, kept)


def gradient(y: Array, affine: Affine, arrived: Array, epsilon: float) -> Array:
    """The gradient at the products (..., F) of one that arrived at the output."""
    (made,) = _called(y, affine, arrived, epsilon, ("gradient",))
    return made


def gradient_and_sums(y: Array, affine: Affine, arrived: Array, epsilon: float) -> tuple[Array, Affine]:
    """The same, and the gradients of bias, scale and shift, in float32."""
    made, *sums = _called(y, affine, arrived, epsilon, ("gradient", "bias", "scale", "shift"))
    return made, (sums[0].sum(0), sums[1].sum(0), sums[2].sum(0))


def noted_gradient(
    made: Array, affine: Affine, arrived: Array, epsilon: float, notes: Notes, place: Place
) -> tuple[Array, Notes]:
    """The gradient at products noted in a place, and notes of it and of the sums so far."""
    wanted = ("gradient", "at_product", "bias", "scale", "shift")
    found, *noted = _called(made, affine, arrived, epsilon, wanted, place, notes)
    return found, Notes(*noted)


def noted_shares(rows: int) -> int:
    """Shares of the noted sums."""
    return -(-rows // NOTED_ROWS)


def _called(
    y: Array,
    affine: Affine,
    arrived: Array | None,
    epsilon: float,
    wanted: tuple[str, ...],
    place: Place | None = None,
    notes: Sequence[Array] = (),
) -> list[Array]:
    """What is wanted: of the shape of what arrived, or of `y` where nothing did; shares of sums; and last the notes.

    Where the gradient is noted, `y` is a note too.
    """
    shape, features = (y if arrived is None else arrived).shape, y.shape[-1]
    rows = math.prod(shape[:-1])
    tile = NOTED_ROWS if place is not None and set(wanted) & set(SUMS) else ROWS
    tiles = -(-rows // tile)
    programs = min(tiles, SHARES) if place is None and set(wanted) & set(SUMS) else tiles
    width = pl.next_power_of_2(features)
    flat = [part.reshape(-1, features) for part in (y, arrived, *notes) if part is not None]
    given = [*([] if place is None else [place.first.reshape(1)]), *affine, *flat]
    fresh = wanted[: len(wanted) - len(notes)]
    made = pl.pallas_call(
        functools.partial(
            _kernel,
            wanted=wanted,
            cut=Cut(rows, tile, -(-tiles // programs), width),
            ahead=None if place is None else place.ahead,
            epsilon=epsilon,
        ),
        out_shape=[
            *(
                jax.ShapeDtypeStruct((programs, features), jnp.float32)
                if name in SUMS
                else jax.ShapeDtypeStruct((rows, features), y.dtype)
                for name in fresh
            ),
            *(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in flat[len(flat) - len(notes) :]),
        ],
        grid=(programs,),
        input_output_aliases={len(given) - len(notes) + at: len(fresh) + at for at in range(len(notes))},
        compiler_params=triton.CompilerParams(num_warps=min(max(width // WARP_COLUMNS, 1), 8), num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name="normed_" + "_".join(wanted),
    )(*given)
    shapes = [*(None if name in SUMS else shape for name in fresh), *(note.shape for note in notes)]
    return [part if own is None else part.reshape(own) for part, own in zip(made, shapes, strict=True)]


def _kernel(*refs: Any, wanted: tuple[str, ...], cut: Cut, ahead: int | None, epsilon: float) -> None:
    """One program: its tiles one after the other.

    `refs` are the place, where anything is noted; bias, scale, shift, y, what arrived where anything did, the notes;
    and the wanted, notes last.
    """
    rows, tile_rows, span, width = cut
    given, made_ref = refs[: -len(wanted)], dict(zip(wanted, refs[-len(wanted) :], strict=True))
    first = 0
    if ahead is not None:
        first, given = (given[0][0] + ahead) * rows, given[1:]
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
            found["output"] = found["kept_output"] = mish(x)
        if "gradient" in wanted:
            arrived = triton.load(more[0].at[at], mask=there, other=0.0)
            at_x = arrived.astype(jnp.float32) * mish_slope(x)
            at_normal = at_x * scale
            made = inverse * (at_normal - mean(at_normal) - normal * mean(at_normal * normal))
            found |= {"gradient": made, "at_product": made, "bias": made, "scale": at_x * normal, "shift": at_x}
        for name in wanted:
            if name not in SUMS:
                ref = made_ref[name]
                triton.store(ref.at[at_note if name in NOTES else at], found[name].astype(ref.dtype), mask=there)
        return {name: total + found[name].sum(0) for name, total in sums.items()}

    # The last of what is given are the sums so far, where those are noted.
    sums = {
        name: jnp.zeros(width, jnp.float32)
        if ahead is None
        else triton.load(more[len(more) - len(SUMS) + at].at[program, columns], mask=inside, other=0.0)
        for at, name in enumerate(SUMS)
        if name in wanted
    }
    sums = tile(0, sums) if span == 1 else jax.lax.fori_loop(0, span, tile, sums)
    for name, total in sums.items():
        triton.store(made_ref[name].at[program, columns], total, mask=inside)
