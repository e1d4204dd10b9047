"""Learning curves: the mean of an arm, its interval, and every seed as a thin line."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from dreamproof.report.context import ReportContext
from dreamproof.report.curves import Curve, arm_band, read_curves
from dreamproof.report.figures.theme import INK, LIMIT, ArmStyle, add_note, arm_styles, legend_below, new_figure
from dreamproof.report.rounding import exact_text
from dreamproof.runs.layout import Cell
from dreamproof.settings.study import Constraint
from dreamproof.stats.describe import finite_values

MANY_SEED_LINES = 12
NEAR = 0.1  # a floor farther from the curves than this share of their range is named, not drawn
FLOOR_DASHES = ((0, (6, 3)), (0, (1, 2)), (0, (6, 2, 1, 2)))


def primary_curves(context: ReportContext) -> Figure | None:
    """The deciding metric over agent steps."""
    return _curves(context, context.analysis.evidence.study.metric.name, None)


def cost_curves(context: ReportContext, limit: Constraint) -> Figure | None:
    """A limited metric over agent steps, with its limit."""
    return _curves(context, limit.name, limit.at_most)


def _curves(context: ReportContext, metric: str, limit: float | None) -> Figure | None:
    evidence = context.analysis.evidence
    curves = read_curves(evidence, metric)
    if not curves:
        return None
    figure = new_figure(7.2, 3.8 + 0.2 * -(-len(evidence.arms) // 3))
    axes = figure.subplots()
    styles = arm_styles(evidence.arms)
    for arm in evidence.arms:
        own = {cell: curve for cell, curve in curves.items() if cell.arm == arm}
        if own:
            _draw_arm_curves(axes, own, styles[arm], arm, 0.0 if limit is not None else -np.inf)
    if limit is not None:
        axes.axhline(limit, **LIMIT, label=f"{context.texts('axis.limit')} {exact_text(limit)}")
    _frame(axes, curves, [*_draw_floors(axes, context, metric, curves), *([] if limit is None else [limit])])
    axes.set_xlabel(context.texts("axis.agent_steps"))
    axes.set_ylabel(", ".join(sorted({curve.name for curve in curves.values()})))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    legend_below(figure, axes)
    add_note(figure, context.texts("figure_note.curves"))
    return figure


def _draw_floors(axes: Any, context: ReportContext, metric: str, curves: dict[Cell, Curve]) -> list[float]:
    """Draws the scripted policies as lines; one so far away that it would flatten the curves is only named."""
    evidence = context.analysis.evidence
    floors = evidence.floors.get(evidence.study.metric.condition, {})
    levels = {name: floor[metric] for name, floor in floors.items() if metric in floor}
    values = finite_values([value for curve in curves.values() for value in curve.values])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    drawn = []
    for (name, level), dashes in zip(levels.items(), FLOOR_DASHES, strict=False):
        looks = {"color": INK, "linewidth": 0.8, "linestyle": dashes, "alpha": 0.6}
        if low - NEAR * (high - low) <= level <= high + NEAR * (high - low):
            axes.axhline(level, label=name, **looks)
            drawn.append(level)
        else:
            axes.plot([], [], label=f"{name}: {level:.3g} {'↑' if level > high else '↓'}", **looks)
    return drawn


def _frame(axes: Any, curves: dict[Cell, Curve], levels: list[float]) -> None:
    """Shows every seed and level in full; the interval of a few seeds would flatten them, so it is clipped."""
    values = np.concatenate(
        [*(np.asarray(curve.values, float) for curve in curves.values()), np.asarray(levels, float)]
    )
    values = values[np.isfinite(values)]
    if values.size:
        room = 0.1 * max(float(values.max() - values.min()), 1e-9)
        # What is never negative, a cost, needs no room for it.
        below = 0.3 * room if values.min() >= 0 else room
        axes.set_ylim(values.min() - below, values.max() + room)


def _draw_arm_curves(axes: Any, curves: dict[Cell, Curve], style: ArmStyle, arm: str, bound: float) -> None:
    """Thin seed lines, their mean, and its t interval from three seeds on, which ends at the metric's bound."""
    if len(curves) <= MANY_SEED_LINES:
        for curve in curves.values():
            axes.plot(curve.agent_steps, curve.values, color=style.colour, linewidth=0.6, alpha=0.35)
    band = arm_band(list(curves.values()), bound)
    axes.plot(
        band.agent_steps,
        band.mean,
        color=style.colour,
        linestyle=style.line,
        linewidth=1.8,
        marker=style.marker,
        markevery=max(1, len(band.mean) // 8),
        markersize=5,
        label=f"{arm} (n={len(curves)})",
    )
    wide = np.isfinite(band.low)
    if wide.any():
        axes.fill_between(
            band.agent_steps[wide], band.low[wide], band.high[wide], color=style.colour, alpha=0.13, linewidth=0
        )
