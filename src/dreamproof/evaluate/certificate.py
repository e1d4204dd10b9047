"""Coverage of the certificate on new episodes, and how well signals detect shifted episodes."""

import numpy as np


def coverage(fresh: np.ndarray, offset: float) -> float:
    """Fraction of new scores with V − offset ≤ realised minimum margin."""
    return float(np.mean(fresh <= offset))


def certified_rates(values: np.ndarray, minimum: np.ndarray, offset: float) -> dict[str, float]:
    """How often decisions were certified (V ≥ offset), and how often the margin then still fell below 0.

    values and realised minimum margins are (T, E). Without a certified decision there is no conditional rate.
    """
    certified, violated = values - offset >= 0, minimum < 0
    found = {
        "certified": float(np.mean(certified)),
        "violated": float(np.mean(violated)),
        "certified_and_violated": float(np.mean(certified & violated)),
    }
    if certified.any():
        found["violated_given_certified"] = float(np.mean(violated[certified]))
    return found


def auroc(nominal: np.ndarray, shifted: np.ndarray) -> float:
    """Probability that a shifted episode's signal is above a nominal one's; ties count half."""
    both = np.concatenate([nominal, shifted])
    order = np.argsort(np.argsort(both, kind="stable"), kind="stable") + 1.0
    for value in np.unique(both):
        same = both == value
        order[same] = order[same].mean()
    rank_sum = order[len(nominal) :].sum()
    pairs = len(nominal) * len(shifted)
    return float((rank_sum - len(shifted) * (len(shifted) + 1) / 2) / pairs)
