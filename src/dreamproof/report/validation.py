"""Validation curves in numbers: what each arm ended with, its mean over training and its peak, and falls by cell."""

from dataclasses import dataclass

import numpy as np

from dreamproof.report.data import Evidence, TrainFacts
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


def validation_by_arm(evidence: Evidence) -> dict[str, ArmValidation]:
    """Arms of which at least one trained cell kept a summary of its validations."""
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
    """Mean and sd; no number where one of the values is none, because leaving a seed out would flatter."""
    array = np.array(values)
    if not np.isfinite(array).all():
        return float("nan"), None
    with np.errstate(over="ignore"):
        return float(array.mean()), sample_sd(array)


def fallen_cells(evidence: Evidence) -> list[TrainFacts]:
    """Cells, finished or not, whose validation return fell suddenly at least once."""
    return [facts for facts in evidence.cells.values() if facts.collapse_count]
