"""Which value an unseen seed is given in the upper bound of a limit: false `keeps` by factor, from simulation alone."""

import numpy as np

from benchmarks.calibration.limits import NOT_PROMISED, PROMISED
from benchmarks.calibration.truths import SEED, Draw
from dreamproof.stats.limits import UNSEEN_FACTOR, mean_bounds

LEVEL = 0.05
FACTORS = (1.8, 1.9, 2.0, 2.1, 2.2, 2.5)
SEEDS = (5, 6, 8, 10, 12)
SHOWN = ("log-normal, σ = 0.5", "log-normal, σ = 1", "exponential", "50 % zero, others log-normal")
BEYOND = ("gamma, shape ½", "50 % zero, others exponential")
BINDING, BINDING_SEEDS, BINDING_FACTORS, MORE_STUDIES = "log-normal, σ = 1", 8, (1.9, 2.0, 2.1), 12
NOTE = (
    "The rule: the smallest factor, in steps of 0.1, with which every promised truth errs in at most 5 % plus two "
    "standard errors for n = 5, 6, 8, 10 and 12. The worst of these is shown; truths that hardly err are left out. "
    "Promised are truths that spread no more than a log-normal with σ = 1 (its sd is 1.31 times the mean) and whose "
    "cost does not sit in few seeds; that log-normal at n = 8 decides and is simulated more often below. The two "
    "truths at the end spread more (1.41 and 1.73 times the mean): to promise the first, 2.2 would be needed."
)


def false_keeps(draw: Draw, factor: float, count: int, studies: int) -> float:
    """Share of studies with the mean at the limit whose upper bound, with this factor, lies below it."""
    generator = np.random.default_rng((SEED, count))
    values = [draw(generator, count) for _ in range(studies)]
    return float(np.mean([mean_bounds(one, 1.0, LEVEL, factor).high < 1.0 for one in values]))


def blocks(studies: int) -> list[str]:
    """The section of the page."""
    lines = ["| true cost of a seed | " + " | ".join(f"{factor:g}" for factor in FACTORS) + " |"]
    lines.append("|---|" + "---:|" * len(FACTORS))
    for name in (*SHOWN, *BEYOND):
        draw = (PROMISED | NOT_PROMISED)[name]
        worst = [max(false_keeps(draw, factor, count, studies) for count in SEEDS) for factor in FACTORS]
        lines.append(f"| {name} | " + " | ".join(f"{100 * rate:.1f}" for rate in worst) + " |")
    error = 100 * (LEVEL * (1 - LEVEL) / studies) ** 0.5
    count = f"{studies:,} studies a row and n; the standard error of 5 % is {error:.1f}. In use: {UNSEEN_FACTOR:g}."
    title = "## Limits: false keeps in %, by the factor of an unseen seed"
    return [title, f"{NOTE} {count}", "\n".join(lines), binding_rates(MORE_STUDIES * studies)]


def binding_rates(studies: int) -> str:
    """The truth that decides about the factor, with more studies."""
    draw = PROMISED[BINDING]
    rates = [f"{100 * false_keeps(draw, factor, BINDING_SEEDS, studies):.1f}" for factor in BINDING_FACTORS]
    factors = ", ".join(f"{factor:g}" for factor in BINDING_FACTORS)
    return f"{BINDING}, n = {BINDING_SEEDS}, {studies:,} studies: {', '.join(rates)} % with factors {factors}."
