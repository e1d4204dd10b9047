"""Running scales of returns."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Spread(NamedTuple):
    """Exponential average of the 5th and 95th percentile (DreamerV3, 2023, eq. 7)."""

    low: Array
    high: Array

    @property
    def scale(self) -> Array:
        """max(1, P95 − P5)."""
        return jnp.maximum(1.0, self.high - self.low)


def init_spread() -> Spread:
    """A spread that has seen nothing."""
    return Spread(jnp.zeros(()), jnp.zeros(()))


def update_spread(spread: Spread, values: Array, rate: float = 0.01) -> Spread:
    """Moves towards the percentiles of `values`."""
    low, high = jnp.percentile(values, jnp.array([5.0, 95.0]))
    return Spread(spread.low + rate * (low - spread.low), spread.high + rate * (high - spread.high))
