"""Return against cost: the arms of a study beside agents that were evaluated with several fixed margins.

`python -m benchmarks.frontier gallery/safedreamer_v2 docs/images/frontier.png` reads the study and `margins.jsonl`, the
rows of `benchmarks.planner_sweep`, prints three tables and draws the figure. 95 % intervals are over training seeds.

The third table plans seeds as the report does (`dreamproof.stats.frontier`): a two-sided t test with 80 %
power at level 0.05 over the number of comparisons, with the 80 % upper bound of the pooled sd. It assumes normal,
independent seeds that spread alike in arm and frontier, and a known slope of the frontier at the cost of the arm.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

import dreamproof
from dreamproof.report.figures.theme import (
    DOTS_PER_INCH,
    INK,
    LIMIT,
    ArmStyle,
    add_note,
    arm_styles,
    look,
    new_figure,
    place_legend,
)
from dreamproof.report.language import read_texts
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.stats.compare import welch_interval
from dreamproof.stats.describe import Interval, t_interval
from dreamproof.stats.frontier import Frontier, Point, at_equal_cost, seeds_at_equal_cost
from dreamproof.stats.sequential import make_look_plan
from dreamproof.stats.verdict import Question
from dreamproof.testing.gallery import unpack

SWEPT, SWEPT_MARGIN = "margin", 0.02
MEAN = "mean of the seven"
NOTE = (
    "n = 5 seeds; mark: mean; bars and band: 95 % t interval of the mean; line: agents of the arm margin, evaluated "
    "with fixed margins of 0, 1, 2, 4 and 6 cm; dashed: limit; every panel has its own scale"
)


@dataclass(frozen=True)
class Panel:
    """One condition: the arms and the frontier."""

    arms: dict[str, Point]
    frontier: Frontier


def point_of(rows: pd.DataFrame) -> Point:
    """The seeds' means over the conditions in these rows."""
    seeds = rows.groupby("seed")[["return", "cost"]].mean()
    return Point(seeds["return"].to_numpy(), seeds["cost"].to_numpy())


def read_panels(entry: Path) -> dict[str, Panel]:
    """A panel per swept condition, and one for their mean."""
    swept = pd.read_json(entry / "margins.jsonl", lines=True)
    with tempfile.TemporaryDirectory() as scratch:
        scores = dreamproof.load(unpack(entry, Path(scratch) / entry.name)).scores
    conditions = list(dict.fromkeys(swept["condition"]))
    final = scores[(scores["checkpoint"] == "final") & scores["condition"].isin(conditions)]
    trained = final[final["arm"] == SWEPT].assign(margin=SWEPT_MARGIN)
    swept = pd.concat([swept, trained])
    chosen = {condition: [condition] for condition in conditions} | {MEAN: conditions}
    return {name: _panel(final, swept, names) for name, names in chosen.items()}


def _panel(final: pd.DataFrame, swept: pd.DataFrame, conditions: list[str]) -> Panel:
    arms = final[final["condition"].isin(conditions) & (final["arm"] != SWEPT)]
    margins = swept[swept["condition"].isin(conditions)]
    return Panel(
        {str(arm): point_of(rows) for arm, rows in arms.groupby("arm", sort=False)},
        {float(margin): point_of(rows) for margin, rows in margins.groupby("margin")},
    )


def question_of(study: Study) -> Question:
    """The declared question, as one analysis of seeds that are not paired."""
    matters = study.metric.smallest_difference
    assert matters is not None
    return Question(tuple(study.seeds), make_look_plan(len(study.seeds)), matters, True, False)


def signed(value: float) -> str:
    """One decimal with a sign."""
    return f"{value:+.1f}".replace("-", "−")


def comparison(point: Point, frontier: Frontier) -> str:
    """A cell of the table: the difference at equal cost, or against the end of the frontier beyond which it lies."""
    found = at_equal_cost(point, frontier)
    if found is not None:
        return difference_text(found.difference, found.interval)
    margin = max(frontier) if point.place[0] < frontier[max(frontier)].place[0] else min(frontier)
    end = frontier[margin]
    interval = welch_interval(point.returns, end.returns)
    assert interval is not None
    cost, score = (mine - other for mine, other in zip(point.place, end.place, strict=True))
    return f"{difference_text(score, interval)} against {100 * margin:.0f} cm at {signed(cost)} cost"


def difference_text(difference: float, interval: Interval) -> str:
    """A difference with its interval, bold where the interval excludes 0."""
    mark = "**" if interval.excludes(0) else ""
    return f"{mark}{signed(difference)}{mark} [{signed(interval.low)}, {signed(interval.high)}]"


def place_text(point: Point) -> str:
    """Return · cost."""
    cost, score = point.place
    return f"{score:.1f} · {cost:.1f}"


