"""Weight gradients of a network that a scan calls many times, as one large product after the backward pass.

On the way there a tape records the products of every evaluation. On the way back they are recalled instead of made
anew, the weights take no gradient, and the gradients that arrive at products and outputs of layers are kept. Both
together, over all steps, yield the gradients of the weights. That spares the backward pass one small product and one
addition to a buffer as large as the weights in every evaluation.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


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

    `reached` is what a step that is recalled ended in.
    """

    def __init__(self, memory: Memory | None = None, reached: Array | None = None) -> None:
        self.memory, self.reached = memory, reached
        self.given: list[Array] = []
        self.made: list[list[Array]] = []

    def begin(self, given: Array) -> None:
        """A network is evaluated; products and outputs of its layers follow."""
        self.given.append(given)
        self.made.append([])

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


def told_apart(tree: Any, first: int) -> Any:
    """Arrays (K, B, F) of one step of a scan with ever more axes in front, `first` of them to begin with.

    What a scan collects starts as zeros. Zeros of one shape are one array to the compiler, which then copies it.
    """
    leaves, kind = jax.tree.flatten(tree)
    apart = [leaf.reshape((1,) * (first + place) + leaf.shape) for place, leaf in enumerate(leaves)]
    return jax.tree.unflatten(kind, apart)


def brought_together(tree: Any) -> Any:
    """What a scan collected of arrays that were told apart, (T, K, B, F)."""
    return jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[0], *leaf.shape[-3:]), tree)


def affine_gradient(given: Array, arrived: Array) -> tuple[Array, Array]:
    """Gradients of weight (in, out) and bias (out,) of one affine map from all its calls (..., in) and (..., out)."""
    rows = tuple(range(given.ndim - 1))
    weight = jax.lax.dot_general(given, arrived, ((rows, rows), ((), ())), preferred_element_type=jnp.float32)
    return weight, arrived.sum(rows, dtype=jnp.float32)


def scale_gradient(given: Array, arrived: Array) -> tuple[Array, Array]:
    """Gradients of scale and shift (F,) of one elementwise map from all its calls, both (..., F) in float32."""
    # As parts of complex numbers both sums are one reduction, into which a GPU takes what makes them; two are not.
    both = jax.lax.complex(given * arrived, arrived).sum(range(given.ndim - 1))
    return both.real, both.imag
