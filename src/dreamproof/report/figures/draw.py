"""Draws every figure that a study has data for."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from dreamproof.report.context import ReportContext
from dreamproof.report.figures import NAMES, campaign, conditions, learning, limited_name, results, tasks, trails
from dreamproof.report.figures.theme import DOTS_PER_INCH, label_texts, look, save
from dreamproof.settings.study import Constraint

Drawing = Callable[[ReportContext], Figure | None]

FIGURES: dict[str, Drawing] = {
    "curves_primary": learning.primary_curves,
    "conditions": conditions.score_panels,
    "task_scores": tasks.task_scores,
    "task_profile": tasks.task_profile,
    "profile": results.performance_profile,
    "power": results.power_curve,
    "trails": trails.trails,
    "coverage": campaign.coverage,
    "timeline": campaign.timeline,
    "money": campaign.money,
}
LIMITED: dict[str, Callable[[ReportContext, Constraint], Figure | None]] = {
    "curves_cost": learning.cost_curves,
    "conditions_cost": conditions.cost_panels,
    "score_cost": results.score_against_cost,
}
"""Figures of one limited metric each."""


def drawings(context: ReportContext) -> dict[str, Drawing]:
    """Every figure that a study can have, in the order of the reports."""
    found: dict[str, Drawing] = {}
    for name in NAMES:
        if name in FIGURES:
            found[name] = FIGURES[name]
        else:
            limits = enumerate(context.analysis.evidence.study.limits, 1)
            found |= {limited_name(name, number): _of_limit(LIMITED[name], limit) for number, limit in limits}
    return found


def _of_limit(drawing: Callable[[ReportContext, Constraint], Figure | None], limit: Constraint) -> Drawing:
    return lambda context: drawing(context, limit)


def draw_png(context: ReportContext, name: str) -> bytes | None:
    """One figure as PNG, not saved; None if the study has no data for it."""
    with look(context.texts, " ".join(context.analysis.evidence.metrics)):
        drawing = drawings(context).get(name)
        figure = None if drawing is None else drawing(replace(context, texts=label_texts(context.texts)))
        if figure is None:
            return None
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        return content.getvalue()


def draw_all(context: ReportContext, folder: Path) -> dict[str, list[Path]]:
    """Name and files of every figure that could be drawn; old files of figures without data are removed."""
    drawn: dict[str, list[Path]] = {}
    labelled = replace(context, texts=label_texts(context.texts))
    with look(context.texts, " ".join(context.analysis.evidence.metrics)):
        for name, drawing in drawings(context).items():
            figure = drawing(labelled)
            if figure is not None:
                drawn[name] = save(figure, folder, name)
    for name in {*NAMES} - drawn.keys():
        for ending in ("png", "pdf"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
    return drawn
