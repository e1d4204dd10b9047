"""Mish (Misra, 2019) and its slope: one exponential and one division for both; and the slope of SiLU."""

import math

import jax
import jax.numpy as jnp
from jax import Array


@jax.custom_jvp
def mish(x: Array) -> Array:
    """x·tanh(softplus(x)), which is x·r/(r + 2)."""
    _, ratio, inverse = _parts(x)
    return x * (ratio * inverse)


def mish_slope(x: Array) -> Array:
    """r/(r + 2) + x·4e(e + 1)/(r + 2)²."""
    grown, ratio, inverse = _parts(x)
    return inverse * (ratio + x * (4.0 * grown * (grown + 1.0)) * inverse)


def _parts(x: Array) -> tuple[Array, Array, Array]:
    """e = exp(x), clipped to avoid overflow, r = e(e + 2) and 1/(r + 2)."""
    # A GPU has powers of two in its hardware.
    grown = jnp.exp2(jnp.minimum(x, 20.0) * (1.0 / math.log(2.0)))
    ratio = grown * (grown + 2.0)
    return grown, ratio, 1.0 / (ratio + 2.0)


@mish.defjvp
def _mish_moved(at: tuple[Array], moved: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = at, moved
    return mish(x), dx * mish_slope(x)


def silu_slope(x: Array) -> Array:
    """The slope of jax.nn.silu: σ·(1 + x·(1 − σ))."""
    share = jax.nn.sigmoid(x)
    return share * (1.0 + x * (1.0 - share))
