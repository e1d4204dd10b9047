"""Weight gradients of a network that a scan calls many times, as one large product after the backward pass.

On the way there a tape records the products of every evaluation. On the way back they are recalled instead of made
anew, the weights take no gradient, and the gradients that arrive at products and outputs of layers are kept. Both
together, over all steps, yield the gradients of the weights. That spares the backward pass one small product and one
addition to a buffer as large as the weights in every evaluation.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn.layers import in_rows

SHARED, SHARES = 2**16, 4
"""A product over so many rows is made in so many shares: more pieces of equal work, which keep a whole GPU busy."""


class Recorded(NamedTuple):
    """What the evaluations (K, B, ...) of one step were given, and what the product of each layer made."""

    given: Array
    made: list[Array]


class Arrived(NamedTuple):
    """Gradients of all evaluations (K, B, ...) at the product of each layer, and at its output where they differ."""

    products: list[Array]
    outputs: list[Array]


@jax.custom_vjp
def recalled(made: Array, saved: Array) -> Array:
    """`saved` in place of `made`, which then need not be computed; the gradient is both of theirs."""
    del made
    return saved


def _recalled_forward(made: Array, saved: Array) -> tuple[Array, None]:
    del made
    return saved, None


def _recalled_backward(nothing: None, gradient: Array) -> tuple[Array, Array]:
    del nothing
    # The barrier has what is kept copied, rather than made anew from what is wider.
    gradient = jax.lax.optimization_barrier(gradient)
    return gradient, gradient


recalled.defvjp(_recalled_forward, _recalled_backward)


@jax.custom_vjp
def tapped(made: Array, tap: Array) -> Array:
    """`made` as it is; its gradient arrives at `tap` too, in the tap's precision."""
    del tap
    return made


def _tapped_forward(made: Array, tap: Array) -> tuple[Array, Array]:
    # An empty array remembers the tap's type.
    return made, jnp.zeros((0,), tap.dtype)


def _tapped_backward(empty: Array, gradient: Array) -> tuple[Array, Array]:
    return gradient, gradient.astype(empty.dtype)


tapped.defvjp(_tapped_forward, _tapped_backward)


class Memory(NamedTuple):
    """Products to recall and taps of outputs: for each layer one of every evaluation."""

    products: list[list[Array]]
    taps: list[list[Array]]


class Tape:
    """One step of a scan: records the evaluations of a network, or recalls them from a memory.

    `reached` is the end of what is being recalled.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory
        self.reached: Array | None = None
        self.given: list[Array] = []
        self.made: list[list[Array]] = []

    def begin(self, given: Array) -> Array:
        """A network is evaluated on this; products and outputs of its layers follow."""
        # The barrier has it copied, rather than made anew from what is wider.
        given = jax.lax.optimization_barrier(given) if self.memory is None else given
        self.given.append(given)
        self.made.append([])
        return given

    def product(self, made: Array) -> Array:
        """What the next layer's product made, or had made when it was recorded."""
        self.made[-1].append(made)
        return made if self.memory is None else recalled(made, self._now(self.memory.products))

    def output(self, made: Array) -> Array:
        """What that layer made of it."""
        return made if self.memory is None else tapped(made, self._now(self.memory.taps))

    def _now(self, kept: list[list[Array]]) -> Array:
        return kept[len(self.made[-1]) - 1][len(self.made) - 1]

    def recorded(self) -> Recorded:
        """All evaluations together, so that a scan copies once a layer instead of once an evaluation."""
        return Recorded(jnp.stack(self.given), [jnp.stack(layer) for layer in zip(*self.made, strict=True)])


def memory_of(recorded: Recorded, normed: int) -> Memory:
    """What a tape recalls, with taps for the first so many layers, whose outputs are not their products."""
    # The barrier keeps conversions, and with them wider copies, out of the kernel that takes the evaluations apart.
    products = jax.lax.optimization_barrier([list(layer) for layer in recorded.made])
    return Memory(products, [[jnp.zeros_like(one) for one in layer] for layer in products[:normed]])


