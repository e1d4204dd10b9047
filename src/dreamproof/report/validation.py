"""Validation curves in numbers: final, mean over training and peak of each arm, and collapses by cell."""

from dataclasses import dataclass

import numpy as np

from dreamproof.report.data import StudyEvidence, TrainFacts
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import SummaryRecord
from dreamproof.stats.describe import sample_sd

PARTS = ("final", "area", "peak")


@dataclass(frozen=True)
class ArmValidation:
    """One arm: mean and sd of each part over its trained seeds; collapses and rollbacks in all of its cells."""

    summaries: dict[Cell, SummaryRecord]
    spreads: dict[str, tuple[float, float | None]]
    collapses: int
    rollbacks: int


def validation_part(summary: SummaryRecord, part: str) -> float:
    """The validation return that `part` names: final, area or peak."""
    return {"final": summary.final_return, "area": summary.area_return, "peak": summary.peak_return}[part]


def validation_by_arm(evidence: StudyEvidence) -> dict[str, ArmValidation]:
    """Arms with at least one trained cell that has a validation summary."""
    found = {}
    for arm in evidence.arms:
        own = [facts for facts in evidence.cells.values() if facts.cell.arm == arm]
        kept = {facts.cell: facts.summary for facts in own if facts.trained and facts.summary is not None}
        if kept:
            spreads = {part: _spread([validation_part(one, part) for one in kept.values()]) for part in PARTS}
            falls, undone = sum(one.collapse_count for one in own), sum(one.rollback_count for one in own)
            found[arm] = ArmValidation(kept, spreads, falls, undone)
    return found


def _spread(values: list[float]) -> tuple[float, float | None]:
    """Mean and sd; NaN if any value is not finite, because dropping a seed would bias the mean."""
    array = np.array(values)
    if not np.isfinite(array).all():
        return float("nan"), None
    with np.errstate(over="ignore"):
        return float(array.mean()), sample_sd(array)


def fallen_cells(evidence: StudyEvidence) -> list[TrainFacts]:
    """Cells, finished or not, whose validation return collapsed at least once."""
    return [facts for facts in evidence.cells.values() if facts.collapse_count]
