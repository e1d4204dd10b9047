"""Permutation tests of two groups of seeds: exact while the splits can be listed, else a fixed sample of them."""

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from dreamproof.stats.describe import Floats

EXACT_SPLITS = 200_000
SAMPLED_SPLITS = 20_000
LISTED_PAIRS = 16
SPLIT_SEED = 20240301
_TIE = 1e-9


@lru_cache(maxsize=32)
def _splits(treated: int, total: int) -> tuple[NDArray[np.float64], bool]:
    """(splits, total) rows of ones where a seed counts as treated; and whether that is every split."""
    if comb(total, treated) <= EXACT_SPLITS:
        chosen = np.array(list(combinations(range(total), treated)), dtype=np.int64)
        exact = True
    else:
        generator = np.random.default_rng((SPLIT_SEED, treated, total))
        chosen = np.argsort(generator.random((SAMPLED_SPLITS, total)), axis=1)[:, :treated]
        exact = False
    rows = np.zeros((len(chosen), total))
    np.put_along_axis(rows, chosen, 1.0, axis=1)
    return rows, exact


def _statistics(rows: Floats, values: Floats, treated: int) -> Floats:
    """Welch's t of every split; the plain difference for groups of one size (the same order, and cheaper)."""
    total = len(values)
    others = total - treated
    sums = rows @ values
    difference = sums / treated - (values.sum() - sums) / others
    if treated == others or min(treated, others) < 2:
        return np.asarray(difference)
    squares = rows @ values**2
    spread_treated = np.maximum(squares - sums**2 / treated, 0) / (treated - 1) / treated
    rest_sum, rest_square = values.sum() - sums, (values**2).sum() - squares
    spread_others = np.maximum(rest_square - rest_sum**2 / others, 0) / (others - 1) / others
    return np.asarray(difference / np.sqrt(spread_treated + spread_others + _TIE**2))


def _scaled(treatment: Floats, reference: Floats) -> Floats | None:
    """Both groups, treatment first, centred and scaled to one; None if nothing varies or overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        both = np.concatenate([treatment, reference])
        centred = both - both.mean()
        size = np.abs(centred).max()
    if not np.isfinite(size) or size <= 0:
        return None
    return np.asarray(centred / size)


def permutation_p(treatment: Floats, reference: Floats, side: str = "two") -> float | None:
    """p of the hypothesis that both groups are of one kind; `side` is two, greater or less (treatment against it)."""
    if len(treatment) == 0 or len(reference) == 0:
        return None
    values = _scaled(treatment, reference)
    if values is None:
        return 1.0
    rows, exact = _splits(len(treatment), len(values))
    found = _statistics(rows, values, len(treatment))
    own = np.zeros((1, len(values)))
    own[0, : len(treatment)] = 1.0
    observed = float(_statistics(own, values, len(treatment))[0])
    slack = _TIE * max(1.0, abs(observed))
    hits = _hits(found, observed, side, slack)
    return hits / len(found) if exact else (hits + 1) / (len(found) + 1)


def smallest_p(treated: int, others: int) -> float:
    """The smallest two-sided p that an exact test of these group sizes can give."""
    if treated < 1 or others < 1:
        return 1.0
    sides = 2 if treated == others else 1
    return min(1.0, sides / comb(treated + others, treated))


def smallest_possible_p(seeds: int, paired: bool) -> float:
    """The smallest two-sided p of so many seeds per arm."""
    return smallest_paired_p(seeds) if paired else smallest_p(seeds, seeds)


def fewest_seeds(alpha: float, paired: bool = False) -> int:
    """The smallest number of seeds per arm with which an exact test can reach `alpha` at all."""
    count = 2
    while smallest_possible_p(count, paired) > alpha:
        count += 1
    return count


@lru_cache(maxsize=16)
def _flips(count: int) -> tuple[NDArray[np.float64], bool]:
    """(flips, count) rows of plus and minus one; and whether that is every one."""
    if count <= LISTED_PAIRS:
        turned = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return np.asarray(1.0 - 2.0 * turned, dtype=np.float64), True
    generator = np.random.default_rng((SPLIT_SEED, count))
    return generator.choice([-1.0, 1.0], size=(SAMPLED_SPLITS, count)), False


def sign_flip_p(differences: Floats, side: str = "two") -> float | None:
    """p of paired differences, every pair may be turned round; `side` is two, greater or less."""
    count = len(differences)
    size = float(np.abs(differences).max()) if count else 0.0
    if count == 0:
        return None
    if not np.isfinite(size) or size <= 0:
        return 1.0
    values = differences / size
    flips, exact = _flips(count)
    extra = 0 if exact else 1
    hits = _hits(flips @ values, float(values.sum()), side, _TIE)
    return (hits + extra) / (len(flips) + extra)


def smallest_paired_p(pairs: int) -> float:
    """The smallest two-sided p that an exact test of so many pairs can give."""
    return min(1.0, 0.5 ** (pairs - 1))


def _hits(found: Floats, observed: float, side: str, slack: float) -> int:
    """How many of all arrangements are at least as extreme as the observed one."""
    if side == "two":
        return int((np.abs(found) >= abs(observed) - slack).sum())
    if side == "greater":
        return int((found >= observed - slack).sum())
    if side == "less":
        return int((found <= observed + slack).sum())
    raise ValueError(f"'{side}' is not two, greater or less")
