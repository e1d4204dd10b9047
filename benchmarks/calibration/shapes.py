"""False better/worse where means are equal, by the shape of the seeds; how often a lint warns; power of pairs."""

from collections.abc import Callable

import numpy as np

from benchmarks.calibration.truths import SEED, Draw
from dreamproof.stats.describe import Floats, falls_into_two_groups
from dreamproof.stats.sequential import make_look_plan
from dreamproof.stats.shape import spreads_differ
from dreamproof.stats.verdict import Kind, Question, judge

Generator = np.random.Generator
Arms = Callable[[Generator, int, int], list[Floats]]
"""(generator, seeds, arms) to the reference and the arms, all of one mean."""

NOTE = (
    "All arms have the same mean: every better or worse is false. In brackets: studies in which a lint warns of two "
    "groups or very unequal spreads. * lies above 5 % by more than two standard errors."
)
LINT_NOTE = (
    "A collapse that no seed of the study shows cannot be seen by any rule: with five seeds and a collapse in a fifth "
    "of all seeds that is a third of studies. Among the others the lint warns in the last column."
)
PAIRED_NOTE = (
    "The same seed number raises or lowers both arms (correlation r); difference of one sd of an arm, 8 seeds. In % of "
    "studies: found without pairs, found with `paired_seeds`, and false with `paired_seeds` where nothing differs."
)


def alike(draw: Draw) -> Arms:
    """All arms are drawn from one distribution."""
    return lambda generator, seeds, arms: [draw(generator, seeds) for _ in range(arms + 1)]


def against(reference: Draw, others: Draw) -> Arms:
    """The reference from one distribution, the arms from another one of the same mean."""
    return lambda generator, seeds, arms: [
        reference(generator, seeds),
        *(others(generator, seeds) for _ in range(arms)),
    ]


def correlated(correlation: float) -> Arms:
    """Normal arms that share a part of each seed with the reference; with the opposite sign if negative."""

    def draw(generator: Generator, seeds: int, arms: int) -> list[Floats]:
        shared, part = generator.standard_normal(seeds), abs(correlation)
        own = [part**0.5 * shared + (1 - part) ** 0.5 * generator.standard_normal(seeds) for _ in range(arms + 1)]
        return own if correlation > 0 else [own[0] - 2 * part**0.5 * shared, *own[1:]]

    return draw


def normal(spread: float = 1.0) -> Draw:
    """Normal seeds of mean zero."""
    return lambda generator, seeds: spread * generator.standard_normal(seeds)


def collapsing(share: float, depth: float, spread: float = 1.0) -> Draw:
    """Normal seeds of which a share falls by `depth`; mean zero."""
    return lambda generator, seeds: (
        share * depth + spread * generator.standard_normal(seeds) - depth * (generator.random(seeds) < share)
    )


PROMISED: dict[str, Arms] = {
    "normal": alike(normal()),
    "log-normal": alike(lambda generator, seeds: np.exp(generator.standard_normal(seeds))),
    "t, 3 degrees of freedom": alike(lambda generator, seeds: generator.standard_t(3, seeds)),
    "exponential": alike(lambda generator, seeds: generator.standard_exponential(seeds)),
    "20 % collapse in all arms": alike(collapsing(0.2, 10.0)),
    "50 % collapse in all arms": alike(collapsing(0.5, 10.0)),
    "70 % zero in all arms": alike(
        lambda generator, seeds: (generator.random(seeds) > 0.7) * generator.standard_exponential(seeds)
    ),
    "three values only": alike(lambda generator, seeds: generator.integers(0, 3, seeds).astype(float)),
    "sd 4 : 1": against(normal(), normal(4.0)),
    "shared seeds, r = 0.7": correlated(0.7),
}
NOT_PROMISED: dict[str, Arms] = {
    "shared seeds, r = −0.7": correlated(-0.7),
    "one arm collapses in 20 %": against(normal(), collapsing(0.2, 10.0)),
    "the same, little spread": against(normal(), collapsing(0.2, 10.0, 0.5)),
    "steady against catastrophes in 20 %": against(normal(0.3), collapsing(0.2, 5.0)),
    "steady against catastrophes in 10 %": against(normal(0.2), collapsing(0.1, 10.0, 0.2)),
}
COLLAPSED_BELOW = {
    "one arm collapses in 20 %": -3.0,
    "the same, little spread": -3.0,
    "steady against catastrophes in 20 %": -1.5,
    "steady against catastrophes in 10 %": -4.0,
}
"""Halfway between seeds that collapsed and those that did not."""
DESIGNS: tuple[tuple[tuple[int, int], int], ...] = (
    *(((seeds, seeds), 1) for seeds in (2, 3, 5, 8, 12)),
    *(((seeds, seeds), 3) for seeds in (5, 8)),
    ((5, 20), 1),
)


