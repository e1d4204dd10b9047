"""A new task from few episodes, as one figure: `python -m benchmarks.new_task STUDY_FOLDER --output FILE.png`.

Reads a study whose arms are named START_EPISODES, as in `studies/new_task.yaml`: the return of every seed over the
number of recorded episodes, one line through the means for each start. Then compares the starts at each number of
episodes: Welch's interval, exact permutation test, Holm over the numbers.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dreamproof.report.data import Group, StudyEvidence
from dreamproof.report.loading import load
from dreamproof.report.palette import COLOURS
from dreamproof.stats.compare import Comparison, compare, holm

APART = 1.06
"""The seeds of two starts are drawn beside each other."""

Curves = dict[str, dict[int, list[float]]]


def curves_of(evidence: StudyEvidence) -> Curves:
    """Values of the deciding metric of all seeds, by start and number of episodes."""
    found: Curves = {}
    for arm in evidence.arms:
        start, _, episodes = arm.rpartition("_")
        values = evidence.values.get(Group(arm, evidence.primary_condition, evidence.study.metric.name), {})
        if values:
            found.setdefault(start, {})[int(episodes)] = list(values.values())
    return found


def at_each_count(curves: Curves) -> dict[str, Comparison]:
    """The second start minus the first, by number of episodes."""
    first, second = ({n: dict(enumerate(each)) for n, each in by_count.items()} for by_count in curves.values())
    compared = {str(n): compare(second[n], first[n]) for n in sorted(first.keys() & second.keys())}
    return {n: each for n, each in compared.items() if each is not None}


def draw(evidence: StudyEvidence, path: Path) -> None:
    """Seeds as points, means as lines, floors as dashed lines."""
    figure, axis = plt.subplots(figsize=(6, 3.8), layout="constrained")
    curves = curves_of(evidence)
    for number, (start, by_count) in enumerate(curves.items()):
        colour, apart = COLOURS[number], APART ** (2 * number - len(curves) + 1)
        axis.plot([*by_count], [np.mean(each) for each in by_count.values()], color=colour, label=f"{start} model")
        for count, values in by_count.items():
            axis.plot([count * apart] * len(values), values, "o", color=colour, alpha=0.5, markersize=4)
    for name, means in evidence.floors.get(evidence.primary_condition, {}).items():
        axis.axhline(means[evidence.study.metric.name], color="#888888", linestyle="--", linewidth=1)
        axis.annotate(
            name,
            (1, means[evidence.study.metric.name]),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=8,
        )
    counts = sorted({count for by_count in curves.values() for count in by_count})
    axis.set_xscale("log", base=2)
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.set_xlabel("recorded episodes of the new task")
    axis.set_ylabel(f"{evidence.study.metric.name} on test layouts, points are seeds")
    axis.set_title(evidence.study.task, fontsize=10)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Reads, draws and prints the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study_folder", type=Path, metavar="STUDY_FOLDER")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    evidence = load(asked.study_folder)
    draw(evidence, asked.output)
    curves = curves_of(evidence)
    for start, by_count in curves.items():
        print(f"{start}: " + ", ".join(f"{count} episodes {np.mean(each):.1f}" for count, each in by_count.items()))
    compared = at_each_count(curves)
    adjusted = holm({count: each.permutation_p for count, each in compared.items()})
    first, second = curves
    for count, each in compared.items():
        between = "" if each.interval is None else f" [{each.interval.low:.0f}, {each.interval.high:.0f}]"
        print(f"{count} episodes, {second} - {first}: {each.difference:+.0f}{between}, p (Holm) {adjusted[count]:.2f}")


if __name__ == "__main__":
    main()
