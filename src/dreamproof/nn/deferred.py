"""Weight gradients of a network that a scan calls many times, as one large product after the backward pass.

Inside the scan the weights take no gradient. Each affine map keeps what it was given and has a tap at which the
gradient of what it made arrives; both together, over all steps, yield the gradient of the weights. That spares the
backward pass one small product and one addition to a buffer as large as the weights in every step.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


@jax.custom_vjp
def tapped(made: Array, tap: Array) -> Array:
    """`made` as it is; its gradient arrives at `tap` too, in the tap's precision."""
    del tap
    return made


def _forward(made: Array, tap: Array) -> tuple[Array, Array]:
    # An empty array remembers the tap's type.
    return made, jnp.zeros((0,), tap.dtype)


def _backward(empty: Array, gradient: Array) -> tuple[Array, Array]:
    return gradient, gradient.astype(empty.dtype)


tapped.defvjp(_forward, _backward)


class Tape:
    """One step of a scan: hands every affine map its tap, in the order of calls, and keeps what the map was given."""

    def __init__(self, taps: list[Array] | None = None) -> None:
        self.taps = taps
        self.given: list[Array] = []
        self.made: list[Array] = []

    def __call__(self, given: Array, made: Array) -> Array:
        """`made`, tapped."""
        index = len(self.given)
        self.given.append(jax.lax.stop_gradient(given))
        self.made.append(made)
        return made if self.taps is None else tapped(made, self.taps[index])


def empty_taps(made: Any, steps: int, dtype: Any) -> list[Array]:
    """Taps (T, ...) for all calls of a step whose results have the shapes of `made`."""
    return [jnp.zeros((steps, *shape.shape), dtype) for shape in made]


def affine_gradient(given: list[Array], arrived: list[Array]) -> tuple[Array, Array]:
    """Gradients of weight (in, out) and bias (out,) of one affine map over all its calls, each (T, B, ...)."""
    over_steps = (((0, 1), (0, 1)), ((), ()))
    weights = [
        jax.lax.dot_general(x.astype(g.dtype), g, over_steps, preferred_element_type=jnp.float32)
        for x, g in zip(given, arrived, strict=True)
    ]
    biases = [g.sum((0, 1), dtype=jnp.float32) for g in arrived]
    return sum(weights[1:], start=weights[0]), sum(biases[1:], start=biases[0])


def scale_gradient(given: list[Array], arrived: list[Array]) -> tuple[Array, Array]:
    """Gradients of scale and shift (features,) of one elementwise map over all its calls, each (T, B, features)."""
    wide = [(x.astype(jnp.float32), g.astype(jnp.float32)) for x, g in zip(given, arrived, strict=True)]
    scales = [(x * g).sum((0, 1)) for x, g in wide]
    shifts = [g.sum((0, 1)) for _, g in wide]
    return sum(scales[1:], start=scales[0]), sum(shifts[1:], start=shifts[0])
