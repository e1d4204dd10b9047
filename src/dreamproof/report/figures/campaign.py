"""Figures of the campaign: coverage matrix, timeline of attempts, money by use."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from dreamproof.report.context import ReportContext
from dreamproof.report.figures.theme import GRID, INK, SOFT, add_note, new_figure, place_legend
from dreamproof.report.palette import BAD, GOOD, IDLE, STATE_COLOURS, cause_colour
from dreamproof.runs.layout import Cell

STATE_HATCHES = {
    "proven": None, "reported": "...", "running": "///", "unfinished": "\\\\\\", "stopped": "xxx", "not_saved": "ooo",
    "missing": None,
}  # fmt: skip
CAUSE_HATCHES = (None, "xxx", "///", "\\\\\\", "...", "+++", "ooo", "---")
Part = tuple[str, float, str, str | None]
MAX_COLUMNS = 24
MAX_ATTEMPTS = 120
MANY_COLUMNS = 6
LONG_SECONDS = 7200


def coverage(context: ReportContext) -> Figure | None:
    """Arms by seeds for training, and by seeds and conditions for evaluation; shaded counts if there are many seeds."""
    evidence, texts = context.analysis.evidence, context.texts
    seeds, arms = evidence.study.seeds, evidence.arms
    conditions = [condition.name for condition in evidence.study.conditions]
    blocks = ["", *conditions]
    if len(seeds) * len(blocks) > MAX_COLUMNS:
        return _shaded_coverage(context)
    gap = 0.7
    width = len(blocks) * len(seeds) + gap * (len(blocks) - 1)
    figure = new_figure(max(4.5, 1.8 + 0.3 * width), 1.5 + 0.34 * len(arms))
    axes = figure.subplots()
    used: set[str] = set()
    for number, block in enumerate(blocks):
        left = number * (len(seeds) + gap)
        for row, arm in enumerate(arms):
            for column, seed in enumerate(seeds):
                state = _state(context, Cell(arm, seed), block)
                used.add(state)
                _square(axes, left + column, row, state)
        title = block or texts("axis.train")
        axes.text(left + len(seeds) / 2, -0.75, title, ha="center", va="bottom", fontsize=9, fontweight="bold")
        for column, seed in enumerate(seeds):
            axes.text(left + column + 0.5, -0.12, str(seed), ha="center", va="bottom", fontsize=7, color=SOFT)
    _matrix_axes(axes, arms, width)
    handles = [_state_patch(state, texts(f"state.{state}")) for state in STATE_COLOURS if state in used]
    place_legend(figure, handles, [str(handle.get_label()) for handle in handles])
    add_note(figure, texts("figure_note.coverage", seeds=len(seeds)))
    return figure


def _state(context: ReportContext, cell: Cell, condition: str) -> str:
    evidence = context.analysis.evidence
    if not condition:
        return evidence.cells[cell].state
    facts = evidence.evals[cell, condition]
    if not facts.evaluated:
        return "missing"
    return "reported" if facts.imported and not facts.parameter_hash else "proven"


def _square(axes: Any, x: float, y: float, state: str) -> None:
    colour, hatch = STATE_COLOURS[state], STATE_HATCHES[state]
    edge = SOFT if state == "missing" else INK
    axes.add_patch(
        Rectangle((x + 0.06, y + 0.06), 0.88, 0.88, facecolor=colour, edgecolor=edge, linewidth=0.6, hatch=hatch)
    )
    if state == "missing":
        axes.text(x + 0.5, y + 0.5, "×", ha="center", va="center", color="#b5475a", fontsize=11)


def _state_patch(state: str, label: str) -> Patch:
    colour, hatch = STATE_COLOURS[state], STATE_HATCHES[state]
    return Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, hatch=hatch, label=label)


def _matrix_axes(axes: Any, arms: list[str], width: float) -> None:
    axes.set_xlim(0, width)
    axes.set_ylim(len(arms), -1.5)
    axes.set_aspect("equal")
    axes.set_yticks([row + 0.5 for row in range(len(arms))], arms)
    axes.tick_params(length=0, labelcolor=INK)
    axes.set_xticks([])
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)


def _shaded_coverage(context: ReportContext) -> Figure:
    """Proven and declared counts: one row per condition, one column per arm; turned over if there are many arms."""
    evidence, texts = context.analysis.evidence, context.texts
    blocks, arms = ["", *(condition.name for condition in evidence.study.conditions)], evidence.arms
    totals = np.zeros((len(blocks), len(arms)))
    done = np.zeros_like(totals)
    for cell, facts in evidence.cells.items():
        totals[0, arms.index(cell.arm)] += 1
        done[0, arms.index(cell.arm)] += facts.trained
    for (cell, name), eval_facts in evidence.evals.items():
        totals[blocks.index(name), arms.index(cell.arm)] += 1
        done[blocks.index(name), arms.index(cell.arm)] += eval_facts.evaluated
    rows, columns = [texts("axis.train"), *blocks[1:]], list(arms)
    if len(columns) > len(rows):
        rows, columns, totals, done = columns, rows, totals.T, done.T
    figure = new_figure(max(4.5, 1.8 + 0.85 * len(columns)), 1.2 + 0.26 * len(rows))
    axes = figure.subplots()
    axes.imshow(done / np.maximum(totals, 1), cmap="Greens", vmin=0, vmax=1.4, aspect="auto")
    for (row, column), count in np.ndenumerate(done):
        text = f"{int(count)}/{int(totals[row, column])}"
        axes.text(column, row, text, ha="center", va="center", fontsize=8, color=INK)
    tilted = len(columns) > MANY_COLUMNS
    axes.set_xticks(range(len(columns)), columns, rotation=30 if tilted else 0, ha="right" if tilted else "center")
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(visible=False)
    axes.set_xticks(np.arange(0.5, len(columns)), minor=True)
    axes.set_yticks(np.arange(0.5, len(rows)), minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    add_note(figure, texts("figure_note.coverage", seeds=len(evidence.study.seeds)))
    return figure


def timeline(context: ReportContext) -> Figure | None:
    """Attempts as bars over hours, coloured and hatched by cause of exit."""
    attempts = [one for one in context.analysis.evidence.attempts if one.wall_seconds is not None][-MAX_ATTEMPTS:]
    if not attempts:
        return None
    start = min(one.started for one in attempts)
    end = max(one.started + (one.wall_seconds or 0.0) for one in attempts)
    unit, label = (3600, "axis.hours") if end - start > LONG_SECONDS else (60, "axis.minutes")
    causes = sorted({one.cause or "unknown" for one in attempts}, key=lambda cause: (cause != "completed", cause))
    looks = {cause: _cause_look(cause, place) for place, cause in enumerate(causes)}
    names = list(dict.fromkeys(_row_name(one.cells) for one in attempts))
    figure = new_figure(8.0, min(14.0, 1.6 + 0.26 * len(names)))
    axes = figure.subplots()
    for one in attempts:
        colour, hatch = looks[one.cause or "unknown"]
        axes.barh(
            names.index(_row_name(one.cells)),
            (one.wall_seconds or 0.0) / unit,
            left=(one.started - start) / unit,
            height=0.66 if one.work == "train" else 0.3,
            color=colour,
            hatch=hatch,
            edgecolor=INK,
            linewidth=0.5,
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(context.texts(label))
    handles = [
        Patch(
            facecolor=colour,
            hatch=hatch,
            edgecolor=INK,
            label=context.texts.or_itself("cause", cause),
        )
        for cause, (colour, hatch) in looks.items()
    ]
    place_legend(figure, handles, [str(handle.get_label()) for handle in handles])
    add_note(figure, context.texts("figure_note.timeline", count=len(attempts)))
    return figure


def _cause_look(cause: str, place: int) -> tuple[str, str | None]:
    """Colour by how bad an end is, hatch by its cause."""
    if cause == "completed":
        return GOOD, None
    return cause_colour(cause), CAUSE_HATCHES[1 + place % (len(CAUSE_HATCHES) - 1)]


def _row_name(cells: tuple[str, ...]) -> str:
    first = cells[0] if cells else "–"
    more = f" +{len(cells) - 1}" if len(cells) > 1 else ""
    return f"{first}{more}"


def money(context: ReportContext) -> Figure | None:
    """Money by use, wasted money split by cause."""
    spending, texts = context.analysis.spending, context.texts
    if spending.recorded_seconds <= 0 and not spending.paid:
        return None
    parts: list[Part] = [(texts("use.useful"), spending.useful_seconds, GOOD, None)]
    for n, (cause, seconds) in enumerate(sorted(spending.by_cause.items(), key=lambda pair: -pair[1])):
        hatch = CAUSE_HATCHES[1 + n % (len(CAUSE_HATCHES) - 1)]
        parts.append((f"{texts('use.wasted')}: {texts.or_itself('cause', cause)}", seconds, BAD, hatch))
    if spending.idle_seconds > 0:
        parts.append((texts("use.idle"), spending.idle_seconds, IDLE, "..."))
    priced, gpus = spending.price_per_hour > 0, context.analysis.evidence.study.money.gpus_per_attempt
    bars: list[Part] = [
        (name, spending.money(seconds) if priced else seconds * gpus / 3600, colour, hatch)
        for name, seconds, colour, hatch in parts
    ]
    if priced and spending.unaccounted:
        bars.append((texts("use.unaccounted"), spending.unaccounted, "#ffffff", "xxx"))
    figure = new_figure(7.0, 1.3 + 0.42 * len(bars))
    axes = figure.subplots()
    for place, (_, amount, colour, hatch) in enumerate(bars):
        axes.barh(place, amount, height=0.62, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.6)
        text = context.money(amount) if priced else f"{amount:.2f} h"
        axes.text(amount, place, f" {text}", va="center", ha="left", fontsize=8)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_color(GRID)
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    axes.set_xlabel((spending.currency or "") if priced else texts("axis.gpu_hours"))
    hours = context.gpu_hours(spending.recorded_seconds)
    add_note(figure, texts("figure_note.money", hours=hours, count=spending.attempts))
    return figure
