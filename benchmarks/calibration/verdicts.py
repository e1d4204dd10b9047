"""Coverage of intervals, false verdicts, false equivalence, and power against its prediction."""

from itertools import product

import numpy as np

from benchmarks.calibration.truths import SEED, Draw, rate_text
from dreamproof.stats.describe import Floats, bootstrap_interval, t_interval
from dreamproof.stats.power import power_of, seeds_needed
from dreamproof.stats.sequential import make_look_plan
from dreamproof.stats.verdict import Kind, Question, judge

COVERAGE_NOTE = (
    "The bootstrap alone is too narrow with few seeds, and no interval is right at 5 seeds when 30 % of them "
    "collapse; reports therefore print both intervals and flag arms that fall into two groups."
)
ERROR_NOTE = (
    "For arms that are drawn alike the exact test errs in at most 5 % by construction; with few seeds it errs less. "
    "Each rate stands with its simulation error."
)
POWER_NOTE = (
    "Four seeds per arm give the exact test so few splits that it finds less than the t test of the prediction. "
    "A sequential plan with the same maximum stops earlier and pays for it with power; a larger maximum wins it back."
)


def normal(generator: np.random.Generator, count: int) -> Floats:
    """Seeds around zero with sd one."""
    return generator.standard_normal(count)


def collapsed(generator: np.random.Generator, count: int) -> Floats:
    """Seeds of which 30 % collapse ten sds below the others."""
    return generator.standard_normal(count) - 10.0 * (generator.random(count) < 0.3)


def skewed(generator: np.random.Generator, count: int) -> Floats:
    """Log-normal seeds."""
    return np.exp(generator.standard_normal(count))


KINDS: dict[str, tuple[Draw, float]] = {
    "normal": (normal, 0.0),
    "30 % collapsed": (collapsed, -3.0),
    "log-normal": (skewed, float(np.exp(0.5))),
}


def iqm_coverage(seeds: int, studies: int) -> float:
    """How often the bootstrap interval of the IQM of normal seeds holds the true one, zero."""
    generator = np.random.default_rng((SEED, seeds))
    drawn = [bootstrap_interval([normal(generator, seeds)], "iqm") for _ in range(studies)]
    return float(np.mean([interval is not None and not interval.excludes(0.0) for interval in drawn]))


def coverage(draw: Draw, mean: float, seeds: int, studies: int) -> tuple[float, float]:
    """How often the 95 % t interval and the bootstrap interval of the mean hold the true mean."""
    generator = np.random.default_rng((SEED, seeds))
    hits = np.zeros(2)
    for _ in range(studies):
        values = draw(generator, seeds)
        for place, interval in enumerate((t_interval(values), bootstrap_interval([values], "mean"))):
            hits[place] += interval is not None and not interval.excludes(mean)
    return float(hits[0] / studies), float(hits[1] / studies)


def verdicts(draw: Draw, looks: tuple[int, int], arms: int, shift: float, studies: int) -> dict[str, float]:
    """Shares of studies with any better/worse, with any equivalent, and their mean seeds per arm."""
    generator = np.random.default_rng((SEED, *looks, arms))
    first, maximum = looks
    question = Question(tuple(range(maximum)), make_look_plan(first, maximum), 1.0)
    different = equivalent = used = 0
    for _ in range(studies):
        reference = dict(enumerate(draw(generator, maximum).tolist()))
        others = {f"arm{n}": dict(enumerate((draw(generator, maximum) + shift).tolist())) for n in range(arms)}
        found = judge(question, reference, others).values()
        different += any(verdict.kind in (Kind.BETTER, Kind.WORSE) for verdict in found)
        equivalent += any(verdict.kind is Kind.EQUIVALENT for verdict in found)
        used += max(verdict.seeds for verdict in found)
    return {"different": different / studies, "equivalent": equivalent / studies, "seeds": used / studies}


