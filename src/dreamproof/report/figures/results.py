"""Figures of results: curves, bars with dots, score against cost, performance profile."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter
from scipy import stats

from dreamproof.report.analysis import group_mean
from dreamproof.report.curves import Curve, read_curves
from dreamproof.report.data import FINAL, Group, StudyEvidence
from dreamproof.report.documents.tables import limit_of
from dreamproof.report.figures.theme import (
    COLOURS,
    INK,
    SOFT,
    ArmStyle,
    arm_styles,
    legend_below,
    new_figure,
    place_legend,
)
from dreamproof.report.prose import ReportContext
from dreamproof.runs.layout import Cell
from dreamproof.stats.describe import Floats, Interval, finite_values
from dreamproof.stats.limits import LimitKind

GRID_POINTS = 200
MANY_SEED_LINES = 12
INTERVAL_SEEDS = 3
MANY_ARMS = 8
MAX_PANELS = 4
LIMIT: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (2, 2))}
LIMIT_MARKS = {LimitKind.KEEPS: "≤", LimitKind.BREAKS: ">", LimitKind.CANNOT_TELL: "?"}
DRAWABLE = 1e100  # beyond this the arithmetic of an axis overflows


def primary_curves(context: ReportContext) -> Figure | None:
    """The deciding metric over agent steps."""
    return _curves(context, context.analysis.evidence.study.metric.name, None)


FLOOR_DASHES = ((0, (6, 3)), (0, (1, 2)), (0, (6, 2, 1, 2)))


def cost_curves(context: ReportContext) -> Figure | None:
    """The limited metric over agent steps, with its limit."""
    constraint = context.analysis.evidence.study.constraint
    return None if constraint is None else _curves(context, constraint.name, constraint.at_most)


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
            _draw_arm_curves(axes, own, styles[arm], arm)
    if limit is not None:
        axes.axhline(limit, **LIMIT, label=f"{context.texts('axis.limit')} {limit:g}")
    _frame(axes, curves, [*_draw_floors(axes, context, metric, curves), *([] if limit is None else [limit])])
    axes.set_xlabel(context.texts("axis.agent_steps"))
    axes.set_ylabel(", ".join(sorted({curve.name for curve in curves.values()})))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    legend_below(figure, axes)
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
        if low - 2 * (high - low) <= level <= high + 2 * (high - low):
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
        room = 0.25 * max(float(values.max() - values.min()), 1e-9)
        # What is never negative, a cost, needs no room for it.
        below = 0.2 * room if values.min() >= 0 else room
        axes.set_ylim(values.min() - below, values.max() + room)


def _draw_arm_curves(axes: Any, curves: dict[Cell, Curve], style: ArmStyle, arm: str) -> None:
    """Thin seed lines, their mean, and its t interval for three or more seeds (with two it would cover the figure)."""
    if len(curves) <= MANY_SEED_LINES:
        for curve in curves.values():
            axes.plot(curve.agent_steps, curve.values, color=style.colour, linewidth=0.6, alpha=0.35)
    low = max(curve.agent_steps[0] for curve in curves.values())
    steps = np.unique(np.concatenate([np.asarray(curve.agent_steps, float) for curve in curves.values()]))
    steps = steps[steps >= low]
    if len(steps) > GRID_POINTS:
        steps = np.linspace(low, steps[-1], GRID_POINTS)
    table = np.array([_on_grid(curve, steps) for curve in curves.values()])
    counts = np.isfinite(table).sum(axis=0)
    shown = counts >= 1
    mean = np.nanmean(table[:, shown], axis=0)
    axes.plot(
        steps[shown],
        mean,
        color=style.colour,
        linestyle=style.line,
        linewidth=1.8,
        marker=style.marker,
        markevery=max(1, int(shown.sum()) // 8),
        markersize=5,
        label=f"{arm} (n={len(curves)})",
    )
    wide = counts >= INTERVAL_SEEDS
    if wide.any():
        spread = np.nanstd(table[:, wide], axis=0, ddof=1)
        half = stats.t.ppf(0.975, counts[wide] - 1) * spread / np.sqrt(counts[wide])
        middle = np.nanmean(table[:, wide], axis=0)
        axes.fill_between(steps[wide], middle - half, middle + half, color=style.colour, alpha=0.13, linewidth=0)


def _on_grid(curve: Curve, steps: Floats) -> Floats:
    """A curve interpolated at given steps; NaN outside its range."""
    return np.asarray(np.interp(steps, curve.agent_steps, curve.values, left=np.nan, right=np.nan))


def condition_bars(context: ReportContext) -> Figure | None:
    """Bars of the deciding metric by condition with every seed as a dot; a proxy is hatched."""
    return _bars(context, context.analysis.evidence.study.metric.name, None)


def cost_bars(context: ReportContext) -> Figure | None:
    """Bars of the limited metric by condition, with its limit."""
    constraint = context.analysis.evidence.study.constraint
    return None if constraint is None else _bars(context, constraint.name, constraint.at_most)


def _bars(context: ReportContext, metric: str, limit: float | None) -> Figure | None:
    evidence = context.analysis.evidence
    conditions = [
        name for name in evidence.conditions if any(_values(evidence, arm, name, metric) for arm in evidence.arms)
    ]
    if not conditions:
        return None
    if len(evidence.arms) > MANY_ARMS:
        return _forest(context, conditions, metric, limit)
    arms, styles = evidence.arms, arm_styles(evidence.arms)
    figure = new_figure(min(16.0, max(5.4, 1.6 + 0.42 * len(arms) * len(conditions))), 4.2)
    axes = figure.subplots()
    width = 0.8 / len(arms)
    for place, arm in enumerate(arms):
        for where, condition in enumerate(conditions):
            values = _values(evidence, arm, condition, metric)
            if values:
                x = where + (place - (len(arms) - 1) / 2) * width
                _draw_bar(axes, context, Group(arm, condition, metric), (x, width), styles[arm])
    axes.axhline(0, color=SOFT, linewidth=0.8)
    marks = [context.texts("mark.proxy") if evidence.kind(name) == "proxy" else "" for name in conditions]
    names = [f"{context.condition(name)}{mark}" for name, mark in zip(conditions, marks, strict=True)]
    axes.set_xticks(range(len(conditions)), names)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(metric)
    _keep_dots_readable(axes, evidence, conditions, metric)
    shown = [arm for arm in arms if any(_values(evidence, arm, name, metric) for name in conditions)]
    entries, names = [_bar_entry(styles[arm]) for arm in shown], list(shown)
    if limit is not None:
        entries.append(axes.axhline(limit, **LIMIT))
        names.append(f"{context.texts('axis.limit')} {limit:g}")
    place_legend(figure, entries, names)
    return figure


def _forest(context: ReportContext, conditions: list[str], metric: str, limit: float | None) -> Figure:
    """Many arms: one row per arm, one panel per condition, the deciding one first."""
    evidence = context.analysis.evidence
    panels = sorted(conditions, key=lambda name: name != evidence.primary_condition)[:MAX_PANELS]
    figure = new_figure(2.2 + 2.4 * len(panels), 1.4 + 0.26 * len(evidence.arms))
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, condition in zip(all_axes, panels, strict=True):
        for row, arm in enumerate(evidence.arms):
            values = _values(evidence, arm, condition, metric)
            if not values:
                continue
            group = Group(arm, condition, metric)
            summary, interval = context.analysis.summaries[group], _shown_interval(context, group)
            axes.scatter(values, [row] * len(values), s=7, color=SOFT, alpha=0.35, linewidth=0)
            if interval is not None and interval.finite:
                axes.plot([interval.low, interval.high], [row, row], color=INK, linewidth=1.4)
            found = limit_of(context, group)
            if found is not None:
                mark = LIMIT_MARKS[found.verdict.kind]
                axes.text(1.0, row, f" {mark}", transform=axes.get_yaxis_transform(), ha="left", va="center")
            axes.scatter([summary.mean], [row], s=26, color=COLOURS[0], edgecolor=INK, linewidth=0.6, zorder=4)
        proxy = context.texts("mark.proxy") if evidence.kind(condition) == "proxy" else ""
        axes.set_title(f"{context.condition(condition)}{proxy}")
        axes.set_xlabel(metric)
        if limit is not None:
            axes.axvline(limit, **LIMIT)
    all_axes[0].set_yticks(range(len(evidence.arms)), evidence.arms)
    all_axes[0].set_ylim(len(evidence.arms) - 0.4, -0.6)
    return figure


def _values(evidence: StudyEvidence, arm: str, condition: str, metric: str) -> list[float]:
    found = evidence.values.get(Group(arm, condition, metric), {})
    return [float(value) for value in finite_values(list(found.values())) if abs(value) < DRAWABLE]


def _draw_bar(axes: Any, context: ReportContext, group: Group, place: tuple[float, float], style: ArmStyle) -> None:
    x, width = place
    evidence = context.analysis.evidence
    values = _values(evidence, group.arm, group.condition, group.metric)
    summary = context.analysis.summaries[group]
    hatch = "///" if evidence.kind(group.condition) == "proxy" else None
    axes.bar(x, summary.mean, width * 0.92, color=style.colour, alpha=0.45, edgecolor=style.colour, hatch=hatch)
    interval = _shown_interval(context, group)
    if interval is not None and interval.finite:
        axes.errorbar(x, summary.mean, yerr=_ends(summary.mean, interval), color=INK, linewidth=1.0, capsize=3)
    found = limit_of(context, group)
    if found is not None:
        axes.text(
            x, 1.0, LIMIT_MARKS[found.verdict.kind], transform=axes.get_xaxis_transform(), ha="center", va="bottom"
        )
    offsets = np.linspace(-0.22, 0.22, len(values)) * width if len(values) > 1 else np.zeros(1)
    axes.scatter(
        x + offsets, values, s=16, color=style.colour, marker=style.marker, edgecolor=INK, linewidth=0.5, zorder=4
    )


def _shown_interval(context: ReportContext, group: Group) -> Interval | None:
    """The bounds that a limit is judged by; the t interval of any other metric."""
    found = limit_of(context, group)
    return context.analysis.summaries[group].t_interval if found is None else found.verdict.bounds


def _ends(middle: float, interval: Interval) -> list[list[float]]:
    """Lengths of an error bar below and above its middle."""
    return [[max(0.0, middle - interval.low)], [max(0.0, interval.high - middle)]]


def _bar_entry(style: ArmStyle) -> Any:
    """A legend entry of bar and dot, so that arms can be distinguished in grey."""
    dot = Line2D([], [], color=style.colour, marker=style.marker, markeredgecolor=INK, markersize=6, linestyle="none")
    return (Patch(facecolor=style.colour, alpha=0.45, edgecolor=style.colour), dot)


def _keep_dots_readable(axes: Any, evidence: StudyEvidence, conditions: list[str], metric: str) -> None:
    """Clips the axis if intervals of two or three seeds would squeeze the dots into a line."""
    dots = [v for arm in evidence.arms for name in conditions for v in _values(evidence, arm, name, metric)]
    low, high = min([0.0, *dots]), max([0.0, *dots])
    span = (high - low) or 1.0
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, low - 1.2 * span), min(top, high + 1.2 * span))


def score_against_cost(context: ReportContext) -> Figure | None:
    """One small mark per seed, a large one per arm, the limit as a line; means only if seeds are not known."""
    evidence = context.analysis.evidence
    constraint, metric = evidence.study.constraint, evidence.study.metric.name
    if constraint is None:
        return None
    found = context.analysis.constrained
    if not found:
        return None
    figure = new_figure(5.8, 4.4)
    axes = figure.subplots()
    styles = arm_styles(evidence.arms)
    drawn = False
    for arm, place in found.items():
        score = group_mean(context.analysis, Group(arm, place.condition, metric))
        if score is None or max(abs(score), abs(place.mean)) >= DRAWABLE:
            continue
        drawn = True
        scores = evidence.values.get(Group(arm, place.condition, metric), {})
        costs = evidence.values.get(Group(arm, place.condition, constraint.name, place.checkpoint), {})
        shared = [seed for seed in scores if seed in costs and np.isfinite(scores[seed]) and np.isfinite(costs[seed])]
        style = styles[arm]
        bounds = place.verdict.bounds
        if bounds is not None:
            axes.errorbar(
                place.mean, score, xerr=_ends(place.mean, bounds), color=style.colour, linewidth=1.2, capsize=3
            )
        if shared:
            axes.scatter(
                [costs[s] for s in shared],
                [scores[s] for s in shared],
                s=20,
                color=style.colour,
                marker=style.marker,
                alpha=0.55,
            )
        axes.scatter(
            [place.mean],
            [score],
            s=110,
            color=style.colour,
            marker=style.marker,
            edgecolor=INK,
            linewidth=1.0,
            label=f"{arm}: {context.texts(f'limit_verdict.{place.verdict.kind}')}",
            zorder=4,
        )
    if not drawn:
        return None
    limit = f"{context.texts('axis.limit')} {constraint.at_most:g}"
    axes.axvline(constraint.at_most, **LIMIT, label=limit)
    checkpoint = next(iter(found.values())).checkpoint
    axes.set_xlabel(constraint.name if checkpoint == FINAL else f"{constraint.name}@{checkpoint}")
    axes.set_ylabel(f"{metric} · {context.condition(next(iter(found.values())).condition)}")
    axes.margins(0.12)
    legend_below(figure, axes)
    return figure


def performance_profile(context: ReportContext) -> Figure | None:
    """Share of seeds above a value, under the deciding condition; needs an arm with two seeds."""
    evidence = context.analysis.evidence
    metric, condition = evidence.study.metric.name, evidence.primary_condition
    tables = {arm: np.sort(_values(evidence, arm, condition, metric)) for arm in evidence.arms}
    tables = {arm: values for arm, values in tables.items() if len(values)}
    if not tables or max(map(len, tables.values())) < 2:
        return None
    everything = np.concatenate(list(tables.values()))
    margin = 0.05 * (float(np.ptp(everything)) or 1.0)
    grid = np.linspace(everything.min() - margin, everything.max() + margin, 400)
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    styles = arm_styles(evidence.arms)
    for arm, values in tables.items():
        share = 1 - np.searchsorted(values, grid, side="right") / len(values)
        style = styles[arm]
        axes.step(
            grid,
            share,
            where="post",
            color=style.colour,
            linestyle=style.line,
            linewidth=1.8,
            label=f"{arm} (n={len(values)})",
        )
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"{metric} · {context.condition(condition)}")
    axes.set_ylabel(context.texts("axis.share_above"))
    legend_below(figure, axes)
    return figure
