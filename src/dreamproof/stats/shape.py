"""Shapes of seeds that no test of means at few seeds can be trusted with: two groups, or very unequal spreads."""

import numpy as np
from scipy import special

from dreamproof.stats.describe import Floats, falls_into_two_groups

ENOUGH_SEEDS = 20
"""From so many seeds on, means of such shapes can be compared; what is rarer than 14 % of seeds may still be unseen."""
UNEQUAL_RATIO = 5.0
UNEQUAL_LEVEL = 0.01


def spreads_differ(first: Floats, second: Floats) -> bool:
    """True if one sd is over five times the other, and more than in 99 % of normal samples of equal spread."""
    count = min(len(first), len(second))
    if count < 3:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = sorted((float(first.std(ddof=1)), float(second.std(ddof=1))))
    if not np.isfinite(high) or high == 0:
        return False
    by_chance = float(special.fdtri(count - 1, count - 1, 1 - UNEQUAL_LEVEL / 2)) ** 0.5
    return bool(high > low * max(UNEQUAL_RATIO, by_chance))


def separated(first: Floats, second: Floats) -> bool:
    """True if every seed of one group is at least as high as every seed of the other."""
    return bool(first.min() >= second.max() or second.min() >= first.max())


def mean_misleads(treatment: Floats, reference: Floats) -> bool:
    """True if fewer than 20 seeds per arm overlap and have two groups or very unequal spreads."""
    if len(treatment) >= ENOUGH_SEEDS or separated(treatment, reference):
        return False
    grouped = any(falls_into_two_groups(values, strict=True) for values in (treatment, reference))
    return grouped or spreads_differ(treatment, reference)


def differences_mislead(differences: Floats) -> bool:
    """True if fewer than 20 paired differences of both signs fall into two groups."""
    few = len(differences) < ENOUGH_SEEDS and not separated(differences, np.zeros(1))
    return few and falls_into_two_groups(differences, strict=True)
