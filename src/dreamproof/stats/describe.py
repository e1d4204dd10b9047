"""Statistics of one arm over its seeds: centre, spread, two kinds of interval, and a test for two groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Counts = NDArray[np.int16]

LEVEL = 0.95
BOOTSTRAP_DRAWS = 4000
BOOTSTRAP_SEED = 20240229
TAIL_SHARE = 0.1

# Largest gap over range of n sorted normal values, 95 % and 99 % quantiles of 200,000 draws: wider means two groups.
_GAP_SHARES = {
    3: (0.970, 0.994),
    4: (0.851, 0.931),
    5: (0.744, 0.844),
    6: (0.660, 0.763),
    7: (0.599, 0.698),
    8: (0.550, 0.648),
    9: (0.513, 0.608),
    10: (0.485, 0.576),
    12: (0.440, 0.527),
    15: (0.395, 0.477),
    20: (0.349, 0.428),
    30: (0.302, 0.372),
    50: (0.259, 0.323),
}


@dataclass(frozen=True)
class Interval:
    """A lower and an upper end."""

    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """True if `value` lies outside."""
        return value < self.low or value > self.high

    def inside(self, low: float, high: float) -> bool:
        """True if both ends lie strictly between `low` and `high`."""
        return low < self.low and self.high < high

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.low) and np.isfinite(self.high))


@dataclass(frozen=True)
class Summary:
    """One arm under one condition; every field is in the metric's own unit."""

    seeds: int
    mean: float
    iqm: float
    median: float
    sd: float | None
    minimum: float
    maximum: float
    t_interval: Interval | None
    bootstrap_interval: Interval | None
    two_groups: bool


def finite_values(values: Sequence[float] | Floats) -> Floats:
    """The values that are numbers, in their order."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    return array[np.isfinite(array)]


def interquartile_mean(values: Floats) -> float:
    """Mean of what is left when the lowest and highest quarter (rounded down) are cut off."""
    cut = int(0.25 * len(values))
    return float(np.sort(values)[cut : len(values) - cut].mean())


def sample_sd(values: Floats) -> float | None:
    """Standard deviation with n - 1, or None for fewer than two values."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def t_interval(values: Floats, level: float = LEVEL) -> Interval | None:
    """Student's interval of the mean, or None for fewer than two values."""
    spread = sample_sd(values)
    if spread is None:
        return None
    half = float(special.stdtrit(len(values) - 1, 0.5 + level / 2)) * spread / sqrt(len(values))
    centre = float(values.mean())
    return Interval(centre - half, centre + half)


@lru_cache(maxsize=64)
def resample_counts(count: int, draws: int = BOOTSTRAP_DRAWS, stream: int = 0) -> Counts:
    """(count, draws): how often each value is drawn with replacement; the same for the same arguments, always."""
    generator = np.random.default_rng((BOOTSTRAP_SEED, count, draws, stream))
    drawn = generator.integers(0, count, size=(draws, count)) + count * np.arange(draws)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=draws * count).reshape(draws, count).T.astype(np.int16)


# Share of the sorted values that is cut off at each end.
CUTS = {"mean": 0.0, "iqm": 0.25, "median": 0.5}


def bootstrap_interval(
    strata: Sequence[Floats], statistic: str = "iqm", level: float = LEVEL, draws: int = BOOTSTRAP_DRAWS
) -> Interval | None:
    """Percentile interval of `iqm`, `mean` or `median` over all strata, each resampled within itself."""
    if statistic not in CUTS:
        raise ValueError(f"'{statistic}' is not iqm, mean or median")
    kept = [values for values in strata if len(values) > 0]
    if not kept or max(map(len, kept)) < 2:
        return None
    counts = [resample_counts(len(values), draws, place) for place, values in enumerate(kept)]
    return _percentile_interval(np.concatenate(kept), np.concatenate(counts), CUTS[statistic], level)


def joint_interval(table: Floats, level: float = LEVEL, draws: int = BOOTSTRAP_DRAWS) -> Interval | None:
    """Percentile interval of the IQM of (seeds, conditions): seeds are resampled with all their conditions."""
    seeds, conditions = table.shape
    if seeds < 2:
        return None
    counts = np.repeat(resample_counts(seeds, draws), conditions, axis=0)
    return _percentile_interval(table.reshape(-1), counts, CUTS["iqm"], level)


def _percentile_interval(values: Floats, counts: Counts, cut: float, level: float) -> Interval:
    """Interval of the trimmed mean, by how often every value is in each draw: (values, draws)."""
    order, total = np.argsort(values), len(values)
    # At most half of the values minus one half, which leaves the middle one or two: the median.
    outside = min(int(cut * total), (total - 1) // 2)
    ends = counts[order] if total < 1 << 15 else counts[order].astype(np.int64)
    for place in range(1, total):  # np.cumsum along this axis takes several times as long
        ends[place] += ends[place - 1]
    np.clip(ends, outside, total - outside, out=ends)
    parts = values[order] / (total - 2 * outside)
    means = parts[-1] * (total - outside) - parts[0] * outside - np.diff(parts) @ ends[:-1]
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(low), float(high))


def falls_into_two_groups(values: Floats, strict: bool = False) -> bool:
    """True if the widest gap between neighbours is wider than in 95 % (strict: 99 %) of normal samples of that size."""
    count = len(values)
    if count < 4:
        return False
    ordered = np.sort(values)
    with np.errstate(over="ignore"):
        span = float(ordered[-1] - ordered[0])
    if not np.isfinite(span) or span <= 0:
        return False
    sizes = list(_GAP_SHARES)
    limit = float(np.interp(count, sizes, [shares[strict] for shares in _GAP_SHARES.values()]))
    return bool(np.diff(ordered).max() / span > limit)


def summarise(values: Floats) -> Summary | None:
    """Everything computed for one arm under one condition, or None without a single number."""
    kept = finite_values(values)
    if len(kept) == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return Summary(
            seeds=len(kept),
            mean=float(kept.mean()),
            iqm=interquartile_mean(kept),
            median=float(np.median(kept)),
            sd=sample_sd(kept),
            minimum=float(kept.min()),
            maximum=float(kept.max()),
            t_interval=t_interval(kept),
            bootstrap_interval=bootstrap_interval([kept]),
            two_groups=falls_into_two_groups(kept),
        )


def zero_share(episode_values: Floats) -> float | None:
    """Share of episodes with value zero, e.g. P(cost = 0)."""
    return float((episode_values == 0).mean()) if len(episode_values) else None


def tail_mean(episode_values: Floats, share: float = TAIL_SHARE) -> float | None:
    """Mean of the worst `share` of episodes (CVaR90 for a tenth); at least one episode counts."""
    if len(episode_values) == 0:
        return None
    count = max(1, round(share * len(episode_values)))
    return float(np.sort(episode_values)[-count:].mean())
