"""Calibration of certificates by arm and condition: `python -m benchmarks.certificates gallery/safedreamer_v2`.

Means over training seeds with 95 % t intervals, cut off at 0 and 100 %, from the evaluations of final checkpoints.
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd

import dreamproof
from dreamproof.stats.describe import t_interval
from dreamproof.testing.gallery import unpack

TITLES = {
    "certificate/coverage": "coverage",
    "certificate/certified": "P(certified)",
    "certificate/violated_given_certified": "P(violation given certified)",
    "certificate/certified_and_violated": "P(certified and violated)",
    "certificate/violated": "P(violation)",
}


def rate_text(rates: pd.Series) -> str:
    """Mean and interval in percent."""
    values = 100 * rates.to_numpy()
    interval = t_interval(values)
    assert interval is not None
    digits = 0 if values.mean() > 20 else 1
    low, high = max(0.0, interval.low), min(100.0, interval.high)
    return f"{values.mean():.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(scores: pd.DataFrame, metric: str) -> str:
    """A row per condition, a column per arm."""
    arms = list(dict.fromkeys(scores["arm"]))
    lines = [f"| {TITLES[metric]}, % | {' | '.join(arms)} |", f"|{'---|' * (1 + len(arms))}"]
    for condition, rows in scores.groupby("condition", sort=False):
        cells = [rate_text(rows[rows["arm"] == arm][metric]) for arm in arms]
        lines.append(f"| `{condition}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints a table per rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entry", type=Path, help="a study of the gallery")
    entry = parser.parse_args().entry
    with tempfile.TemporaryDirectory() as scratch:
        scores = dreamproof.load(unpack(entry, Path(scratch) / entry.name)).scores
    final = scores[scores["checkpoint"] == "final"].dropna(subset=list(TITLES))  # a mean of conditions has no rates
    for metric in TITLES:
        print(table(final, metric), end="\n\n")


if __name__ == "__main__":
    main()
