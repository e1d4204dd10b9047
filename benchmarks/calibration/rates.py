"""False equivalence, coverage and power by the shape of the seeds, beside the false verdicts of `shapes`."""

import numpy as np

from benchmarks.calibration.shapes import NOT_PROMISED, PROMISED, Arms, values_by_seed
from benchmarks.calibration.truths import SEED
from dreamproof.stats.compare import welch_interval
from dreamproof.stats.describe import Floats
from dreamproof.stats.sequential import make_look_plan
from dreamproof.stats.verdict import Kind, Question, judge

NOTE = (
    "One arm against the reference. δ is twice the root mean square of both true sds. `equivalent` is false where the "
    "true difference is δ / −δ; coverage is that of the 95 % interval of the difference; "
    "power is the share of *better* where the true difference is δ. * lies above 5 % by more than two standard errors."
)
SEEDS = (5, 8, 12)
LARGE = 200_000


def spread_of(truth: Arms) -> float:
    """Root mean square of the true sds of both arms, from one large sample."""
    reference, arm = truth(np.random.default_rng(SEED), LARGE, 1)
    return float(np.sqrt((reference.var() + arm.var()) / 2))


def rates(truth: Arms, seeds: int, studies: int) -> Floats:
    """False equivalent above and below, coverage of the interval of the difference, power."""
    generator, margin = np.random.default_rng((SEED, seeds, 1)), 2 * spread_of(truth)
    question = Question(tuple(range(seeds)), make_look_plan(seeds), margin)
    counts = np.zeros(4)
    for _ in range(studies):
        reference, arm = truth(generator, seeds, 1)
        known = values_by_seed(reference)
        above, below = (judge(question, known, {"b": values_by_seed(arm + shift)})["b"] for shift in (margin, -margin))
        interval = welch_interval(arm, reference)
        covered = interval is not None and not interval.excludes(0)
        counts += [above.kind is Kind.EQUIVALENT, below.kind is Kind.EQUIVALENT, covered, above.kind is Kind.BETTER]
    return np.asarray(counts / studies)


def table(studies: int) -> list[str]:
    """One row per truth: false equivalent, coverage and power for every number of seeds."""
    titles = [f"{what}, n = {seeds}" for what in ("false equivalent", "coverage", "power") for seeds in SEEDS]
    lines = ["| truth | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    edge = 0.05 + 2 * (0.05 * 0.95 / studies) ** 0.5
    for truths in (PROMISED, NOT_PROMISED):
        for name, truth in truths.items():
            found = [rates(truth, seeds, studies) for seeds in SEEDS]
            cells = [" / ".join(f"{100 * rate:.1f}{'*' if rate > edge else ''}" for rate in each[:2]) for each in found]
            cells += [f"{100 * each[place]:.0f}" for place in (2, 3) for each in found]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        if truths is PROMISED:
            lines.append("| **not promised** |" + " |" * len(titles))
    return lines


def blocks(studies: int) -> list[str]:
    """The section of the page."""
    error = 100 * (0.05 * 0.95 / studies) ** 0.5
    return [
        "## False equivalent, coverage and power by truth, in %",
        f"{NOTE} {studies:,} studies a row and n; the standard error of 5 % is {error:.1f}.",
        "\n".join(table(studies)),
    ]
