"""The networks of `entities` as GPU kernels (Pallas, lowered to Triton), for everything that needs no gradient.

A program takes some rows and goes through their entities one by one, so nothing of the size of all entities' hidden
layers is written to memory. Planning evaluates these networks for every entity of every step of every candidate.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from dreamproof.jaxcore.kernels import HAS_TRITON
from dreamproof.nn.layers import Linear

if HAS_TRITON:
    from jax.experimental.pallas import triton

FEW_ROWS, MANY_ROWS = 16, 64
"""Rows of a program; sides of a product on tensor cores are powers of two of at least 16."""
MANY = 2**15
"""Rows from which programs take many: fewer programs then read the weights."""
NARROW = 4
"""Outputs up to this number are sums instead of a product."""


class Shape(NamedTuple):
    """Of the entities of a row: how many, their values, and how many of these are a type."""

    entities: int
    width: int
    types: int

    @property
    def moving(self) -> int:
        """Values that are a position."""
        return self.width - self.types


def fits(layers: Sequence[Linear]) -> bool:
    """Whether a program can hold these layers; their first has a few inputs."""
    outputs = [layer.weight.shape[-1] for layer in layers]
    products = outputs if outputs[-1] > NARROW else outputs[:-1]
    return all(size >= FEW_ROWS and size.bit_count() == 1 for size in products)


def extreme(
    layers: Sequence[Linear], entities: Array, added: Array | None, shape: Shape, reach: float, lowest: bool
) -> Array:
    """The highest or lowest output (..., F) of the layers for one of the placed entities (..., J, W).

    added: what other inputs add to the first product, (..., U). reach: where positions are clipped.
    """
    rows, outputs = math.prod(entities.shape[:-2]), layers[-1].weight.shape[-1]
    given = [entities.reshape(rows, -1)]
    if added is not None:
        given.append(added.reshape(rows, -1))
    given += _parameters(layers)
    kernel = functools.partial(
        _extreme_kernel, shape=shape, reach=reach, sign=-1.0 if lowest else 1.0, is_added=added is not None
    )
    called = _called(kernel, given, (rows, outputs), "entities_extreme")
    return called.reshape(*entities.shape[:-2], outputs)


def moved(driven: Array, place: Linear, residual: Linear, entities: Array, shape: Shape) -> Array:
    """The entities (..., J, W) after a step: one affine map for all, plus a residual of each.

    driven (..., M·(M + 1) + U): the map of a row, then what its state adds to the hidden layer of each residual.
    """
    rows = math.prod(entities.shape[:-2])
    given = [entities.reshape(rows, -1), driven.reshape(rows, -1), *_parameters((place, residual))]
    called = _called(
        functools.partial(_move_kernel, shape=shape), given, (rows, shape.entities * shape.width), "entities_move"
    )
    return called.reshape(entities.shape)


def _parameters(layers: Sequence[Linear]) -> list[Array]:
    return [part for layer in layers for part in (layer.weight, layer.bias) if part is not None]


def _called(kernel: Any, given: Sequence[Array], output: tuple[int, int], name: str) -> Array:
    tile = FEW_ROWS if output[0] < MANY else MANY_ROWS
    return pl.pallas_call(
        functools.partial(kernel, tile=tile),
        out_shape=jax.ShapeDtypeStruct(output, jnp.float32),
        grid=(-(-output[0] // tile),),
        compiler_params=triton.CompilerParams(num_warps=2 if tile == FEW_ROWS else 4, num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name=name,
    )(*given)


def _extreme_kernel(
    entities_ref: Any, *refs: Any, shape: Shape, reach: float, sign: float, is_added: bool, tile: int
) -> None:
    *given, output_ref = refs
    rows = pl.program_id(0) * tile + jnp.arange(tile)
    there = rows < entities_ref.shape[0]
    added: Array | float = 0.0
    if is_added:
        added_ref, *given = given
        columns = jnp.arange(added_ref.shape[1])
        added = triton.load(added_ref.at[rows[:, None], columns[None]], mask=there[:, None], other=0.0)
    (first, first_bias), *later = zip(given[::2], given[1::2], strict=True)
    first_rows = [first[row, :][None] for row in range(shape.width + 1)]
    start = added + first_bias[:][None]
    size = output_ref.shape[1]

    def entity(index: Any, best: tuple[Array, ...]) -> tuple[Array, ...]:
        values = [
            triton.load(entities_ref.at[rows, index * shape.width + at], mask=there, other=0.0)
            for at in range(shape.width)
        ]
        near = [jnp.clip(value, -reach, reach) for value in values[: shape.moving]]
        distance = jnp.sqrt(sum(value * value for value in near) + 1e-6)
        y = start
        for value, row in zip([*near, distance, *values[shape.moving :]], first_rows, strict=True):
            y = y + value[:, None] * row
        outputs: tuple[Array, ...] = (y,)
        for weight, bias in later:
            hidden = jax.nn.silu(outputs[0])
            if weight.shape[1] > NARROW:
                outputs = (hidden @ weight[:, :] + bias[:][None],)
            else:
                outputs = tuple((hidden * weight[:, at][None]).sum(1) + bias[at] for at in range(weight.shape[1]))
        return tuple(jnp.maximum(old, sign * new) for old, new in zip(best, outputs, strict=True))

    shapes = [(tile, size)] if size > NARROW else [(tile,)] * size
    best = jax.lax.fori_loop(0, shape.entities, entity, tuple(jnp.full(each, -jnp.inf) for each in shapes))
    if size > NARROW:
        columns = jnp.arange(size)
        triton.store(output_ref.at[rows[:, None], columns[None]], sign * best[0], mask=there[:, None])
    else:
        for at, values in enumerate(best):
            triton.store(output_ref.at[rows, at], sign * values, mask=there)


def _move_kernel(
    entities_ref: Any,
    driven_ref: Any,
    place_ref: Any,
    place_bias_ref: Any,
    residual_ref: Any,
    residual_bias_ref: Any,
    output_ref: Any,
    *,
    shape: Shape,
    tile: int,
) -> None:
    moving, units = shape.moving, place_ref.shape[1]
    maps = moving * (moving + 1)
    rows = pl.program_id(0) * tile + jnp.arange(tile)
    there = rows < entities_ref.shape[0]
    columns = jnp.arange(units)
    affine = [triton.load(driven_ref.at[rows, at], mask=there, other=0.0) for at in range(maps)]
    context = triton.load(driven_ref.at[rows[:, None], maps + columns[None]], mask=there[:, None], other=0.0)
    start = context + place_bias_ref[:][None]
    place_rows = [place_ref[row, :][None] for row in range(shape.width)]
    residual_columns = [residual_ref[:, at][None] for at in range(moving)]
    residual_bias = [residual_bias_ref[at] for at in range(moving)]

    def entity(index: Any, _: Any) -> None:
        at = index * shape.width
        values = [triton.load(entities_ref.at[rows, at + each], mask=there, other=0.0) for each in range(shape.width)]
        hidden = start
        for value, row in zip(values, place_rows, strict=True):
            hidden = hidden + value[:, None] * row
        hidden = jax.nn.silu(hidden)
        for to in range(moving):
            special = (hidden * residual_columns[to]).sum(1) + residual_bias[to]
            shared = affine[moving * moving + to]
            for source in range(moving):
                shared = shared + values[source] * affine[source * moving + to]
            triton.store(output_ref.at[rows, at + to], values[to] + shared + special, mask=there)
        for kind in range(moving, shape.width):
            triton.store(output_ref.at[rows, at + kind], values[kind], mask=there)

    jax.lax.fori_loop(0, shape.entities, entity, None)
