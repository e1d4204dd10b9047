"""How many seeds a question needs: noncentral t, planned with an upper bound of the spread."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

ALPHA = 0.05
POWER = 0.8
SD_CONFIDENCE = 0.8
SEEDS_LIMIT = 1_000_000
NODES = 512
FAR = 40.0

Floats = NDArray[np.float64]


def sd_upper_bound(sd: float, degrees_of_freedom: int, confidence: float = SD_CONFIDENCE) -> float:
    """The sd that is not exceeded with `confidence`, given an estimate from few seeds."""
    return float(sd * np.sqrt(degrees_of_freedom / stats.chi2.ppf(1 - confidence, degrees_of_freedom)))


def power_of(seeds_per_arm: int, effect: float, alpha: float = ALPHA) -> float:
    """Chance that a two-sided two-sample t test finds `effect` (difference over sd) with so many seeds per arm."""
    if seeds_per_arm < 2:
        return 0.0
    freedom = 2 * seeds_per_arm - 2
    centre = abs(effect) * np.sqrt(seeds_per_arm / 2)
    edge = stats.t.ppf(1 - alpha / 2, freedom)
    spreads, weights = _spread_nodes(freedom)
    # Both tails of the noncentral t as a mean over the estimated spread; SciPy's own lower tail is nan beyond 3.6.
    found = special.ndtr(centre - edge * spreads) + special.ndtr(-centre - edge * spreads)
    return float(weights @ found)


@lru_cache(maxsize=1)
def _legendre_nodes() -> tuple[Floats, Floats]:
    """Points and weights of a Gauss–Legendre sum over (-1, 1)."""
    points, weights = special.roots_legendre(NODES)
    return points, weights


def _spread_nodes(freedom: int) -> tuple[Floats, Floats]:
    """Where an estimated sd over the true one may lie, and weights: chi's density over all but exp(-FAR) of it."""
    points, weights = _legendre_nodes()
    # The bounds of Laurent and Massart (2000), Lemma 1, for the square.
    reach = 2 * np.sqrt(FAR / freedom)
    low, high = np.sqrt(max(0.0, 1 - reach)), np.sqrt(1 + reach + 2 * FAR / freedom)
    spreads = low + (high - low) * (points + 1) / 2
    half = freedom / 2
    density = np.log(2) + half * np.log(half) - special.gammaln(half)
    density = np.exp(density + (freedom - 1) * np.log(spreads) - half * spreads**2)
    return spreads, weights * (high - low) / 2 * density


def seeds_needed(difference: float, sd: float, alpha: float = ALPHA, power: float = POWER) -> int | None:
    """The smallest number of seeds per arm that finds `difference` with `power`; None beyond a million."""
    if not (np.isfinite(sd) and np.isfinite(difference)) or difference == 0 or sd < 0:
        return None
    if sd == 0:
        return 2
    effect = abs(difference) / sd
    if not np.isfinite(effect):
        return 2
    if power_of(SEEDS_LIMIT, effect, alpha) < power:
        return None
    low, high = 1, 2
    while power_of(high, effect, alpha) < power:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(middle, effect, alpha) < power:
            low = middle
        else:
            high = middle
    return high