def arrived_at(gradients: Memory) -> Arrived:
    """The gradients of a memory, evaluations together."""
    return Arrived(*([jnp.stack(layer) for layer in kind] for kind in gradients))


Step = Callable[[Any, Any], tuple[Any, Any]]
"""(what goes on, what is told) → what goes on, and what is collected."""


def collecting_scan(step: Step, first: Any, told: Any, reverse: bool = False) -> tuple[Any, Any]:
    """jax.lax.scan, but memory for what it collects is taken as it is, where jax.lax.scan fills it with zeros."""
    witness = jax.tree.leaves(told)[0]
    length = witness.shape[0]
    shapes = jax.eval_shape(lambda: step(first, jax.tree.map(lambda leaf: leaf[0], told))[1])
    blank = functools.partial(_blank, witness, length)

    def one(carry: tuple[Any, Any], at: tuple[Array, Any]) -> tuple[tuple[Any, Any], None]:
        (now, rows), (place, told) = carry, at
        now, made = step(now, told)
        return (now, jax.tree.map(lambda row, part: _written(row, part, place), rows, made)), None

    carry = (first, jax.tree.map(blank, shapes))
    (last, rows), _ = jax.lax.scan(one, carry, (jnp.arange(length), told), reverse=reverse)
    return last, rows


def _blank(witness: Array, length: int, part: jax.ShapeDtypeStruct) -> Array:
    """Memory for so many parts, filled with whatever it holds; for all replicas' where the witness is of many."""
    shape = (length, *part.shape)

    @jax.custom_batching.custom_vmap
    def taken(witness: Array) -> Array:
        del witness
        return jax.lax.empty(shape, part.dtype)

    @taken.def_vmap
    def _(size: int, batched: list[bool], witness: Array) -> tuple[Array, bool]:
        del batched, witness
        return jax.lax.empty((size, *shape), part.dtype), True

    return taken(witness)


@jax.custom_batching.custom_vmap
def _written(rows: Array, part: Array, place: Array) -> Array:
    """`rows` with one of them replaced."""
    return jax.lax.dynamic_update_index_in_dim(rows, part, place, 0)


@_written.def_vmap
def _(size: int, batched: list[bool], rows: Array, part: Array, place: Array) -> tuple[Array, bool]:
    """All replicas write at the same place. Told in general, JAX would make a scatter of it, which is slow."""
    assert not batched[2], "replicas write at one place"
    rows, part = (
        one if known else jnp.broadcast_to(one, (size, *one.shape))
        for one, known in zip((rows, part), batched[:2], strict=True)
    )
    return jax.lax.dynamic_update_slice_in_dim(rows, part[:, None], place, axis=1), True


def affine_gradient(given: Array, arrived: Array) -> tuple[Array, Array]:
    """Gradients of weight (in, out) and bias (out,) of one affine map from all its calls (..., in) and (..., out)."""
    rows = given.size // given.shape[-1]
    shares = math.gcd(rows, SHARES) if rows >= SHARED else 1
    given, arrived = (part.reshape(shares, -1, part.shape[-1]) for part in (given, arrived))
    weight = jax.lax.dot_general(given, arrived, (((1,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32)
    # Without the barrier the compiler takes the shares together again.
    return jax.lax.optimization_barrier(weight).sum(0), arrived.sum((0, 1), dtype=jnp.float32)


def scale_gradient(given: Array, arrived: Array) -> tuple[Array, Array]:
    """Gradients of scale and shift (F,) of one elementwise map from all its calls, both (..., F) in float32."""
    # As parts of complex numbers both sums are one reduction, into which a GPU takes what makes them; two are not.
    both = in_rows(jax.lax.complex(given * arrived, arrived)).sum(range(given.ndim - 1))
    return both.real, both.imag
