"""Weight gradients of a network that a scan calls many times, as one large product after the backward pass.

In the forward pass a tape records the activations of every evaluation. The backward pass replays them instead of
recomputing them, treats the weights as constants and records the cotangents of the matrix products. Activations and
cotangents of all steps together give the weight gradients. That saves one small product and one addition to a buffer
of the size of the weights per evaluation.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn.layout import in_rows

SPLIT_ROWS, SPLITS = 2**16, 4
"""A product over at least SPLIT_ROWS rows is split into SPLITS parts, which use more of a GPU."""


class LayerActivations(NamedTuple):
    """Products of a normed layer in every evaluation (N, B, F), and its outputs if another layer follows."""

    product: Array
    output: Array | None


class ForwardRecord(NamedTuple):
    """Inputs of all evaluations (N, B, ...), and the activations of each normed layer."""

    inputs: Array
    activations: list[LayerActivations]


class LayerGradients(NamedTuple):
    """Cotangents of the product of a normed layer (N, B, F), and partial sums (S, 3, F) for its affine parameters."""

    product: Array
    sums: Array


class BackwardRecord(NamedTuple):
    """Gradients of each normed layer, and cotangents (N, B, ...) of the product of a last layer without norm."""

    normed: list[LayerGradients]
    last: Array | None


@jax.custom_vjp
def tap_gradient(x: Array, tap: Array) -> Array:
    """`x` unchanged; its gradient is also the gradient of `tap`, in the dtype of `tap`."""
    del tap
    return x


def _tap_forward(x: Array, tap: Array) -> tuple[Array, Array]:
    # An empty array carries the dtype of the tap.
    return x, jnp.zeros((0,), tap.dtype)


def _tap_backward(empty: Array, gradient: Array) -> tuple[Array, Array]:
    return gradient, gradient.astype(empty.dtype)


tap_gradient.defvjp(_tap_forward, _tap_backward)


class BufferIndex(NamedTuple):
    """Row of an evaluation in the buffers: an offset from the first evaluation of its step."""

    first: Array
    offset: int

    @property
    def row(self) -> Array:
        """As a single index."""
        return self.first + self.offset


class TapedLayer(Protocol):
    """What a tape requires of a layer that ends in a norm."""

    def record(self, y: Array, activations: LayerActivations, index: BufferIndex) -> tuple[Array, LayerActivations]:
        """Output for the product `y`, and the activation buffers with this evaluation written."""

    def replay(
        self, y: Array, activations: LayerActivations, gradients: LayerGradients, index: BufferIndex
    ) -> tuple[Array, LayerGradients]:
        """Output of a recorded evaluation. The backward pass writes into the gradient buffers."""


class Tape(Protocol):
    """Records or replays the evaluations of a network. `known_result` is the result of a replayed evaluation."""

    known_result: Array | None

    def begin(self, inputs: Array) -> Array:
        """Starts an evaluation with these inputs."""

    def finish(self, layer: TapedLayer, y: Array) -> Array:
        """Output of the next normed layer for its product `y`."""

    def last(self, y: Array) -> Array:
        """Product of a last layer without norm."""


class RecordingTape:
    """One step of the forward scan; activations are written into buffers from row `index` on."""

    known_result: Array | None = None

    def __init__(self, activations: list[LayerActivations], index: Array) -> None:
        self.activations, self.index = list(activations), index
        self.inputs: list[Array] = []
        self.layers = 0

    def begin(self, inputs: Array) -> Array:
        """Keeps the inputs."""
        # With the barrier they are copied rather than recomputed from a wider array.
        inputs, self.layers = jax.lax.optimization_barrier(inputs), 0
        self.inputs.append(inputs)
        return inputs

    def finish(self, layer: TapedLayer, y: Array) -> Array:
        """Writes the activations."""
        at, self.layers = self.layers, self.layers + 1
        output, self.activations[at] = layer.record(
            y, self.activations[at], BufferIndex(self.index, len(self.inputs) - 1)
        )
        return output

    def last(self, y: Array) -> Array:
        """Not needed later."""
        return y


class ReplayTape:
    """One step of the backward scan: products are read instead of recomputed, and cotangents are written.

    Gradient buffers pass through all evaluations as part of the result, and return as part of the gradient.
    """

    known_result: Array | None = None

    def __init__(
        self, activations: list[LayerActivations], index: Array, gradients: list[LayerGradients], taps: list[Array]
    ) -> None:
        """`taps` receive the gradients of last products, one per evaluation of this step."""
        self.activations, self.index, self.gradients, self.taps = activations, index, list(gradients), taps
        self.evaluations = self.layers = 0

    def begin(self, inputs: Array) -> Array:
        """Counts the evaluation."""
        self.evaluations, self.layers = self.evaluations + 1, 0
        return inputs

    def finish(self, layer: TapedLayer, y: Array) -> Array:
        """Reads the activations."""
        at, self.layers = self.layers, self.layers + 1
        index = BufferIndex(self.index, self.evaluations - 1)
        output, self.gradients[at] = layer.replay(y, self.activations[at], self.gradients[at], index)
        return output

    def last(self, y: Array) -> Array:
        """Taps the gradient."""
        return tap_gradient(y, self.taps[self.evaluations - 1])


Step = Callable[[Any, Any, Array], tuple[Any, Any]]
"""(carry, x, number of x) → (carry, y), as in jax.lax.scan."""


def buffered_scan(step: Step, first: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """jax.lax.scan with uninitialised output buffers, where jax.lax.scan fills them with zeros."""
    like = jax.tree.leaves(xs)[0]
    length, direction = like.shape[0], -1 if reverse else 1
    shapes = jax.eval_shape(lambda: step(first, jax.tree.map(lambda leaf: leaf[0], xs), jnp.asarray(0))[1])
    allocate = functools.partial(uninitialised, like, length)

    # The number is counted: one among the xs would be copied from an array in every step.
    def one(carry: tuple[Any, Any, Array], xs: Any) -> tuple[tuple[Any, Any, Array], None]:
        now, rows, index = carry
        now, ys = step(now, xs, index)
        written = jax.tree.map(lambda row, part: write_row(row, part, index), rows, ys)
        return (now, written, index + direction), None

    carry = (first, jax.tree.map(allocate, shapes), jnp.asarray(length - 1 if reverse else 0))
    (last, rows, _), _ = jax.lax.scan(one, carry, xs, reverse=reverse)
    return last, rows


def uninitialised(like: Array, length: int, part: jax.ShapeDtypeStruct) -> Array:
    """Uninitialised buffer of `length` parts; under vmap it has a batch axis if `like` has one."""
    shape = (length, *part.shape)

    @jax.custom_batching.custom_vmap
    def allocated(like: Array) -> Array:
        del like
        return jax.lax.empty(shape, part.dtype)

    @allocated.def_vmap
    def _(size: int, batched: list[bool], like: Array) -> tuple[Array, bool]:
        del batched, like
        return jax.lax.empty((size, *shape), part.dtype), True

    return allocated(like)


@jax.custom_batching.custom_vmap
def write_row(rows: Array, part: Array, index: Array) -> Array:
    """`rows` with one row replaced."""
    return jax.lax.dynamic_update_index_in_dim(rows, part, index, 0)


@write_row.def_vmap
def _(size: int, batched: list[bool], rows: Array, part: Array, index: Array) -> tuple[Array, bool]:
    """All replicas write at the same index; the general rule would be a scatter, which is slow."""
    assert not batched[2], "replicas write at one index"
    rows, part = (
        one if known else jnp.broadcast_to(one, (size, *one.shape))
        for one, known in zip((rows, part), batched[:2], strict=True)
    )
    return jax.lax.dynamic_update_slice_in_dim(rows, part[:, None], index, axis=1), True


@jax.custom_batching.custom_vmap
def read_row(rows: Array, index: Array) -> Array:
    """One row."""
    return jax.lax.dynamic_index_in_dim(rows, index, 0, keepdims=False)


@read_row.def_vmap
def _(size: int, batched: list[bool], rows: Array, index: Array) -> tuple[Array, bool]:
    """All replicas read at the same index; the general rule would be a gather."""
    del size
    assert batched == [True, False], "replicas read at one index"
    return jax.lax.dynamic_index_in_dim(rows, index, 1, keepdims=False), True


def weight_gradient(inputs: Array, cotangent: Array) -> Array:
    """Gradient of a weight (in, out) from the inputs (..., in) and cotangents (..., out) of all its products."""
    rows = inputs.size // inputs.shape[-1]
    splits = math.gcd(rows, SPLITS) if rows >= SPLIT_ROWS else 1
    inputs, cotangent = (part.reshape(splits, -1, part.shape[-1]) for part in (inputs, cotangent))
    weight = jax.lax.dot_general(inputs, cotangent, (((1,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32)
    # Without the barrier the compiler merges the parts again.
    return jax.lax.optimization_barrier(weight).sum(0)


def scale_gradient(inputs: Array, cotangent: Array) -> tuple[Array, Array]:
    """Gradients of scale and shift (F,) of an elementwise map from inputs and cotangents (..., F) of all its calls."""
    # As real and imaginary part, both sums are one reduction, which a GPU fuses with its producers; two are not.
    both = in_rows(jax.lax.complex(inputs * cotangent, cotangent)).sum(range(inputs.ndim - 1))
    return both.real, both.imag
