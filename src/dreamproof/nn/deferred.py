"""Weight gradients of a network that a scan calls many times, as one large product after the backward pass.

On the way there a tape records what the layers make in every evaluation. On the way back that is recalled instead of
made anew, the weights take no gradient, and the gradients that arrive at products are noted. Both together, over all
steps, yield the gradients of the weights. That spares the backward pass one small product and one addition to a buffer
as large as the weights in every evaluation.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn.layers import in_rows

SHARED, SHARES = 2**16, 4
"""A product over so many rows is made in so many shares: more pieces of equal work, which keep a whole GPU busy."""


class Made(NamedTuple):
    """What the product of a normed layer made in every evaluation (N, B, F), and its outputs where another follows."""

    product: Array
    output: Array | None


class Recorded(NamedTuple):
    """What all evaluations (N, B, ...) were given, and what each normed layer made of it."""

    given: Array
    made: list[Made]


class Notes(NamedTuple):
    """Gradients at the product of a normed layer (N, B, F); and at its affine parts, so far, in shares (S, F)."""

    product: Array
    bias: Array
    scale: Array
    shift: Array


class Arrived(NamedTuple):
    """What was noted of each normed layer, and the gradients (N, B, ...) at the product of a last one without norm."""

    normed: list[Notes]
    last: Array | None


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


class Place(NamedTuple):
    """Where an evaluation is written: so many ahead of the first one of its step."""

    first: Array
    ahead: int

    @property
    def number(self) -> Array:
        """As one number."""
        return self.first + self.ahead


class Layer(Protocol):
    """What a tape asks of a layer that ends in a norm."""

    def noted(self, y: Array, made: Made, place: Place) -> tuple[Array, Made]:
        """What follows the product, and what was made so far with this in its place."""

    def recalled(self, y: Array, made: Made, notes: Notes, place: Place) -> tuple[Array, Notes]:
        """What followed the product that was made there. On the way back gradients are written into the notes."""


class Tape(Protocol):
    """What a network tells of each of its evaluations. `reached` is where one ended that is being recalled."""

    reached: Array | None

    def begin(self, given: Array) -> Array:
        """It is evaluated on this."""

    def finish(self, layer: Layer, y: Array) -> Array:
        """What follows the product of its next normed layer."""

    def last(self, y: Array) -> Array:
        """The product of a last layer without norm."""


class Recorder:
    """One step of a scan on the way there: `made` has room for all that is made, in this step from `place` on."""

    reached: Array | None = None

    def __init__(self, made: list[Made], place: Array) -> None:
        self.made, self.place = list(made), place
        self.given: list[Array] = []
        self.layers = 0

    def begin(self, given: Array) -> Array:
        """Keeps it."""
        # The barrier has it copied, rather than made anew from what is wider.
        given, self.layers = jax.lax.optimization_barrier(given), 0
        self.given.append(given)
        return given

    def finish(self, layer: Layer, y: Array) -> Array:
        """Writes the product down."""
        at, self.layers = self.layers, self.layers + 1
        output, self.made[at] = layer.noted(y, self.made[at], Place(self.place, len(self.given) - 1))
        return output

    def last(self, y: Array) -> Array:
        """Nothing asks for it later."""
        return y


class Recaller:
    """The same step on the way back: products are read instead of made anew, and gradients that arrive are written.

    Notes go through all evaluations as if they were a part of the result, and come back as a part of the gradient.
    """

    reached: Array | None = None

    def __init__(self, made: list[Made], place: Array, notes: list[Notes], taps: list[Array]) -> None:
        """`taps` are where gradients arrive at last products, one of each evaluation in this step."""
        self.made, self.place, self.notes, self.taps = made, place, list(notes), taps
        self.evaluations = self.layers = 0

    def begin(self, given: Array) -> Array:
        """Counts."""
        self.evaluations, self.layers = self.evaluations + 1, 0
        return given

    def finish(self, layer: Layer, y: Array) -> Array:
        """Reads the product."""
        at, self.layers = self.layers, self.layers + 1
        place = Place(self.place, self.evaluations - 1)
        output, self.notes[at] = layer.recalled(y, self.made[at], self.notes[at], place)
        return output

    def last(self, y: Array) -> Array:
        """Taps it."""
        return tapped(y, self.taps[self.evaluations - 1])


Step = Callable[[Any, Any], tuple[Any, Any]]
"""(what goes on, what is told) → what goes on, and what is collected."""


def collecting_scan(step: Step, first: Any, told: Any, reverse: bool = False) -> tuple[Any, Any]:
    """jax.lax.scan, but memory for what it collects is taken as it is, where jax.lax.scan fills it with zeros."""
    witness = jax.tree.leaves(told)[0]
    length = witness.shape[0]
    shapes = jax.eval_shape(lambda: step(first, jax.tree.map(lambda leaf: leaf[0], told))[1])
    room = functools.partial(blank, witness, length)

    def one(carry: tuple[Any, Any], at: tuple[Array, Any]) -> tuple[tuple[Any, Any], None]:
        (now, rows), (place, told) = carry, at
        now, made = step(now, told)
        return (now, jax.tree.map(lambda row, part: written(row, part, place), rows, made)), None

    carry = (first, jax.tree.map(room, shapes))
    (last, rows), _ = jax.lax.scan(one, carry, (jnp.arange(length), told), reverse=reverse)
    return last, rows


def blank(witness: Array, length: int, part: jax.ShapeDtypeStruct) -> Array:
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
def written(rows: Array, part: Array, place: Array) -> Array:
    """`rows` with one of them replaced."""
    return jax.lax.dynamic_update_index_in_dim(rows, part, place, 0)


@written.def_vmap
def _(size: int, batched: list[bool], rows: Array, part: Array, place: Array) -> tuple[Array, bool]:
    """All replicas write at the same place. Told in general, JAX would make a scatter of it, which is slow."""
    assert not batched[2], "replicas write at one place"
    rows, part = (
        one if known else jnp.broadcast_to(one, (size, *one.shape))
        for one, known in zip((rows, part), batched[:2], strict=True)
    )
    return jax.lax.dynamic_update_slice_in_dim(rows, part[:, None], place, axis=1), True


@jax.custom_batching.custom_vmap
def read(rows: Array, place: Array) -> Array:
    """One of them."""
    return jax.lax.dynamic_index_in_dim(rows, place, 0, keepdims=False)


@read.def_vmap
def _(size: int, batched: list[bool], rows: Array, place: Array) -> tuple[Array, bool]:
    """All replicas read at the same place; told in general it would be a gather."""
    del size
    assert batched == [True, False], "replicas read at one place"
    return jax.lax.dynamic_index_in_dim(rows, place, 1, keepdims=False), True


def weight_gradient(given: Array, arrived: Array) -> Array:
    """The gradient of a weight (in, out) from all its products: what was given (..., in), what arrived (..., out)."""
    rows = given.size // given.shape[-1]
    shares = math.gcd(rows, SHARES) if rows >= SHARED else 1
    given, arrived = (part.reshape(shares, -1, part.shape[-1]) for part in (given, arrived))
    weight = jax.lax.dot_general(given, arrived, (((1,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32)
    # Without the barrier the compiler takes the shares together again.
    return jax.lax.optimization_barrier(weight).sum(0)


def scale_gradient(given: Array, arrived: Array) -> tuple[Array, Array]:
    """Gradients of scale and shift (F,) of one elementwise map from all its calls, both (..., F) in float32."""
    # As parts of complex numbers both sums are one reduction, into which a GPU takes what makes them; two are not.
    both = in_rows(jax.lax.complex(given * arrived, arrived)).sum(range(given.ndim - 1))
    return both.real, both.imag
