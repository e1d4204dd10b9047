"""One arm against the reference: difference, two tests, probability of improvement, effect size; Holm over several."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from dreamproof.stats.describe import LEVEL, Floats, Interval, sample_sd, t_interval
from dreamproof.stats.permutation import permutation_p, sign_flip_p, smallest_p

TINY = 1e-9


@dataclass(frozen=True)
class Paired:
    """The same seeds in both arms, subtracted one by one."""

    pairs: int
    difference: float
    interval: Interval | None
    sign_flip_p: float | None
    sd: float | None


@dataclass(frozen=True)
class Comparison:
    """Treatment minus reference in the metric's unit; improvement counts in the declared direction."""

    treatment_seeds: int
    reference_seeds: int
    difference: float
    interval: Interval | None
    pooled_sd: float | None
    degrees_of_freedom: int
    welch_p: float | None
    permutation_p: float | None
    smallest_p: float
    improvement: float
    improvement_interval: Interval | None
    effect_size: float | None
    paired: Paired | None


def welch_interval(treatment: Floats, reference: Floats, level: float = LEVEL) -> Interval | None:
    """Welch's interval of the difference of means, or None if an arm has fewer than two seeds."""
    parts = _welch_parts(treatment, reference)
    if parts is None:
        return None
    difference, error, freedom = parts
    if error == 0:
        return Interval(difference, difference)
    half = float(special.stdtrit(freedom, 0.5 + level / 2)) * error
    return Interval(difference - half, difference + half)


def welch_p(treatment: Floats, reference: Floats) -> float | None:
    """Two-sided p of Welch's test; None if it does not exist (one seed, or no spread at all)."""
    parts = _welch_parts(treatment, reference)
    if parts is None:
        return None
    difference, error, freedom = parts
    if error == 0:
        return None
    return float(2 * special.stdtr(freedom, -abs(difference) / error))


def _welch_parts(treatment: Floats, reference: Floats) -> tuple[float, float, float] | None:
    if min(len(treatment), len(reference)) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        first = float(treatment.var(ddof=1)) / len(treatment)
        second = float(reference.var(ddof=1)) / len(reference)
        difference = float(treatment.mean() - reference.mean())
        total = first + second
        if not np.isfinite(total) or not np.isfinite(difference):
            return None
        # Shares of the total avoid the squares of very large or very small variances.
        shares = (first / total, second / total) if total > 0 else (0.5, 0.5)
    bottom = shares[0] ** 2 / (len(treatment) - 1) + shares[1] ** 2 / (len(reference) - 1)
    return difference, float(np.sqrt(total)), 1 / bottom


def improvement_probability(treatment: Floats, reference: Floats, sign: float = 1.0) -> float:
    """P(a seed of the treatment is better than one of the reference); ties count half."""
    return float(_wins(treatment, reference, sign).mean())


def _wins(treatment: Floats, reference: Floats, sign: float) -> Floats:
    left, right = sign * treatment[:, None], sign * reference[None, :]
    return np.asarray((left > right) + 0.5 * (left == right))


def improvement_interval(treatment: Floats, reference: Floats, sign: float = 1.0) -> Interval | None:
    """Newcombe's (2006, method 5) interval of the probability of improvement; wide also if all seeds are separated."""
    if min(len(treatment), len(reference)) < 2:
        return None
    found = improvement_probability(treatment, reference, sign)
    pairs, extra = len(treatment) * len(reference), (len(treatment) + len(reference)) / 2 - 1
    edge = float(special.ndtri(0.5 + LEVEL / 2)) ** 2

    def excess(true: float) -> float:
        """How far `found` lies outside the interval around `true`, squared."""
        ties = (1 - true) / (2 - true) + true / (1 + true)
        return (found - true) ** 2 - edge * true * (1 - true) * (1 + extra * ties) / pairs

    low = 0.0 if found == 0 else float(optimize.brentq(excess, 0.0, found - TINY))
    high = 1.0 if found == 1 else float(optimize.brentq(excess, found + TINY, 1.0))
    return Interval(low, high)


def pooled_sd(treatment: Floats, reference: Floats) -> float | None:
    """Square root of the mean variance of both arms, weighted by their degrees of freedom."""
    freedom = len(treatment) + len(reference) - 2
    if freedom < 1:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum((len(part) - 1) * float(part.var(ddof=1)) for part in (treatment, reference) if len(part) > 1)
    return float(np.sqrt(squares / freedom))


def hedges_g(treatment: Floats, reference: Floats) -> float | None:
    """Difference over the pooled sd with the small-sample correction; None if the sd is missing or zero."""
    spread = pooled_sd(treatment, reference)
    freedom = len(treatment) + len(reference) - 2
    if spread is None or spread <= 0 or not np.isfinite(spread):
        return None
    return float((treatment.mean() - reference.mean()) / spread * (1 - 3 / (4 * freedom - 1)))


def compare_pairs(treatment: Mapping[int, float], reference: Mapping[int, float]) -> Paired | None:
    """The paired view over the seeds that both arms have."""
    shared = sorted(set(treatment) & set(reference))
    if len(shared) < 2:
        return None
    differences = np.array([treatment[seed] - reference[seed] for seed in shared])
    if not np.isfinite(differences).all():
        return None
    return Paired(
        len(shared),
        float(differences.mean()),
        t_interval(differences),
        sign_flip_p(differences),
        sample_sd(differences),
    )


def compare(
    treatment: Mapping[int, float], reference: Mapping[int, float], sign: float = 1.0, paired: bool = False
) -> Comparison | None:
    """Compares two arms given as {seed: value}; None if one of them has no number."""
    left, right = (_values(arm) for arm in (treatment, reference))
    if len(left) == 0 or len(right) == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return Comparison(
            treatment_seeds=len(left),
            reference_seeds=len(right),
            difference=float(left.mean() - right.mean()),
            interval=_with_width(welch_interval(left, right)),
            pooled_sd=pooled_sd(left, right),
            degrees_of_freedom=len(left) + len(right) - 2,
            welch_p=welch_p(left, right),
            permutation_p=permutation_p(left, right),
            smallest_p=smallest_p(len(left), len(right)),
            improvement=improvement_probability(left, right, sign),
            improvement_interval=improvement_interval(left, right, sign),
            effect_size=hedges_g(left, right),
            paired=compare_pairs(treatment, reference) if paired else None,
        )


def _with_width(interval: Interval | None) -> Interval | None:
    """None for an interval of width zero: seeds that do not vary bound nothing."""
    return None if interval is None or interval.low == interval.high else interval


def _values(arm: Mapping[int, float]) -> Floats:
    values = np.array([arm[seed] for seed in sorted(arm)], dtype=np.float64)
    return values[np.isfinite(values)]


def holm(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Holm's adjusted p of every comparison; one without a p counts in the number of comparisons and keeps None."""
    known = sorted((p, name) for name, p in p_values.items() if p is not None)
    adjusted: dict[str, float | None] = dict.fromkeys(p_values)
    highest = 0.0
    for rank, (p, name) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        adjusted[name] = highest
    return adjusted
