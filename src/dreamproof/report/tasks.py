"""A study over several tasks: the spread over tasks, and what can be said of every single one."""

from dataclasses import dataclass

import numpy as np

from dreamproof.report.analysis import Analysis
from dreamproof.report.data import Floats, Group, StudyEvidence
from dreamproof.report.shifts import seed_table
from dreamproof.stats.compare import holm
from dreamproof.stats.describe import Interval, interquartile_mean, joint_interval

LEVEL = 0.05


@dataclass(frozen=True)
class OverTasks:
    """An arm over all seeds and tasks: mean and IQM of (seeds, tasks), and the IQM's interval over seeds."""

    mean: float
    iqm: float
    interval: Interval | None


@dataclass(frozen=True)
class TaskStatements:
    """An arm against the reference, task by task: tasks with a higher mean, and those a test separates."""

    higher: int
    compared: int
    better: list[str]
    worse: list[str]


def task_metrics(evidence: StudyEvidence) -> dict[str, list[str]]:
    """By metric the tasks that it is taken over: the deciding one, then the other normalisation if there is one."""
    other = evidence.other_score
    metrics = {evidence.study.metric.name: evidence.study.tasks or []}
    return metrics if other is None else metrics | {other.metric: other.tasks}


def task_tables(analysis: Analysis, metric: str | None = None) -> dict[str, Floats]:
    """(seeds, tasks) of a metric, the deciding one unless named, by arm; none if the study has one task."""
    evidence = analysis.evidence
    name = metric or evidence.study.metric.name
    tables = {arm: seed_table(evidence, arm, task_metrics(evidence)[name], name) for arm in evidence.arms}
    return {arm: table for arm, table in tables.items() if table.size}


def over_tasks(table: Floats) -> OverTasks:
    """A table of (seeds, tasks) in three numbers; seeds are resampled with all their tasks."""
    return OverTasks(float(table.mean()), interquartile_mean(table.reshape(-1)), joint_interval(table))


def task_statements(analysis: Analysis, arm: str) -> TaskStatements:
    """Welch's test of every task, with Holm over the tasks: with few seeds exact tests cannot reach such a level."""
    study = analysis.evidence.study
    groups = {task: Group(arm, task, study.metric.name) for task in study.tasks or []}
    found = {task: analysis.comparisons[group] for task, group in groups.items() if group in analysis.comparisons}
    adjusted = holm({task: comparison.welch_p for task, comparison in found.items()})
    sign = 1.0 if study.metric.direction == "higher" else -1.0
    clear = [task for task, p in adjusted.items() if p is not None and p <= LEVEL]
    gains = {task: sign * comparison.difference for task, comparison in found.items()}
    return TaskStatements(
        sum(gain > 0 for gain in gains.values()),
        len(found),
        [task for task in clear if gains[task] > 0],
        [task for task in clear if gains[task] < 0],
    )


def mean_by_task(analysis: Analysis) -> tuple[list[str], list[str], Floats]:
    """Arms, tasks, and the mean over seeds (arms, tasks); NaN where a cell has no value."""
    evidence = analysis.evidence
    arms, tasks, metric = evidence.arms, evidence.study.tasks or [], evidence.study.metric.name
    means = [
        [np.mean(list(evidence.values.get(Group(arm, task, metric), {}).values()) or [np.nan]) for task in tasks]
        for arm in arms
    ]
    return arms, tasks, np.array(means, np.float64)
