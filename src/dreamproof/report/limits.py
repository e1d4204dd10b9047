"""Every arm against the declared limits, under every condition: keeps, breaks or cannot tell."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dreamproof.report.data import FINAL, Group, StudyEvidence
from dreamproof.report.lints.lint import BLOCK, Lint
from dreamproof.stats.limits import LimitKind, LimitVerdict, LimitWhy, judge_limit
from dreamproof.stats.sequential import LookPlan

# Lints after which the values, or the choice of limit and seeds, are in doubt; the others only forbid a comparison.
DOUBTFUL = (
    "analysis_changed",
    *("conflicting_rows", "identical_checkpoints", "never_updated", "training_log_only"),
    *("different_settings", "different_sources", "selection_layouts"),
)


@dataclass(frozen=True)
class Constrained:
    """An arm against one declared limit, at one condition and checkpoint."""

    metric: str
    mean: float
    limit: float
    verdict: LimitVerdict
    checkpoint: str
    condition: str

    @property
    def keeps(self) -> bool:
        """Whether the seeds show that the limit is kept."""
        return self.verdict.kind is LimitKind.KEEPS

    @property
    def breaks(self) -> bool:
        """Whether the seeds show that the limit is broken."""
        return self.verdict.kind is LimitKind.BREAKS


def arm_limits(evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], arm: str) -> list[Constrained]:
    """An arm against every limit where it decides, without those that have no value there.

    Keeping needs all limits under all declared conditions, so each is judged at the full level; breaking needs one, so
    they share the level.
    """
    judged = [_deciding(evidence, plan, lints, arm, limit.name) for limit in evidence.study.limits]
    return [each for each in judged if each is not None]


def worst(found: Iterable[Constrained]) -> Constrained:
    """What speaks most against an arm."""
    order = (LimitKind.KEEPS, LimitKind.CANNOT_TELL, LimitKind.BREAKS)
    return max(found, key=lambda each: (order.index(each.verdict.kind), each.mean - each.limit))


def _deciding(
    evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], arm: str, metric: str
) -> Constrained | None:
    """The deciding condition that speaks most against an arm; for a single condition another checkpoint, which shows
    nothing, if the final one has no value."""
    decides = evidence.study.decides
    conditions = [evidence.primary_condition] if decides is None else decides.limited
    checkpoints = [FINAL, *evidence.checkpoints(metric)] if decides is None else [FINAL]
    shared = replace(plan, alpha=plan.alpha / (len(conditions) * len(evidence.study.limits)))
    found = []
    for condition in conditions:
        places = [Group(arm, condition, metric, checkpoint) for checkpoint in checkpoints]
        group = next((group for group in places if _at(evidence, plan, lints, group) is not None), None)
        if group is None:
            return None
        full, strict = (_at(evidence, each, lints, group) for each in (plan, shared))
        assert full is not None and strict is not None
        found.append(strict if full.breaks else full)
    return worst(found)


def unmeasured(evidence: StudyEvidence, arm: str) -> dict[str, list[str]]:
    """By limited metric: conditions under which its limit has to be kept and the arm has no value of it."""
    decides = evidence.study.decides
    places = decides.limited if decides is not None else [evidence.primary_condition]
    known = {(group.metric, group.condition) for group in [*evidence.values, *evidence.means] if group.arm == arm}
    missing = {
        limit.name: [condition for condition in places if (limit.name, condition) not in known]
        for limit in evidence.study.limits
    }
    return {metric: conditions for metric, conditions in missing.items() if conditions}


def limits_elsewhere(
    evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], arm: str, shown: dict[str, str]
) -> dict[tuple[str, str], Constrained]:
    """The final checkpoint of an arm by limited metric and condition, without the condition that is shown as deciding.

    `shown`: by metric, that condition.
    """
    places = [(limit.name, condition) for limit in evidence.study.limits for condition in evidence.conditions]
    others = [(metric, condition) for metric, condition in places if condition != shown.get(metric)]
    found = {
        (metric, condition): _at(evidence, plan, lints, Group(arm, condition, metric)) for metric, condition in others
    }
    return {place: each for place, each in found.items() if each is not None}


def _at(evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], group: Group) -> Constrained | None:
    limit = evidence.study.limit_of(group.metric)
    values, known = evidence.values.get(group, {}), evidence.means.get(group)
    finite = [value for value in values.values() if np.isfinite(value)]
    if limit is None or not (finite or known is not None):
        return None
    mean = float(np.mean(finite)) if finite else known.mean if known is not None else float("nan")
    verdict = judge_limit(evidence.study.seeds, plan, limit, values)
    doubt = _doubt(lints, group, bool(values))
    if doubt is not None:
        seeds = len(values) if known is None else len(known.seeds)
        verdict = LimitVerdict(LimitKind.CANNOT_TELL, doubt, seeds, verdict.level, verdict.bounds)
    return Constrained(group.metric, mean, limit, verdict, group.checkpoint, group.condition)


def _doubt(lints: Iterable[Lint], group: Group, has_seeds: bool) -> LimitWhy | None:
    """Why these values can show nothing, whatever they are."""
    if not has_seeds:
        return LimitWhy.MEAN_ONLY
    if group.checkpoint != FINAL:
        return LimitWhy.NOT_FINAL
    blocking = [lint for lint in lints if lint.level == BLOCK and lint.code in DOUBTFUL]
    blocked = any(not lint.arms or group.arm in lint.arms for lint in blocking)
    return LimitWhy.BLOCKED if blocked else None
