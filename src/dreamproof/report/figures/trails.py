"""The path of an agent through its first test episode, one panel per arm."""

import itertools
from collections.abc import Iterable
from typing import Any

from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from dreamproof.report.context import ReportContext
from dreamproof.report.data import StudyEvidence
from dreamproof.report.figures.theme import INK, SOFT, add_note, arm_styles, new_figure, place_legend
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_evaluation
from dreamproof.runs.records import Place, Trail

MAX_PANELS = 8
PANELS_PER_ROW = 4
FARTHEST = 1e6
PANEL_INCHES = 2.4
HAZARD = "#c9ced6"
VASE = "#8fb7c9"
HIT = "#c0392b"


def trails(context: ReportContext) -> Figure | None:
    """Trails of the arms under the deciding condition, each of its first evaluated seed."""
    found = first_trails(context.analysis.evidence)
    if not found or len(found) > MAX_PANELS:
        return None
    columns = min(PANELS_PER_ROW, len(found))
    rows = -(-len(found) // columns)
    figure = new_figure(max(4.0, PANEL_INCHES * columns), 0.7 + (PANEL_INCHES + 0.35) * rows)
    styles = arm_styles(context.analysis.evidence.arms)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    reach = farthest(trail for _, trail in found.values())
    for axes, (arm, (seed, trail)) in zip(panels, found.items(), strict=False):
        _draw(axes, trail, styles[arm].colour)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        axes.set_title(f"{arm} · {context.texts('axis.seed')} {seed}", fontsize=8)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    _draw_scale(panels[0])
    place_legend(figure, *_legend(context, any(trail.vases for _, trail in found.values())))
    add_note(figure, context.texts("figure_note.trails", condition=context.analysis.evidence.study.metric.condition))
    return figure


def farthest(trails: Iterable[Trail]) -> float:
    """Half the side of a square around the origin that shows all of these episodes, in metres."""
    places = [place for trail in trails for place in [*trail.agent, *trail.goal, *trail.hazards, *_vase_places(trail)]]
    return 0.3 + max(max(abs(x), abs(y)) for x, y in places)


def draw_vases(axes: Any, trail: Trail, step: int) -> None:
    """Vases as squares where they are at a step, dashed where they were at first; their headings are not recorded."""
    half = trail.vase_size / 2
    for moved in trail.vases:
        places = [place for place in moved if place[0] <= step]
        for (_, x, y), now in [(places[0], len(places) == 1), (places[-1], True)]:
            style = {"facecolor": VASE} if now else {"fill": False, "linestyle": ":"}
            axes.add_patch(Rectangle((x - half, y - half), 2 * half, 2 * half, edgecolor=SOFT, linewidth=0.6, **style))


def _vase_places(trail: Trail) -> list[Place]:
    return [(x, y) for moved in trail.vases for _, x, y in moved]


def _draw_scale(axes: Any) -> None:
    """A bar of one metre in the lower left corner of the first panel; all panels have its scale."""
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    reach = -2 * left
    x, y = left + 0.05 * reach, bottom + 0.05 * reach
    axes.plot([x, x + 1], [y, y], color=INK, linewidth=2, solid_capstyle="butt")
    axes.text(x + 0.5, y + 0.02 * reach, "1 m", ha="center", va="bottom", fontsize=7)


def _legend(context: ReportContext, vases: bool) -> tuple[list[Any], list[str]]:
    """What the marks of a panel mean."""
    bare: dict[str, Any] = {"linestyle": "none", "color": INK}
    marks = {
        "hazard": Line2D([], [], marker="o", markersize=9, markerfacecolor=HAZARD, markeredgecolor=SOFT, **bare),
        "vase": Line2D([], [], marker="s", markersize=7, markerfacecolor=VASE, markeredgecolor=SOFT, **bare),
        "goal": Line2D([], [], marker="o", markersize=9, markerfacecolor="none", **bare),
        "start": Line2D([], [], marker="o", markersize=4, **bare),
        "hit": Line2D([], [], marker="x", markersize=5, linestyle="none", color=HIT),
    }
    if not vases:
        del marks["vase"]
    return list(marks.values()), [context.texts(f"axis.{name}") for name in marks]


def first_trails(evidence: StudyEvidence) -> dict[str, tuple[int, Trail]]:
    """Seed and trail of every arm that has one."""
    condition, found = evidence.study.metric.condition, {}
    for (cell, name), facts in sorted(evidence.evals.items(), key=lambda item: item[0][0].seed):
        if name != condition or not facts.evaluated or facts.imported or cell.arm in found:
            continue
        record = read_evaluation(RunFolder(evidence.folder.root / evidence.cells[cell].run_folder), name)
        if record is not None and record.trail is not None and _is_drawable(record.trail):
            found[cell.arm] = (cell.seed, record.trail)
    return {arm: found[arm] for arm in evidence.arms if arm in found}


def _is_drawable(trail: Trail) -> bool:
    """Whether there is a path and all its coordinates can be drawn."""
    places = [*trail.agent, *trail.goal, *trail.hazards, *_vase_places(trail)]
    places += [(trail.goal_radius, trail.hazard_radius), (trail.vase_size, 0.0)]
    return (
        bool(trail.agent)
        and all(moved and moved[0][0] == 0 for moved in trail.vases)
        and all(abs(x) < FARTHEST and abs(y) < FARTHEST for x, y in places)
    )


def _draw(axes: Any, trail: Trail, colour: str) -> None:
    """Hazards as discs, vases as squares, goals as numbered rings, the path from faint to full, crosses at costs."""
    for x, y in trail.hazards:
        axes.add_patch(Circle((x, y), trail.hazard_radius, facecolor=HAZARD, edgecolor=SOFT, linewidth=0.6))
    draw_vases(axes, trail, len(trail.agent))
    goals = list(dict.fromkeys(trail.goal))
    for number, (x, y) in enumerate(goals, start=1):
        axes.add_patch(Circle((x, y), trail.goal_radius, fill=False, edgecolor=INK, linewidth=0.8))
        axes.annotate(str(number), (x, y), ha="center", va="center", fontsize=6, color=INK)
    way = trail.agent
    pieces = list(itertools.pairwise(way))
    shades = [0.25 + 0.75 * index / max(1, len(pieces) - 1) for index in range(len(pieces))]
    axes.add_collection(LineCollection(pieces, colors=colour, alpha=shades, linewidths=1.3))
    axes.plot(*way[0], marker="o", markersize=4, color=colour, linestyle="none")
    hit = [place for place, cost in zip(way, trail.cost, strict=False) if cost > 0]
    if hit:
        axes.plot(*zip(*hit, strict=True), marker="x", markersize=4, color=HIT, linestyle="none")
