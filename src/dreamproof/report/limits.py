"""Every arm against the declared limit, under every condition: keeps, breaks or cannot tell."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dreamproof.report.data import FINAL, Group, StudyEvidence
from dreamproof.report.lints import BLOCK, Lint
from dreamproof.stats.limits import LimitKind, LimitVerdict, LimitWhy, judge_limit
from dreamproof.stats.sequential import LookPlan

# Lints after which the values themselves are in doubt; the others only forbid a comparison.
DOUBTFUL = (
    *("conflicting_rows", "identical_checkpoints", "never_updated", "training_log_only"),
    *("different_settings", "selection_layouts"),
)


@dataclass(frozen=True)
class Constrained:
    """An arm against the declared limit, at one condition and checkpoint."""

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


def arm_limit(evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], arm: str) -> Constrained | None:
    """An arm at the deciding condition; at another checkpoint, which shows nothing, if the final one has no value."""
    assert evidence.study.constraint is not None
    if evidence.study.decides is not None:
        return _worst(evidence, plan, lints, arm)
    name, condition = evidence.study.constraint.name, evidence.primary_condition
    places = [Group(arm, condition, name, checkpoint) for checkpoint in [FINAL, *evidence.checkpoints(name)]]
    found = (_at(evidence, plan, lints, group) for group in places)
    return next((each for each in found if each is not None), None)


def unmeasured(evidence: StudyEvidence, arm: str) -> list[str]:
    """Conditions under which the limit has to be kept and the arm has no value of the limited metric."""
    assert evidence.study.constraint is not None
    name, decides = evidence.study.constraint.name, evidence.study.decides
    places = decides.limited if decides is not None else [evidence.primary_condition]
    known = {
        group.condition for group in [*evidence.values, *evidence.means] if (group.arm, group.metric) == (arm, name)
    }
    return [condition for condition in places if condition not in known]


def limits_elsewhere(
    evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], arm: str, shown: str
) -> dict[str, Constrained]:
    """The final checkpoint of an arm under every condition but the one that is shown as deciding."""
    assert evidence.study.constraint is not None
    name = evidence.study.constraint.name
    others = [condition for condition in evidence.conditions if condition != shown]
    found = {condition: _at(evidence, plan, lints, Group(arm, condition, name)) for condition in others}
    return {condition: each for condition, each in found.items() if each is not None}


def _worst(evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], arm: str) -> Constrained | None:
    """The condition that speaks most against an arm, of all under which the study declares that the limit is kept.

    Keeping needs all of them, so each is judged at the full level; breaking needs one, so they share the level.
    """
    assert evidence.study.decides is not None and evidence.study.constraint is not None
    limited, name = evidence.study.decides.limited, evidence.study.constraint.name
    shared = replace(plan, alpha=plan.alpha / len(limited))
    found = []
    for condition in limited:
        full, strict = (_at(evidence, each, lints, Group(arm, condition, name)) for each in (plan, shared))
        if full is None or strict is None:
            return None
        found.append(strict if full.breaks else full)
    order = (LimitKind.KEEPS, LimitKind.CANNOT_TELL, LimitKind.BREAKS)
    return max(found, key=lambda each: (order.index(each.verdict.kind), each.mean))


def _at(evidence: StudyEvidence, plan: LookPlan, lints: Iterable[Lint], group: Group) -> Constrained | None:
    constraint = evidence.study.constraint
    values, known = evidence.values.get(group, {}), evidence.means.get(group)
    finite = [value for value in values.values() if np.isfinite(value)]
    if constraint is None or not (finite or known is not None):
        return None
    mean = float(np.mean(finite)) if finite else known.mean if known is not None else float("nan")
    verdict = judge_limit(evidence.study.seeds, plan, constraint.at_most, values)
    doubt = _doubt(lints, group, bool(values))
    if doubt is not None:
        seeds = len(values) if known is None else len(known.seeds)
        verdict = LimitVerdict(LimitKind.CANNOT_TELL, doubt, seeds, verdict.level, verdict.bounds)
    return Constrained(mean, constraint.at_most, verdict, group.checkpoint, group.condition)


def _doubt(lints: Iterable[Lint], group: Group, has_seeds: bool) -> LimitWhy | None:
    """Why these values can show nothing, whatever they are."""
    if not has_seeds:
        return LimitWhy.MEAN_ONLY
    if group.checkpoint != FINAL:
        return LimitWhy.NOT_FINAL
    blocking = [lint for lint in lints if lint.level == BLOCK and lint.code in DOUBTFUL]
    blocked = any(not lint.arms or group.arm in lint.arms for lint in blocking)
    return LimitWhy.BLOCKED if blocked else None
