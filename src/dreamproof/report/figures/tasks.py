"""Figures of a study over several tasks: a heat map of arms and tasks, and a profile over all tasks and seeds."""

import numpy as np
from matplotlib.figure import Figure

from dreamproof.report.context import ReportContext
from dreamproof.report.figures.theme import INK, SOFT, add_note, arm_styles, legend_below, new_figure
from dreamproof.report.numbers import DASH
from dreamproof.report.tasks import mean_by_task, task_tables
from dreamproof.stats.describe import Floats, resample_counts

ROW_INCHES, COLUMN_INCHES, LABEL_INCHES = 0.235, 1.15, 2.0
DARK = 0.55  # of the colour scale: numbers on darker cells are white


def task_scores(context: ReportContext) -> Figure | None:
    """Mean over seeds of every arm (columns) on every task (rows), as colours and numbers."""
    arms, tasks, means = mean_by_task(context.analysis)
    if not tasks or np.isnan(means).all():
        return None
    figure = new_figure(LABEL_INCHES + COLUMN_INCHES * len(arms), 1.1 + ROW_INCHES * len(tasks))
    axes = figure.subplots()
    low, high = min(0.0, float(np.nanmin(means))), max(1.0, float(np.nanmax(means)))
    axes.imshow(means.T, aspect="auto", cmap="Blues", vmin=low, vmax=high)
    for (row, column), value in np.ndenumerate(means.T):
        known = bool(np.isfinite(value))
        is_dark = known and (value - low) / (high - low) > DARK
        number, colour = f"{value:.2f}" if known else DASH, "w" if is_dark else INK if known else SOFT
        axes.text(column, row, number, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(
        range(len(arms)), arms, rotation=20 if len(arms) > 3 else 0, ha="right" if len(arms) > 3 else "center"
    )
    axes.set_yticks(range(len(tasks)), tasks)
    axes.tick_params(labelsize=7.5, length=0)
    axes.grid(False)
    metric = context.analysis.evidence.study.metric.name
    add_note(
        figure, context.texts("figure_note.task_scores", metric=metric, seeds=_seeds(task_tables(context.analysis)))
    )
    return figure


def task_profile(context: ReportContext) -> Figure | None:
    """Share of all tasks and seeds above a value, with a band over seeds that keep their tasks together."""
    tables = task_tables(context.analysis)
    if not tables:
        return None
    everything = np.concatenate([table.reshape(-1) for table in tables.values()])
    grid = np.linspace(min(0.0, float(everything.min())), float(everything.max()), 200)
    figure = new_figure(6.4, 3.8)
    axes, styles = figure.subplots(), arm_styles(list(tables))
    for arm, table in tables.items():
        above = (table[:, :, None] > grid).mean(axis=1)
        style = styles[arm]
        if len(table) > 1:
            low, high = _band(above)
            axes.fill_between(grid, low, high, color=style.colour, alpha=0.15, linewidth=0)
        axes.plot(grid, above.mean(0), color=style.colour, linestyle=style.line, linewidth=1.8, label=arm)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(context.analysis.evidence.study.metric.name)
    axes.set_ylabel(context.texts("axis.share_of_tasks"))
    legend_below(figure, axes)
    add_note(figure, context.texts("figure_note.task_profile", seeds=_seeds(tables), tasks=table.shape[1]))
    return figure


def _band(above: Floats) -> tuple[Floats, Floats]:
    """95 % percentile band of the mean over seeds (seeds, grid), seeds resampled."""
    weights = resample_counts(len(above)) / len(above)
    low, high = np.quantile(weights.T @ above, [0.025, 0.975], axis=0)
    return low, high


def _seeds(tables: dict[str, Floats]) -> str:
    """The numbers of complete seeds per arm: 5, or 3–5."""
    counts = sorted({len(table) for table in tables.values()}) or [0]
    return "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
