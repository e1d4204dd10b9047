"""False `keeps` and `breaks` where the mean lies at the limit, and how often a mean on either side is seen."""

import numpy as np

from benchmarks.calibration.truths import (
    SEED,
    Draw,
    exponential,
    half_gamma,
    log_normal,
    near_normal,
    often_zero,
    rate_text,
    two_levels,
)
from dreamproof.stats.limits import LimitKind, judge_limit
from dreamproof.stats.sequential import make_look_plan

NOTE = (
    "The limit is 1 and so is the true mean: every `keeps` and every `breaks` is false. `breaks` needs no assumption. "
    "`keeps` is promised for the truths above the line. Below it seeds spread more, or the cost sits in few seeds that "
    "a small sample may not contain: there no bound computed from the seeds alone can hold."
)
POWER_NOTE = "The same truths with their mean at a part or a multiple of the limit, in % of studies."
PROMISED: dict[str, Draw] = {
    "normal, sd 10 %": near_normal(0.1),
    "normal, sd 30 %": near_normal(0.3),
    "log-normal, σ = 0.5": log_normal(0.5),
    "exponential": exponential,
    "20 % zero, others normal": often_zero(0.2, near_normal(0.1)),
    "50 % zero, others log-normal": often_zero(0.5, log_normal(0.5)),
    "50 % at half the mean, 50 % above": two_levels(0.5, 0.5),
    "20 % low, 80 % above the limit": two_levels(0.8, 0.2),
}
NOT_PROMISED: dict[str, Draw] = {
    "log-normal, σ = 1": log_normal(1.0),
    "gamma, shape ½": half_gamma,
    "50 % zero, others exponential": often_zero(0.5, exponential),
    "70 % zero, others log-normal": often_zero(0.7, log_normal(0.5)),
    "20 % at three times the limit": two_levels(0.2, 0.5),
    "10 % at seven times the limit": two_levels(0.1, 0.3),
    "log-normal, σ = 1.5": log_normal(1.5),
}
DESIGNS = ((3, 3), (5, 5), (6, 6), (8, 8), (10, 10), (12, 12), (5, 20))


def limit_rates(draw: Draw, looks: tuple[int, int], scale: float, studies: int) -> dict[LimitKind, float]:
    """Shares of studies by verdict, if seeds are `scale` times what the truth draws and the limit is one."""
    generator = np.random.default_rng((SEED, *looks))
    plan, seeds = make_look_plan(*looks), range(looks[1])
    counts = dict.fromkeys(LimitKind, 0)
    for _ in range(studies):
        values = scale * draw(generator, looks[1])
        counts[judge_limit(seeds, plan, 1.0, dict(enumerate(values.tolist()))).kind] += 1
    return {kind: count / studies for kind, count in counts.items()}


def error_table(studies: int) -> list[str]:
    """False `keeps` / `breaks` by truth and design."""
    titles = [str(first) if first == last else f"{first}–{last}" for first, last in DESIGNS]
    lines = ["| true cost of a seed | " + " | ".join(f"n = {title}" for title in titles) + " |"]
    lines.append("|---|" + "---:|" * len(DESIGNS))
    for truths in (PROMISED, NOT_PROMISED):
        for name, draw in truths.items():
            cells = []
            for looks in DESIGNS:
                found = limit_rates(draw, looks, 1.0, studies)
                cells.append(f"{100 * found[LimitKind.KEEPS]:.1f} / {100 * found[LimitKind.BREAKS]:.1f}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        if truths is PROMISED:
            lines.append("| **not promised** |" + " |" * len(DESIGNS))
    return lines


def power_table(studies: int) -> list[str]:
    """True `keeps` below the limit and true `breaks` above it."""
    lines = [
        "| true cost of a seed | mean / limit | n = 5 | n = 8 | n = 10 | n = 20 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    names = ("normal, sd 30 %", "log-normal, σ = 0.5", "50 % zero, others log-normal")
    for name in names:
        for scale, kind in (
            (0.2, LimitKind.KEEPS),
            (0.5, LimitKind.KEEPS),
            (2.0, LimitKind.BREAKS),
            (3.0, LimitKind.BREAKS),
        ):
            rates = [limit_rates(PROMISED[name], (count, count), scale, studies)[kind] for count in (5, 8, 10, 20)]
            lines.append(f"| {name} | {scale:g} | " + " | ".join(f"{100 * rate:.0f}" for rate in rates) + " |")
    return lines


def blocks(studies: int) -> list[str]:
    """The section of the page."""
    error = rate_text(0.05, studies)
    return [
        "## Limits: false keeps / false breaks, in % (nominal 5 % each)",
        f"{NOTE} {studies:,} studies a cell; the standard error of 5 % is {error.split(chr(177))[1].strip()}.",
        "\n".join(error_table(studies)),
        POWER_NOTE,
        "\n".join(power_table(max(200, studies // 4))),
    ]