def coverage_table(studies: int) -> list[str]:
    """Coverage of nominal 95 % intervals of the mean."""
    titles = " | ".join(f"{name}: t | bootstrap" for name in KINDS)
    lines = [f"| seeds | {titles} | normal: bootstrap of the IQM |", "|---:|" + "---:|---:|" * len(KINDS) + "---:|"]
    for seeds in (2, 3, 5, 10):
        parts = [coverage(draw, mean, seeds, studies) for draw, mean in KINDS.values()]
        cells = " | ".join(f"{t:.1%} | {b:.1%}" for t, b in parts)
        lines.append(f"| {seeds} | {cells} | {iqm_coverage(seeds, studies):.1%} |")
    return lines


def error_table(studies: int) -> list[str]:
    """False better/worse where all arms are drawn alike."""
    lines = ["| design | arms v reference | data | false better/worse, % |", "|---|---:|---|---:|"]
    designs = [((5, 5), 1), ((5, 5), 3), ((10, 10), 1), ((5, 20), 1), ((5, 20), 3), ((3, 12), 1)]
    for looks, arms in designs:
        for name, (draw, _) in KINDS.items():
            rate = verdicts(draw, looks, arms, 0.0, studies)["different"]
            lines.append(f"| {_plan_text(looks)} | {arms} | {name} | {rate_text(rate, studies)} |")
    return lines


def power_table(studies: int) -> list[str]:
    """Power against its prediction, and the seeds that a sequential plan saves."""
    lines = ["| difference in sds | seeds planned | predicted | fixed | sequential to the same maximum | seeds used |"]
    lines.append("|---:|---:|---:|---:|---:|---:|")
    for shift in (1.0, 1.5, 2.0, 3.0):
        needed = seeds_needed(shift, 1.0) or 0
        fixed = verdicts(normal, (needed, needed), 1, shift, studies)
        first = min(5, needed)
        sequential = verdicts(normal, (first, needed), 1, shift, studies)
        lines.append(
            f"| {shift:g} | {needed} | {power_of(needed, shift):.1%} | {fixed['different']:.1%} "
            f"| {sequential['different']:.1%} | {sequential['seeds']:.1f} |"
        )
    return lines


def equivalence_table(studies: int) -> list[str]:
    """False `equivalent` where the true difference is exactly the one that matters, and true ones where it is zero."""
    lines = [
        "| design | arms | sd over the difference that matters | false equivalent | true equivalent |",
        "|---|---:|---:|---:|---:|",
    ]
    for looks, arms, spread in product(((5, 5), (8, 8), (5, 20)), (1, 3), (0.2, 0.5)):
        draws: Draw = lambda generator, count, spread=spread: spread * generator.standard_normal(count)  # noqa: E731
        wrong = verdicts(draws, looks, arms, 1.0, studies)["equivalent"]
        right = verdicts(draws, looks, arms, 0.0, studies)["equivalent"]
        lines.append(f"| {_plan_text(looks)} | {arms} | {spread:g} | {wrong:.1%} | {right:.1%} |")
    return lines


def _plan_text(looks: tuple[int, int]) -> str:
    return f"fixed {looks[0]}" if looks[0] == looks[1] else f"sequential {looks[0]}–{looks[1]}"


def blocks(studies: int) -> list[str]:
    """The sections of the page."""
    return [
        "## Coverage of nominal 95 % intervals of the mean",
        f"{COVERAGE_NOTE} {studies:,} simulated studies a row, here and in the next three tables.",
        "\n".join(coverage_table(studies)),
        "## False better/worse under no difference (nominal 5 %, Holm over all arms)",
        ERROR_NOTE,
        "\n".join(error_table(studies)),
        "## Equivalence (nominal 5 %)",
        "\n".join(equivalence_table(studies)),
        "## Power against the prediction (normal seeds, 80 % planned with the true sd)",
        POWER_NOTE,
        "\n".join(power_table(studies)),
    ]
