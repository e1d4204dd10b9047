"""DM-Control's shaped rewards: 1 inside the bounds, falling to a value at the margin outside of them."""

import math
from typing import Literal

import jax.numpy as jnp
from jax import Array

Shape = Literal["gaussian", "linear", "quadratic"]


def tolerance(
    value: Array, bounds: tuple[float, float], margin: float, shape: Shape = "gaussian", at_margin: float = 0.1
) -> Array:
    """How well `value` lies within inclusive bounds, 0 to 1; `at_margin` is reached at a distance of `margin`."""
    lower, upper = bounds
    outside = jnp.maximum(jnp.maximum(lower - value, value - upper), 0.0)
    if margin == 0:
        return jnp.where(outside > 0, 0.0, 1.0)
    distance = outside / margin
    if shape == "gaussian":
        return jnp.exp(math.log(at_margin) * distance**2)
    if shape == "linear":
        return jnp.maximum(1.0 - (1.0 - at_margin) * distance, 0.0)
    return jnp.maximum(1.0 - (1.0 - at_margin) * distance**2, 0.0)
