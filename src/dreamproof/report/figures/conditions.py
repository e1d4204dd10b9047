"""The deciding and the limited metric under every condition, as small multiples: one panel per condition."""

from typing import Any

from matplotlib.figure import Figure

from dreamproof.report.context import ReportContext
from dreamproof.report.data import Group, StudyEvidence
from dreamproof.report.documents.tables import limit_of
from dreamproof.report.figures.theme import INK, LIMIT, SOFT, ArmStyle, add_note, arm_styles, new_figure
from dreamproof.report.rounding import exact_text
from dreamproof.settings.study import Constraint
from dreamproof.stats.describe import Interval, finite_values
from dreamproof.stats.limits import LimitKind

PANELS_PER_ROW, MAX_PANELS = 4, 12
PANEL_INCHES, ROW_INCHES, PANEL_FRAME_INCHES = 1.75, 0.23, 0.72
NARROWEST_INCHES = 5.0
INTERVAL_SEEDS = 3
CLIPPED = 1.2  # how many times the range of the seeds an interval may reach beyond them
LIMIT_MARKS = {
    LimitKind.KEEPS: ("≤", "#2e7d5b"),
    LimitKind.BREAKS: (">", "#b5475a"),
    LimitKind.CANNOT_TELL: ("?", SOFT),
}
DRAWABLE = 1e100  # beyond this the arithmetic of an axis overflows


def score_panels(context: ReportContext) -> Figure | None:
    """The deciding metric by condition, all panels on one scale; tasks have figures of their own."""
    if context.analysis.evidence.study.tasks is not None:
        return None
    return _panels(context, context.analysis.evidence.study.metric.name, None)


def cost_panels(context: ReportContext, limit: Constraint) -> Figure | None:
    """A limited metric by condition with its limit, every panel on its own scale from 0."""
    return _panels(context, limit.name, limit.at_most)


def drawable_values(evidence: StudyEvidence, group: Group) -> list[float]:
    """The seeds' values that an axis can show."""
    found = evidence.values.get(group, {})
    return [float(value) for value in finite_values(list(found.values())) if abs(value) < DRAWABLE]


def shown_interval(context: ReportContext, group: Group) -> Interval | None:
    """The bounds that a limit is judged by; the t interval of any other metric, from three seeds on."""
    summary, found = context.analysis.summaries.get(group), limit_of(context, group)
    if found is not None:
        interval = found.verdict.bounds
    else:
        interval = summary.t_interval if summary is not None and summary.seeds >= INTERVAL_SEEDS else None
    return interval if interval is not None and interval.finite else None


def _panels(context: ReportContext, metric: str, limit: float | None) -> Figure | None:
    evidence = context.analysis.evidence
    arms, conditions = evidence.arms, shown_conditions(evidence, metric)
    if not conditions:
        return None
    columns = min(PANELS_PER_ROW, len(conditions))
    rows = -(-len(conditions) // columns)
    height = 0.45 + rows * (PANEL_FRAME_INCHES + ROW_INCHES * len(arms))
    figure = new_figure(
        max(NARROWEST_INCHES, 1.1 + PANEL_INCHES * columns), height + (0.3 if limit is not None else 0.0)
    )
    grid = figure.subplots(rows, columns, sharex=limit is None, sharey=True, squeeze=False).ravel()
    styles, counts = arm_styles(arms), set()
    for axes, condition in zip(grid, conditions, strict=False):
        for row, arm in enumerate(arms):
            group = Group(arm, condition, metric)
            counts |= {len(drawable_values(evidence, group))}
            _draw_arm(axes, context, group, row, styles[arm])
        proxy = context.texts("mark.proxy") if evidence.kind(condition) == "proxy" else ""
        axes.set_title(f"{context.condition(condition)}{proxy}", fontsize=8)
        axes.tick_params(labelsize=8)
        if limit is not None:
            axes.axvline(limit, **LIMIT)
        _frame(axes, [v for arm in arms for v in drawable_values(evidence, Group(arm, condition, metric))], limit)
    for axes in grid[len(conditions) :]:
        axes.set_axis_off()
    grid[0].set_yticks(range(len(arms)), arms)
    grid[0].set_ylim(len(arms) - 0.4, -0.6)
    figure.supxlabel(metric, fontsize=9)
    if limit is None:
        _common_frame(grid[: len(conditions)], evidence, conditions, metric)
    counts -= {0}
    seeds = "–".join(map(str, sorted({min(counts), max(counts)})))
    kind = "conditions" if limit is None else "conditions_cost"
    add_note(figure, context.texts(f"figure_note.{kind}", seeds=seeds, limit=exact_text(limit or 0.0)))
    return figure


def shown_conditions(evidence: StudyEvidence, metric: str) -> list[str]:
    """Conditions with a value, the deciding one first, as many as there are panels."""
    known = [
        name
        for name in evidence.conditions
        if any(drawable_values(evidence, Group(arm, name, metric)) for arm in evidence.arms)
    ]
    return sorted(known, key=lambda name: name not in evidence.deciding_conditions)[:MAX_PANELS]


def _draw_arm(axes: Any, context: ReportContext, group: Group, row: int, style: ArmStyle) -> None:
    """Seeds as small marks, the mean as a large one, its interval as a line, and what is shown about the limit."""
    values = drawable_values(context.analysis.evidence, group)
    if not values:
        return
    interval, found = shown_interval(context, group), limit_of(context, group)
    if interval is not None:
        axes.plot([interval.low, interval.high], [row, row], color=style.colour, linewidth=2.2, alpha=0.55)
    axes.scatter(values, [row] * len(values), s=9, color=INK, alpha=0.45, linewidth=0, zorder=3)
    mean = sum(values) / len(values)
    axes.scatter([mean], [row], s=34, color=style.colour, marker=style.marker, edgecolor=INK, linewidth=0.6, zorder=4)
    if found is not None:
        mark, colour = LIMIT_MARKS[found.verdict.kind]
        place = axes.get_yaxis_transform()
        axes.text(1.02, row, mark, transform=place, ha="left", va="center", color=colour, fontweight="bold")


def _frame(axes: Any, values: list[float], limit: float | None) -> None:
    """A panel of a limited metric starts at 0 and shows the limit; a wide interval of few seeds is clipped."""
    if limit is None or not values:
        return
    low, high = min([0.0, *values]), max([limit, *values])
    span = (high - low) or 1.0
    axes.set_xlim(low - 0.04 * span, min(axes.get_xlim()[1], high + CLIPPED * span))


def _common_frame(panels: Any, evidence: StudyEvidence, conditions: list[str], metric: str) -> None:
    """One scale from the seeds' own range; a wide interval of few seeds is clipped."""
    values = [
        v for arm in evidence.arms for name in conditions for v in drawable_values(evidence, Group(arm, name, metric))
    ]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    left, right = panels[0].get_xlim()
    panels[0].set_xlim(max(left, low - CLIPPED * span), min(right, high + CLIPPED * span))
