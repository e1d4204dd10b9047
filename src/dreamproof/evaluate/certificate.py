"""What the certificate promises, checked: calibration on validation episodes, coverage on fresh ones."""

import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.agents.returns import discounted_least

LEAST_STEPS_LEFT = 40
# Compiled once: a bare scan would be compiled anew at every call, which took longer than the episodes themselves.
_discounted_least = jax.jit(discounted_least)


def scores(values: np.ndarray, margins: np.ndarray, discount: float, seed: int) -> np.ndarray:
    """V(f_t) minus the realised discounted least margin at one random time of each episode; both are (T, E)."""
    realised = np.asarray(_discounted_least(jnp.asarray(margins), discount))
    steps, episodes = margins.shape
    latest = max(1, steps - LEAST_STEPS_LEFT)
    times = np.random.default_rng(seed).integers(0, latest, episodes)
    picked = np.arange(episodes)
    return values[times, picked] - realised[times, picked]


def offset(calibration: np.ndarray, miscoverage: float) -> float:
    """The ⌈(n+1)(1−δ)⌉-th smallest score; infinite where n is too small to promise anything."""
    count = len(calibration)
    rank = int(np.ceil((count + 1) * (1 - miscoverage)))
    return float(np.sort(calibration)[rank - 1]) if rank <= count else float("inf")


def coverage(fresh: np.ndarray, calibrated_offset: float) -> float:
    """Share of fresh scores that the promise V − offset ≤ realised margin holds for."""
    return float(np.mean(fresh <= calibrated_offset))


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