def values_by_seed(values: Floats) -> dict[int, float]:
    """What `judge` is given for one arm."""
    return dict(enumerate(values.tolist()))


def rates(truth: Arms, looks: tuple[int, int], arms: int, studies: int) -> tuple[float, float]:
    """Shares of studies with any better or worse, and with a lint about the shape of the seeds."""
    generator = np.random.default_rng((SEED, *looks, arms))
    question = Question(tuple(range(looks[1])), make_look_plan(*looks), 1e-9)
    wrong = warned = 0
    for _ in range(studies):
        reference, *others = truth(generator, looks[1], arms)
        found = judge(
            question, values_by_seed(reference), {str(n): values_by_seed(arm) for n, arm in enumerate(others)}
        )
        wrong += any(verdict.kind in (Kind.BETTER, Kind.WORSE) for verdict in found.values())
        warned += warns(reference, others)
    return wrong / studies, warned / studies


def error_table(studies: int) -> list[str]:
    """False verdicts and warnings by truth and design."""
    titles = [f"{'–'.join(map(str, dict.fromkeys(looks)))} × {arms}" for looks, arms in DESIGNS]
    lines = ["| truth; seeds × arms | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(DESIGNS)]
    for truths in (PROMISED, NOT_PROMISED):
        for name, truth in truths.items():
            cells = []
            for looks, arms in DESIGNS:
                wrong, warned = rates(truth, looks, arms, studies)
                above = wrong > 0.05 + 2 * (0.05 * 0.95 / studies) ** 0.5
                cells.append(f"{100 * wrong:.1f}{'*' if above else ''} ({100 * warned:.0f})")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        if truths is PROMISED:
            lines.append("| **not promised** |" + " |" * len(DESIGNS))
    return lines


def warns(reference: Floats, others: list[Floats]) -> bool:
    """Whether a lint warns of two groups or of very unequal spreads."""
    grouped = any(falls_into_two_groups(arm) for arm in [reference, *others])
    return grouped or any(spreads_differ(arm, reference) for arm in others)


def lint_table(studies: int) -> list[str]:
    """How often the lint warns where no test of means holds, and among studies in which a collapsed seed is seen."""
    lines = [
        "| truth | n | a collapse is seen | lint, all studies | lint, where it is seen |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, collapsed_below in COLLAPSED_BELOW.items():
        for seeds in (5, 8, 12):
            generator, counts = np.random.default_rng((SEED, seeds, 2)), np.zeros(3)
            for _ in range(studies):
                reference, arm = NOT_PROMISED[name](generator, seeds, 1)
                seen, warned = bool((arm < collapsed_below).any()), warns(reference, [arm])
                counts += [seen, warned, seen and warned]
            seen_count, warned_count, both = counts
            shares = (seen_count / studies, warned_count / studies, both / seen_count)
            lines.append(f"| {name} | {seeds} | " + " | ".join(f"{100 * share:.0f}" for share in shares) + " |")
    return lines


def paired_table(studies: int) -> list[str]:
    """Power with and without pairs, and false verdicts with them."""
    lines = ["| r | without pairs | with pairs | false with pairs |", "|---:|---:|---:|---:|"]
    plain = Question(tuple(range(8)), make_look_plan(8), 1e-9)
    pairs = Question(plain.seeds, plain.plan, 1e-9, paired=True)
    for correlation in (-0.7, 0.3, 0.7, 0.9):
        generator, counts = np.random.default_rng((SEED, 8)), np.zeros(3)
        for _ in range(studies):
            reference, arm = correlated(correlation)(generator, 8, 1)
            cases = ((plain, arm + 1.0), (pairs, arm + 1.0), (pairs, arm))
            for place, (question, values) in enumerate(cases):
                found = judge(question, values_by_seed(reference), {"b": values_by_seed(values)})["b"]
                counts[place] += found.kind in (Kind.BETTER, Kind.WORSE)
        lines.append(f"| {correlation:g} | " + " | ".join(f"{100 * count / studies:.1f}" for count in counts) + " |")
    return lines


def blocks(studies: int) -> list[str]:
    """The sections of the page."""
    error = 100 * (0.05 * 0.95 / studies) ** 0.5
    return [
        "## False better/worse at equal means, in % (nominal 5 %)",
        f"{NOTE} {studies:,} studies a cell; the standard error of 5 % is {error:.1f}.",
        "\n".join(error_table(studies)),
        "## The lint where no test of means holds, in % of studies",
        LINT_NOTE,
        "\n".join(lint_table(studies)),
        "## Paired seeds",
        PAIRED_NOTE,
        "\n".join(paired_table(studies)),
    ]
