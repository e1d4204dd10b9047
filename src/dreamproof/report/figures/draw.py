"""Draws every figure that a study has data for."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from dreamproof.report.figures import campaign, results, trails
from dreamproof.report.figures.theme import label_words, look, save
from dreamproof.report.prose import Telling

Drawing = Callable[[Telling], Figure | None]

FIGURES: dict[str, Drawing] = {
    "curves_primary": results.primary_curves,
    "curves_cost": results.cost_curves,
    "conditions": results.condition_bars,
    "conditions_cost": results.cost_bars,
    "score_cost": results.score_against_cost,
    "profile": results.performance_profile,
    "trails": trails.trails,
    "coverage": campaign.coverage,
    "timeline": campaign.timeline,
    "money": campaign.money,
}


def draw_all(telling: Telling, folder: Path) -> dict[str, list[Path]]:
    """Name and files of every figure that could be drawn; older ones without data any more are removed."""
    drawn: dict[str, list[Path]] = {}
    labelled = Telling(telling.analysis, telling.numbers, label_words(telling.words))
    with look(telling.words, " ".join(telling.analysis.evidence.metrics)):
        for name, drawing in FIGURES.items():
            figure = drawing(labelled)
            if figure is not None:
                drawn[name] = save(figure, folder, name)
                continue
            for ending in ("png", "pdf"):
                (folder / f"{name}.{ending}").unlink(missing_ok=True)
    return drawn
