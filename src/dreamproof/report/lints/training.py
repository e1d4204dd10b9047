"""Lints about how training went."""

from collections.abc import Iterable

from dreamproof.report.data import Group, StudyEvidence
from dreamproof.report.lints.lint import WARN, Lint, names, proven
from dreamproof.report.validation import fallen_cells
from dreamproof.runs.layout import Cell

COLLAPSE_SHARE = 0.5


def frozen(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells that stopped learning because a value was not finite."""
    cells = [facts.cell for facts in evidence.cells.values() if facts.frozen]
    if cells:
        yield Lint("replica_frozen", WARN, {"cells": names(cells)}, (), tuple(map(str, cells)))


def collapsed(evidence: StudyEvidence) -> Iterable[Lint]:
    """Runs that ended below half of their peak: of the deciding metric, or of the validation return."""
    cells = {}
    for facts in proven(evidence):
        if facts.summary is not None:
            cells[facts.cell] = (facts.summary.peak_return, facts.summary.final_return)
    metric = evidence.study.metric
    for group, peaks in evidence.values.items():
        if metric.direction != "higher" or group.metric != metric.name or group.checkpoint != "peak":
            continue
        finals = evidence.values.get(Group(group.arm, group.condition, metric.name), {})
        cells |= {Cell(group.arm, seed): (peak, finals[seed]) for seed, peak in peaks.items() if seed in finals}
    far = {cell: (peak, final) for cell, (peak, final) in cells.items() if peak > 0 and final < COLLAPSE_SHARE * peak}
    if far:
        shown = names(f"{cell} ({peak:.4g} → {final:.4g})" for cell, (peak, final) in far.items())
        yield Lint("collapsed", WARN, {"cells": shown}, (), tuple(map(str, far)))


def collapses(evidence: StudyEvidence) -> Iterable[Lint]:
    """Collapses that were recorded during training."""
    fallen = fallen_cells(evidence)
    if fallen:
        facts = {
            "cells": names(f"{one.cell} ({one.collapse_count})" for one in fallen),
            "collapses": sum(one.collapse_count for one in fallen),
            "rollbacks": sum(one.rollback_count for one in fallen),
        }
        yield Lint("collapses", WARN, facts, (), tuple(str(one.cell) for one in fallen))
