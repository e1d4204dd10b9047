"""Lints about the values themselves: which cannot be true, or are not what they look like."""

import re
from collections.abc import Iterable

import numpy as np

from dreamproof.report.data import FINAL, Group, StudyEvidence
from dreamproof.report.lints.lint import BLOCK, NOTE, WARN, Lint, judged, names, primary
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import DATA_FLOORS
from dreamproof.stats.describe import falls_into_two_groups, finite_values
from dreamproof.stats.shape import spreads_differ

IDENTICAL_DIGITS = 10
PEAK_NAME = re.compile(
    r"(?<![a-z])(peak|max|maximum|best|highest|top)(?![a-z])|峰值|最大|最高|最佳|最好|最优|最優", re.I
)


def conflicting_rows(evidence: StudyEvidence) -> Iterable[Lint]:
    """Imported rows that contradict each other."""
    if evidence.conflicts:
        yield Lint("conflicting_rows", BLOCK, {"rows": names(evidence.conflicts)})


def not_finite(evidence: StudyEvidence) -> Iterable[Lint]:
    """Deciding values that are not numbers."""
    bad = [
        (f"{group.arm}/{seed}@{group.condition}", group.arm)
        for group, values in evidence.values.items()
        if group.metric == evidence.study.metric.name and group.checkpoint == FINAL
        for seed, value in values.items()
        if not np.isfinite(value)
    ]
    if bad:
        cells = tuple(cell for cell, _ in bad)
        arms = judged(evidence, tuple(dict.fromkeys(arm for _, arm in bad)))
        yield Lint("not_finite", BLOCK, {"cells": names(cells)}, arms, cells)


