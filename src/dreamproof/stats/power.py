"""How many seeds a question needs: noncentral t, planned with an upper bound of the spread."""

import numpy as np
from scipy import stats

ALPHA = 0.05
POWER = 0.8
SD_CONFIDENCE = 0.8
SEEDS_LIMIT = 1_000_000


def sd_upper_bound(sd: float, degrees_of_freedom: int, confidence: float = SD_CONFIDENCE) -> float:
    """The sd that is not exceeded with `confidence`, given an estimate from few seeds."""
    return float(sd * np.sqrt(degrees_of_freedom / stats.chi2.ppf(1 - confidence, degrees_of_freedom)))


def power_of(seeds_per_arm: int, effect: float, alpha: float = ALPHA) -> float:
    """Chance that a two-sided two-sample t test finds `effect` (difference over sd) with so many seeds an arm."""
    if seeds_per_arm < 2:
        return 0.0
    freedom = 2 * seeds_per_arm - 2
    centre = abs(effect) * np.sqrt(seeds_per_arm / 2)
    edge = stats.t.ppf(1 - alpha / 2, freedom)
    # The noncentral t of scipy gives nan far in the tail, where the normal is exact enough.
    if centre > 30 or freedom > 10_000:
        return float(stats.norm.sf(edge - centre) + stats.norm.cdf(-edge - centre))
    upper = stats.nct.sf(edge, freedom, centre)
    lower = stats.nct.cdf(-edge, freedom, centre)
    return float(np.nan_to_num(upper) + np.nan_to_num(lower))


def seeds_needed(difference: float, sd: float, alpha: float = ALPHA, power: float = POWER) -> int | None:
    """The smallest number of seeds an arm that finds `difference` with `power`; None beyond a million."""
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


def smallest_effect(seeds_per_arm: int, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest difference in sds that so many seeds an arm find with `power`; None below two seeds."""
    if seeds_per_arm < 2:
        return None
    low, high = 0.0, 1.0
    while power_of(seeds_per_arm, high, alpha) < power and high < 1e4:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if power_of(seeds_per_arm, middle, alpha) < power else (low, middle)
    return high
