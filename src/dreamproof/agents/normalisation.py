"""Running statistics of returns and rewards."""

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
    """The initial spread."""
    return Spread(jnp.zeros(()), jnp.zeros(()))


def update_spread(spread: Spread, values: Array, rate: float = 0.01) -> Spread:
    """Moves towards the percentiles of `values`."""
    low, high = jnp.percentile(values, jnp.array([5.0, 95.0]))
    return Spread(spread.low + rate * (low - spread.low), spread.high + rate * (high - spread.high))


class Moments(NamedTuple):
    """Averages of values and of their squares times a common weight: exponential moving ones, or over all history."""

    total: Array
    squares: Array
    weight: Array

    @property
    def mean(self) -> Array:
        """E[x]; 0 before the first update."""
        return self.total / jnp.where(self.weight > 0, self.weight, 1.0)

    @property
    def root_mean_square(self) -> Array:
        """√E[x²]; 1 before the first update."""
        seen = self.weight > 0
        return jnp.where(seen, jnp.sqrt(self.squares / jnp.where(seen, self.weight, 1.0) + 1e-8), 1.0)

    @property
    def deviation(self) -> Array:
        """√(Var[x] + 1e-5); 1 before the first update."""
        seen = self.weight > 0
        weight = jnp.where(seen, self.weight, 1.0)
        variance = jnp.maximum(self.squares / weight - (self.total / weight) ** 2, 0.0)
        return jnp.where(seen, jnp.sqrt(variance + 1e-5), 1.0)


def init_moments() -> Moments:
    """The initial moments."""
    return Moments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def update_moments(moments: Moments, values: Array, weights: Array, rate: float = 0.01) -> Moments:
    """Moves towards the weighted means of `values` and of their squares; if all weights are 0 nothing changes."""
    total = weights.sum()
    step = rate * (total > 0)
    divisor = jnp.maximum(total, 1e-8)
    batch = Moments((weights * values).sum() / divisor, (weights * values**2).sum() / divisor, jnp.ones(()))
    return Moments(*(old + step * (new - old) for old, new in zip(moments, batch, strict=True)))


def add_moments(moments: Moments, values: Array, weights: Array) -> Moments:
    """Counts `values` by their weights beside all earlier ones."""
    sums = ((weights * values).sum(), (weights * values**2).sum(), weights.sum())
    return Moments(*(old + new for old, new in zip(moments, sums, strict=True)))