def identical_values(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms that agree to the last digit: an inert flag, or the same checkpoint loaded twice."""
    metric = evidence.study.metric.name
    for condition in evidence.conditions:
        shared: dict[tuple[str, int, str], list[str]] = {}  # by task: a bound may be equal on two tasks
        for arm in evidence.arms:
            for seed, value in evidence.values.get(Group(arm, condition, metric), {}).items():
                if np.isfinite(value):
                    task = evidence.study.task_of(arm)
                    shared.setdefault((task, seed, f"{value:.{IDENTICAL_DIGITS}g}"), []).append(arm)
        same = {key: arms for key, arms in shared.items() if len(arms) > 1}
        if not same:
            continue
        whole = _wholly_identical(evidence, condition)
        constant = [arm for arm in whole if len(set(evidence.values[Group(arm, condition, metric)].values())) == 1]
        if constant:
            yield Lint("constant_arms", WARN, {"condition": condition, "arms": names(constant)})
            whole = [arm for arm in whole if arm not in constant]
            same = {key: arms for key, arms in same.items() if not set(arms) <= set(constant)}
            if not same:
                continue
        facts: dict[str, object] = {
            "condition": condition,
            "arms": names(whole or dict.fromkeys(arm for arms in same.values() for arm in arms)),
            "cells": names(f"{'='.join(arms)} seed {seed}: {value}" for (_, seed, value), arms in same.items()),
        }
        cells = tuple(f"{arm}/{seed}@{condition}" for (_, seed, _), arms in same.items() for arm in arms)
        if whole:
            yield Lint("identical_arms", BLOCK, facts, judged(evidence, tuple(whole)), cells)
        partly = [arm for arms in same.values() for arm in arms if arm not in whole]
        if partly:
            yield Lint("identical_values", WARN, facts | {"arms": names(dict.fromkeys(partly))}, (), cells)


def _wholly_identical(evidence: StudyEvidence, condition: str) -> list[str]:
    """Arms that have every shared value in common with another arm."""
    metric = evidence.study.metric.name
    tables = {arm: evidence.values.get(Group(arm, condition, metric), {}) for arm in evidence.arms}
    found: list[str] = []
    for place, first in enumerate(evidence.arms):
        for second in evidence.arms[place + 1 :]:
            both = tables[first].keys() & tables[second].keys()
            if evidence.study.task_of(first) != evidence.study.task_of(second):
                continue
            if len(both) > 1 and all(tables[first][seed] == tables[second][seed] for seed in both):
                found += [first, second]
    return [arm for arm in evidence.arms if arm in found]


def identical_checkpoints(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells with the same parameters."""
    owners: dict[str, list[Cell]] = {}
    for cell, facts in evidence.cells.items():
        if facts.parameter_hash:
            owners.setdefault(facts.parameter_hash, []).append(cell)
    twice = [cells for cells in owners.values() if len(cells) > 1]
    if twice:
        arms = tuple(dict.fromkeys(cell.arm for cells in twice for cell in cells))
        shown = names(" = ".join(map(str, cells)) for cells in twice)
        cells = tuple(str(cell) for cells in twice for cell in cells)
        yield Lint("identical_checkpoints", BLOCK, {"cells": shown}, judged(evidence, arms), cells)


def never_updated(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells without a single gradient step."""
    bad = [cell for cell, facts in evidence.cells.items() if facts.trained and facts.gradient_steps == 0]
    bad += [cell for (cell, _), facts in evidence.evals.items() if facts.evaluated and facts.gradient_steps == 0]
    if bad:
        arms = judged(evidence, tuple(dict.fromkeys(cell.arm for cell in bad)))
        yield Lint("never_updated", BLOCK, {"cells": names(dict.fromkeys(bad))}, arms, tuple(map(str, bad)))


def says_peak(metric: str) -> bool:
    """Whether the name of a metric says that it is the best of many values."""
    return PEAK_NAME.search(metric) is not None


def unexplained_checkpoint(evidence: StudyEvidence) -> Iterable[Lint]:
    """A deciding metric whose name says peak, or whose table names no checkpoint, without a declared rule."""
    metric = evidence.study.metric
    if metric.checkpoint_rule is not None:
        return
    if says_peak(metric.name):
        yield Lint("peak_named", BLOCK, {"metric": metric.name})
    if metric.name in evidence.without_checkpoint:
        yield Lint("checkpoint_unknown", BLOCK, {"metric": metric.name})


def peak_only(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms of which only a peak is known; and peaks that stand beside final values."""
    metric = evidence.study.metric.name
    others = [name for name in evidence.checkpoints(metric) if name != FINAL]
    picked = [name for name in others if says_peak(name)]
    bare = [
        arm
        for arm in evidence.arms
        if not primary(evidence, arm)
        and any(Group(arm, evidence.primary_condition, metric, name) in evidence.values for name in picked)
    ]
    if bare:
        yield Lint("peak_only", BLOCK, {"arms": names(bare)}, judged(evidence, tuple(bare)))
    elif picked:
        yield Lint("peak_shown", NOTE, {"checkpoints": names(picked)})
    best = [
        m for m in evidence.metrics if m != metric and FINAL not in evidence.checkpoints(m) and evidence.checkpoints(m)
    ]
    if best:
        facts = {"metrics": names(f"{m}@{evidence.checkpoints(m)[0]}" for m in best)}
        yield Lint("best_of_many", WARN, facts)


def floors(evidence: StudyEvidence) -> Iterable[Lint]:
    metric = evidence.study.metric
    sign = 1.0 if metric.direction == "higher" else -1.0
    for condition, floors in evidence.floors.items():
        for name, floor in floors.items():
            if metric.name not in floor or name in DATA_FLOORS:
                continue
            below = []
            for arm in evidence.arms:
                values = finite_values(list(evidence.values.get(Group(arm, condition, metric.name), {}).values()))
                if len(values) and sign * float(values.mean()) <= sign * floor[metric.name]:
                    below.append(arm)
            if below:
                facts = {"arms": names(below), "floor": name, "value": f"{floor[metric.name]:.4g}"}
                yield Lint("below_floor", WARN, facts | {"condition": condition})


def two_groups(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms whose seeds fall into two groups."""
    arms = [arm for arm in evidence.arms if falls_into_two_groups(finite_values(list(primary(evidence, arm).values())))]
    if arms:
        yield Lint("two_groups", WARN, {"arms": names(arms)})


def unequal_spread(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms whose seeds spread far more, or less, than those of the reference."""
    reference = finite_values(list(primary(evidence, evidence.study.reference).values()))
    arms = [
        arm
        for arm in evidence.study.treatments
        if spreads_differ(finite_values(list(primary(evidence, arm).values())), reference)
    ]
    if arms:
        yield Lint("unequal_spread", WARN, {"arms": names(arms), "reference": evidence.study.reference})
