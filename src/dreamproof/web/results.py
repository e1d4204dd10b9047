"""What the pages show of results, as JSON values: curves, conditions, the decision and its figures."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.text import quoted
from dreamproof.report import load_analysis
from dreamproof.report.context import ReportContext
from dreamproof.report.curves import band_at, logged_name
from dreamproof.report.data import Group
from dreamproof.report.document import Block, Bullets, Heading, Paragraph, Picture, Stamp, Table
from dreamproof.report.documents.decision import decision
from dreamproof.report.documents.tables import limit_of
from dreamproof.report.language import read_texts
from dreamproof.report.numbers import TOKEN, Numbers, plain, register
from dreamproof.report.tasks import mean_by_task, task_tables
from dreamproof.runs.layout import Cell
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.views.values import Values
from dreamproof.web.followed import FollowedStudy
from dreamproof.web.payloads import arm_looks
from dreamproof.web.series import Floats, LoggedRun, SeriesStore, common_steps, json_numbers, json_steps, smoothed

MAX_CURVES = 240
ALL_POINTS = 100_000
"""Shown at most in one chart."""
MAX_WINDOW = 1000
DRAWING = threading.Lock()
"""The drawing library is not made for several threads."""
NO_LEDGER = -1


class ResultsOfStudy:
    """Curves and analysis of one study, read again where its version changed."""

    def __init__(self, study: FollowedStudy) -> None:
        self.study = study
        self.series = SeriesStore()
        self._context: ReportContext | None = None
        self._at = NO_LEDGER

    def context(self, language: str) -> ReportContext:
        """Analysis, numbers and texts that the documents are written from, as of the newest event."""
        with self.study.lock:
            opened = self.study.opened
            if self._context is None or self._at != self.study.ledger_version:
                self._at = self.study.ledger_version
                analysis = load_analysis(opened.folder.root, opened.study)
                self._context = ReportContext(analysis, register(analysis), read_texts("en"))
            return replace(self._context, texts=read_texts(language))


def metric_names(results: ResultsOfStudy) -> list[str]:
    """What the cells log: the deciding metric, the limited ones, then all others by name."""
    opened = results.study.opened
    names = dict.fromkeys([opened.study.metric.name, *(limit.name for limit in opened.study.limits)])
    logged = {name for cell in _some_of_each_arm(opened) for name in results.series.run(opened, cell).steps}
    return [*names, *sorted(logged - names.keys())]


def _some_of_each_arm(opened: OpenStudy) -> Iterator[Cell]:
    """The cell of each arm that came farthest."""
    for arm in opened.study.arms:
        cells = [opened.state.cells[Cell(arm, seed)] for seed in opened.study.seeds]
        best = max(cells, key=lambda known: (known.reached_agent_steps, len(known.attempts)))
        yield best.cell


def _shown_cells(opened: OpenStudy, arms: list[str]) -> tuple[list[Cell], int]:
    """Cells whose curves are read, seed by seed, and how many are left out."""
    wanted = [Cell(arm, seed) for seed in opened.study.seeds for arm in arms]
    return wanted[:MAX_CURVES], max(0, len(wanted) - MAX_CURVES)


def curves(results: ResultsOfStudy, metric: str, window: int, arms: list[str]) -> Values:
    """A metric over agent steps: every seed, and the mean of each arm with its 95 % interval, as in the reports."""
    opened = results.study.opened
    unknown = [arm for arm in arms if arm not in opened.study.arms]
    if unknown:
        raise BadInput(f"the study has no arm {unknown[0][:40]!r}", f"dreamproof status {quoted(opened.named)}")
    window = max(1, min(window, MAX_WINDOW))
    cells, left_out = _shown_cells(opened, arms or list(opened.study.arms))
    found = {cell: _curve(results, cell, metric, window) for cell in cells}
    known = {cell: curve for cell, curve in found.items() if curve is not None}
    steps, resampled = common_steps((curve[0] for curve in known.values()), max(200, ALL_POINTS // (len(known) or 1)))
    limit = opened.study.limit_of(metric)
    looks = [one for one in arm_looks(list(opened.study.arms)) if not arms or one["name"] in arms]
    return {
        "metric": metric,
        "smoothed": window,
        "resampled": resampled,
        "left_out": left_out,
        "not_finite": sum(_not_finite(results, cell, metric) for cell in cells),
        "limit": limit,
        "agent_steps": json_steps(steps),
        "arms": [look | _arm_curves(look["name"], known, steps, limit) for look in looks],
    }


def _named(results: ResultsOfStudy, cell: Cell, metric: str) -> tuple[LoggedRun, str | None]:
    """What a cell logged, and the name under which it logged a metric."""
    run = results.series.run(results.study.opened, cell)
    return run, metric if metric in run.steps else logged_name(run.steps, metric)


def _not_finite(results: ResultsOfStudy, cell: Cell, metric: str) -> int:
    run, name = _named(results, cell, metric)
    return 0 if name is None else run.not_finite(name)


def _curve(results: ResultsOfStudy, cell: Cell, metric: str, window: int) -> tuple[Floats, Floats] | None:
    run, name = _named(results, cell, metric)
    if name is None:
        return None
    steps, values = run.curve(name)
    return (steps, smoothed(values, window)) if len(steps) else None


def _arm_curves(arm: str, known: dict[Cell, tuple[Floats, Floats]], steps: Floats, limit: float | None) -> Values:
    own = {cell.seed: curve for cell, curve in known.items() if cell.arm == arm}
    if not own:
        return {"seeds": {}, "mean": [], "low": [], "high": []}
    table = np.array([np.interp(steps, *curve, left=np.nan, right=np.nan) for curve in own.values()])
    band = band_at(steps, table, 0.0 if limit is not None else -np.inf)
    full = {float(step): place for place, step in enumerate(band.agent_steps)}
    places = [full.get(float(step)) for step in steps]

    def spread(values: Floats) -> list[float | None]:
        return json_numbers(np.array([np.nan if place is None else values[place] for place in places]))

    return {
        "seeds": {str(seed): json_numbers(row) for seed, row in zip(own, table, strict=True)},
        "mean": spread(band.mean),
        "low": spread(band.low),
        "high": spread(band.high),
    }


def cell_curve(results: ResultsOfStudy, cell: Cell, metric: str) -> Values:
    """Everything that one cell logged of a metric, up to the points that a chart can show."""
    found = _curve(results, cell, metric, 1)
    steps, values = found if found is not None else (np.array([]), np.array([]))
    return {
        "metric": metric,
        "agent_steps": json_steps(steps[-ALL_POINTS:]),
        "values": json_numbers(values[-ALL_POINTS:]),
        "not_finite": _not_finite(results, cell, metric),
        "fault": results.series.run(results.study.opened, cell).fault,
        "names": sorted(results.series.run(results.study.opened, cell).steps),
    }


def conditions(results: ResultsOfStudy, language: str) -> Values:
    """Every condition: score and cost of each arm by seed, means, intervals, and what is shown about the limit."""
    context = results.context(language)
    evidence = context.analysis.evidence
    return {
        "metric": evidence.study.metric.name,
        "direction": evidence.study.metric.direction,
        "constraints": [{"name": limit.name, "at_most": limit.at_most} for limit in evidence.study.limits],
        "arms": arm_looks(evidence.arms),
        "conditions": [
            {
                "name": name,
                "label": context.condition(name),
                "kind": evidence.kind(name),
                "decides": name in evidence.deciding_conditions,
                "arms": {arm: _arm_under(context, arm, name) for arm in evidence.arms},
            }
            for name in evidence.conditions
        ],
    }


def _arm_under(context: ReportContext, arm: str, condition: str) -> Values:
    study = context.analysis.evidence.study
    limited = {limit.name: Group(arm, condition, limit.name) for limit in study.limits}
    judged = {name: limit_of(context, group) for name, group in limited.items()}
    return {
        "score": _group(context, Group(arm, condition, study.metric.name)),
        "costs": {name: _group(context, group) for name, group in limited.items()},
        "limits": {name: str(found.verdict.kind) for name, found in judged.items() if found is not None},
    }


def _group(context: ReportContext, group: Group) -> Values | None:
    values = context.analysis.evidence.values.get(group, {})
    summary = context.analysis.summaries.get(group)
    if not values or summary is None:
        return None
    interval = summary.t_interval
    known = interval is not None and interval.finite
    return {
        "seeds": {str(seed): value if np.isfinite(value) else None for seed, value in values.items()},
        "mean": summary.mean if np.isfinite(summary.mean) else None,
        "low": interval.low if known and interval is not None else None,
        "high": interval.high if known and interval is not None else None,
    }


def decision_values(results: ResultsOfStudy, language: str) -> Values:
    """The decision report as blocks; every number keeps its key and the cells behind it."""
    context = results.context(language)
    document = decision(context, _drawable_figures(results, context))
    numbers = document.numbers(context.numbers)
    return {
        "title": plain(document.title, numbers),
        "language": language,
        "folder": str(results.study.opened.folder.root),
        "blocks": [_block(block, numbers) for block in document.blocks if _is_shown(block)],
    }


def _drawable_figures(results: ResultsOfStudy, context: ReportContext) -> list[str]:
    """Figures of the page that this study has values for, found without drawing them."""
    from dreamproof.report.figures.conditions import drawable_values, shown_conditions  # matplotlib is slow to import

    analysis, study = context.analysis, context.analysis.evidence.study
    names = []
    if study.tasks is None:
        names += ["conditions"] if shown_conditions(analysis.evidence, study.metric.name) else []
    else:
        names += [] if np.isnan(mean_by_task(analysis)[2]).all() else ["task_scores"]
        names += ["task_profile"] if task_tables(analysis) else []
    if study.limits and shown_conditions(analysis.evidence, study.limits[0].name):
        names.append("conditions_cost")
    if any(_has_curve(results, cell, study.metric.name) for cell in analysis.evidence.cells):
        names.append("curves_primary")
    if any(len(drawable_values(analysis.evidence, analysis.primary(arm))) > 1 for arm in study.arms):
        names.append("profile")
    return names


def _has_curve(results: ResultsOfStudy, cell: Cell, metric: str) -> bool:
    """Whether a cell logged a metric at two steps at least."""
    found = _curve(results, cell, metric, 1)
    return found is not None and len(found[0]) > 1


def _is_shown(block: Block) -> bool:
    return isinstance(block, Heading | Paragraph | Stamp | Bullets | Table | Picture)


def _block(block: Block, numbers: Numbers) -> Values:
    def spans(text: str) -> list[Any]:
        return _spans(text, numbers)

    kind = type(block).__name__.lower()
    if isinstance(block, Heading):
        return {"kind": kind, "level": block.level, "text": spans(block.text)}
    if isinstance(block, Paragraph):
        return {"kind": kind, "text": spans(block.text)}
    if isinstance(block, Stamp):
        points = [spans(point) for point in block.points]
        return {"kind": kind, "tone": block.kind, "label": block.label, "text": spans(block.text), "points": points}
    if isinstance(block, Bullets):
        return {"kind": kind, "items": [spans(item) for item in block.items]}
    if isinstance(block, Table):
        rows = [[spans(text) for text in row] for row in block.rows]
        return {"kind": kind, "header": [spans(text) for text in block.header], "rows": rows, "left": block.left}
    assert isinstance(block, Picture)
    return {"kind": kind, "name": block.name, "caption": plain(block.caption, numbers)}


def _spans(text: str, numbers: Numbers) -> list[Any]:
    """Pieces of a text: strings that keep `code` and **strong**, and numbers with key and cells."""
    found: list[Any] = []
    for place, piece in enumerate(TOKEN.split(text)):
        if place % 2:
            number = numbers.at(piece)
            found.append({"number": number.text, "key": number.key, "cells": list(number.cells)})
        elif piece:
            found.append(piece)
    return found


def number_rows(results: ResultsOfStudy) -> Iterator[Values]:
    """Every number that the reports may print, as `numbers.csv` holds them."""
    for number in results.context("en").numbers.order:
        yield {"key": number.key, "value": number.value, "text": number.text, "cells": " ".join(number.cells)}


def figure_png(results: ResultsOfStudy, name: str, language: str) -> bytes | None:
    """A figure of the reports, drawn in memory; None if the study has no data for it."""
    with DRAWING:
        from dreamproof.report.figures.draw import draw_png  # matplotlib is slow to import

        return draw_png(results.context(language), name)