def print_tables(panels: dict[str, Panel]) -> None:
    """Means of every margin, then differences at equal cost."""
    first = next(iter(panels.values()))
    margins = " | ".join(f"{100 * margin:.0f} cm" for margin in first.frontier)
    arms = " | ".join(first.arms)
    print(f"| return · cost | {margins} |\n|{'---|' * (1 + len(first.frontier))}")
    for name, panel in panels.items():
        print(f"| {name} | {' | '.join(map(place_text, panel.frontier.values()))} |")
    print(f"\n| return at equal cost minus frontier | {arms} |\n|{'---|' * (1 + len(first.arms))}")
    for name, panel in panels.items():
        print(f"| {name} | {' | '.join(comparison(point, panel.frontier) for point in panel.arms.values())} |")


def plan_rows(panel: Panel, question: Question) -> Iterator[str]:
    """A row per arm: its difference, the sd of a seed, and seeds per arm for the declared and the seen difference."""
    comparisons = len(panel.arms)
    for arm, point in panel.arms.items():
        found = at_equal_cost(point, panel.frontier)
        if found is None:
            yield f"| {arm} | no margin has its cost | – | – | – |"
            continue
        seen = replace(question, smallest_difference=abs(found.difference))
        declared, as_seen = (seeds_at_equal_cost(found, each, comparisons) for each in (question, seen))
        difference, sd = (
            difference_text(found.difference, found.interval),
            f"{declared.sd:.1f} ({declared.sd_upper:.1f})",
        )
        yield f"| {arm} | {difference} | {sd} | {declared.seeds_per_arm} | {as_seen.seeds_per_arm} |"


def print_plans(panels: dict[str, Panel], question: Question) -> None:
    """Seeds per arm that would decide at equal cost, under the mean of all conditions and in distribution."""
    for name in (MEAN, "id"):
        header = f"{name}: arm | at equal cost minus frontier [95 %] | sd of a seed (80 % upper bound)"
        seeds = f"seeds for {question.smallest_difference:g} | seeds for the difference seen"
        print(f"\n| {header} | {seeds} |\n|{'---|' * 5}")
        print("\n".join(plan_rows(panels[name], question)))


def draw(panels: dict[str, Panel], output: Path) -> None:
    """Small multiples: a frontier with its margins, and the arms as points with intervals."""
    figure = new_figure(10.5, 5.8)
    columns = -(-len(panels) // 2)
    grid = figure.subplots(2, columns, squeeze=False).ravel()
    styles = arm_styles([SWEPT, *next(iter(panels.values())).arms])
    for axes, (name, panel) in zip(grid, panels.items(), strict=True):
        _draw_frontier(axes, panel.frontier, styles[SWEPT])
        for arm, point in panel.arms.items():
            _draw_point(axes, point, styles[arm], arm)
        axes.axvline(5, **LIMIT)
        axes.set_title(name, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.set_xlim(left=0)
    for axes in grid[-columns:]:
        axes.set_xlabel("cost", fontsize=9)
    for axes in grid[::columns]:
        axes.set_ylabel("return", fontsize=9)
    place_legend(figure, *grid[0].get_legend_handles_labels())
    add_note(figure, NOTE)
    figure.savefig(output, dpi=DOTS_PER_INCH, metadata={"Software": None})


def _draw_frontier(axes: Any, frontier: Frontier, style: ArmStyle) -> None:
    costs, returns = zip(*(point.place for point in frontier.values()), strict=True)
    bands = [t_interval(point.returns) for point in frontier.values()]
    lows, highs = zip(*((band.low, band.high) for band in bands if band is not None), strict=True)
    axes.fill_between(costs, lows, highs, color=style.colour, alpha=0.13, linewidth=0)
    axes.plot(costs, returns, color=style.colour, marker=style.marker, markersize=3, label="fixed margins")
    for margin, cost, score in zip(frontier, costs, returns, strict=True):
        axes.annotate(
            f"{100 * margin:.0f}", (cost, score), (3, -8), textcoords="offset points", fontsize=6.5, color=INK, zorder=6
        )


def _draw_point(axes: Any, point: Point, style: ArmStyle, arm: str) -> None:
    cost, score = point.place
    bars = t_interval(point.costs), t_interval(point.returns)
    assert bars[0] is not None and bars[1] is not None
    axes.plot([max(0, bars[0].low), bars[0].high], [score, score], color=style.colour, linewidth=1, alpha=0.6)
    axes.plot([cost, cost], [bars[1].low, bars[1].high], color=style.colour, linewidth=1, alpha=0.6)
    axes.scatter(
        [cost], [score], s=34, color=style.colour, marker=style.marker, edgecolor=INK, linewidth=0.6, label=arm
    )


def main() -> None:
    """Prints the tables and writes the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entry", type=Path, help="a study of the gallery with margins.jsonl")
    parser.add_argument("output", type=Path, help="the PNG to write")
    options = parser.parse_args()
    panels = read_panels(options.entry)
    print_tables(panels)
    print_plans(panels, question_of(read_study(options.entry / "study.yaml")))
    with look(read_texts("en")):
        draw(panels, options.output)


if __name__ == "__main__":
    main()
