"""Distributions of seeds with a known mean, from which simulated studies are drawn."""

from collections.abc import Callable

import numpy as np

from dreamproof.stats.describe import Floats

SEED = 20240302
Draw = Callable[[np.random.Generator, int], Floats]


def rate_text(rate: float, studies: int) -> str:
    """A rate with its simulation error: 4.3 ± 0.5 %."""
    return f"{100 * rate:.1f} ± {100 * (max(rate, 1 / studies) * (1 - rate) / studies) ** 0.5:.1f}"


def log_normal(sigma: float) -> Draw:
    """Log-normal seeds of mean one."""
    return lambda generator, count: np.exp(sigma * generator.standard_normal(count) - sigma**2 / 2)


def near_normal(spread: float) -> Draw:
    """Normal seeds of mean one, cut at zero."""
    return lambda generator, count: np.maximum(0.0, 1 + spread * generator.standard_normal(count))


def exponential(generator: np.random.Generator, count: int) -> Floats:
    """Exponential seeds of mean one."""
    return generator.standard_exponential(count)


def half_gamma(generator: np.random.Generator, count: int) -> Floats:
    """Gamma seeds of shape one half and mean one."""
    return generator.gamma(0.5, 2.0, count)


def often_zero(share: float, others: Draw) -> Draw:
    """Seeds that are zero in a share of cases; mean one."""
    return lambda generator, count: (generator.random(count) >= share) * others(generator, count) / (1 - share)


def two_levels(share: float, low: float) -> Draw:
    """Seeds near `low`, and a share of them so high that the mean is one."""
    high = (1 - (1 - share) * low) / share
    jitter = log_normal(0.1)
    return lambda generator, count: np.where(generator.random(count) < share, high, low) * jitter(generator, count)
