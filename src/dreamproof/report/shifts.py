"""The deciding metric over several conditions at once; a seed always counts with all its conditions."""

import numpy as np

from dreamproof.report.data import Floats, Group, StudyEvidence
from dreamproof.stats.describe import Interval, Summary, interquartile_mean, joint_interval, summarise

SHOWN_KINDS = ("genuine", "proxy", "in_distribution", "unknown")


def shifted_conditions(evidence: StudyEvidence) -> list[str]:
    """The distinct conditions that are not in distribution."""
    return evidence.distinct([name for name in evidence.conditions if evidence.kind(name) in ("proxy", "genuine")])


def other_conditions(evidence: StudyEvidence) -> tuple[str, list[str]]:
    """Kind and names of the distinct conditions to show beside those that decide: genuine shifts if there are any."""
    for kind in SHOWN_KINDS:
        names = evidence.distinct([name for name in evidence.conditions if evidence.kind(name) == kind])
        if kind in ("in_distribution", "unknown"):
            names = [name for name in names if name not in evidence.deciding_conditions]
        if names and set(names) != set(evidence.deciding_conditions):
            return kind, names
    return "unknown", []


def seed_table(evidence: StudyEvidence, arm: str, conditions: list[str], metric: str | None = None) -> Floats:
    """(seeds, conditions) of a metric, the deciding one unless named, for seeds that have all of them."""
    values = [evidence.values.get(Group(arm, name, metric or evidence.study.metric.name), {}) for name in conditions]
    seeds = [seed for seed in evidence.study.seeds if all(np.isfinite(table.get(seed, np.nan)) for table in values)]
    return np.array([[column[seed] for column in values] for seed in seeds]).reshape(len(seeds), len(conditions))


def over_shifted_conditions(evidence: StudyEvidence) -> dict[str, tuple[float, Interval | None]]:
    """IQM over all shifted conditions by arm, with its interval; nothing if there are fewer than two."""
    shifted = shifted_conditions(evidence)
    tables = {arm: seed_table(evidence, arm, shifted) for arm in evidence.arms if len(shifted) > 1}
    return {arm: (interquartile_mean(t.reshape(-1)), joint_interval(t)) for arm, t in tables.items() if len(t)}


def mean_scores(evidence: StudyEvidence, conditions: list[str]) -> dict[str, Summary]:
    """By arm: each seed's mean over the conditions, summarised."""
    if not conditions:
        return {}
    with np.errstate(over="ignore", invalid="ignore"):
        found = {arm: summarise(seed_table(evidence, arm, conditions).mean(axis=1)) for arm in evidence.arms}
    return {arm: summary for arm, summary in found.items() if summary is not None}
