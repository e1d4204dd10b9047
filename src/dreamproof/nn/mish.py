"""Mish (Misra, 2019) and its slope, each with a single exponential."""

import jax
import jax.numpy as jnp
from jax import Array


@jax.custom_jvp
def mish(x: Array) -> Array:
    """x·tanh(softplus(x))."""
    grown = jnp.exp(jnp.minimum(x, 20.0))
    ratio = grown * (grown + 2.0)
    return x * (ratio / (ratio + 2.0))


def mish_slope(x: Array) -> Array:
    """With e = exp(x) and r = e(e + 2): r/(r + 2) + x·4e(e + 1)/(r + 2)²."""
    grown = jnp.exp(jnp.minimum(x, 20.0))
    ratio = grown * (grown + 2.0)
    inverse = 1.0 / (ratio + 2.0)
    return inverse * (ratio + x * (4.0 * grown * (grown + 1.0)) * inverse)


@mish.defjvp
def _mish_moved(at: tuple[Array], moved: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = at, moved
    return mish(x), dx * mish_slope(x)
