"""Lints about results that are missing, or too few."""

from collections.abc import Iterable

from dreamproof.report.data import StudyEvidence
from dreamproof.report.lints.lint import BLOCK, NOTE, WARN, Lint, compared, eval_names, judged, names, primary
from dreamproof.stats.describe import finite_values
from dreamproof.stats.permutation import smallest_possible_p
from dreamproof.stats.power import ALPHA
from dreamproof.study.ledger.status import NOT_SAVED, NOT_SAVED_TEXT

FEW_SEEDS = 10


def runs_absent(evidence: StudyEvidence) -> Iterable[Lint]:
    """A study whose run folders are elsewhere."""
    if evidence.runs_absent:
        yield Lint("runs_absent", BLOCK, {"folder": "runs"})


def incomplete_training(evidence: StudyEvidence) -> Iterable[Lint]:
    """Declared cells that are not trained."""
    missing = [cell for cell, facts in evidence.cells.items() if not facts.trained]
    if missing:
        arms = tuple(dict.fromkeys(cell.arm for cell in missing))
        facts = {"missing": len(missing), "declared": len(evidence.cells), "cells": names(missing)}
        yield Lint("incomplete_training", BLOCK, facts, judged(evidence, arms), tuple(map(str, missing)))


def incomplete_evaluation(evidence: StudyEvidence) -> Iterable[Lint]:
    """Declared evaluations that are missing; without a deciding one there is no verdict."""
    missing = [key for key, facts in evidence.evals.items() if not facts.evaluated]
    if missing:
        deciding = [cell for cell, condition in missing if condition in evidence.needed_conditions]
        arms = tuple(dict.fromkeys(cell.arm for cell in deciding))
        facts = {"missing": len(missing), "declared": len(evidence.evals), "cells": eval_names(missing)}
        level = BLOCK if deciding else WARN
        cells = tuple(f"{cell}@{condition}" for cell, condition in missing)
        yield Lint("incomplete_evaluation", level, facts, judged(evidence, arms), cells)


def one_seed(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms with a single seed."""
    arms = [arm for arm in evidence.arms if len(primary(evidence, arm)) == 1]
    if arms:
        yield Lint("one_seed", BLOCK, {"arms": names(arms)}, judged(evidence, tuple(arms)))


def never_significant(evidence: StudyEvidence) -> Iterable[Lint]:
    """Too few seeds for any difference to be significant."""
    arms = compared(evidence)
    counts = [len(finite_values(list(primary(evidence, arm).values()))) for arm in arms]
    fewest = min((count for count in counts if count > 0), default=0)
    smallest = smallest_possible_p(fewest, evidence.study.paired_seeds)
    if len(arms) > 1 and fewest >= 2 and smallest > ALPHA:
        facts = {"seeds": fewest, "smallest_p": f"{smallest:.3f}"}
        yield Lint("never_significant", BLOCK, facts)


def different_counts(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms with different numbers of seeds."""
    counts = {arm: len(primary(evidence, arm)) for arm in compared(evidence)}
    if len(set(counts.values())) > 1:
        yield Lint("different_counts", WARN, {"arms": names(f"{arm}: {count}" for arm, count in counts.items())})


def unmeasured_limits(evidence: StudyEvidence) -> Iterable[Lint]:
    """Limits of metrics that no evaluation holds, for example because of a misspelt name: they forbid a winner."""
    known = {group.metric for group in [*evidence.values, *evidence.means]}
    missing = [limit.name for limit in evidence.study.limits if limit.name not in known]
    if missing and known:
        yield Lint("limit_unmeasured", WARN, {"limits": names(missing), "metrics": names(sorted(known))})


def undeclared_seeds(evidence: StudyEvidence) -> Iterable[Lint]:
    """Runs of seeds that the study does not declare."""
    if evidence.undeclared:
        yield Lint("undeclared_seeds", WARN, {"cells": names(sorted(evidence.undeclared))})


def unfinished(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells that are still training or were stopped."""
    open_cells = [facts for facts in evidence.cells.values() if facts.state in ("running", "unfinished", "stopped")]
    if open_cells:
        shown = names(f"{facts.cell} ({facts.agent_steps / facts.of_agent_steps:.0%})" for facts in open_cells)
        yield Lint("unfinished", WARN, {"cells": shown}, (), tuple(str(facts.cell) for facts in open_cells))


def not_saved(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells that reached their last step and were not saved."""
    lost = [facts for facts in evidence.cells.values() if facts.state == NOT_SAVED]
    if lost:
        cells = tuple(str(facts.cell) for facts in lost)
        reason = lost[0].reason.removeprefix(f"{NOT_SAVED_TEXT}: ")
        yield Lint("not_saved", WARN, {"count": len(lost), "cells": names(cells), "reason": reason}, (), cells)


def training_log_only(evidence: StudyEvidence) -> Iterable[Lint]:
    """A study without conditions, whose values come from training."""
    if not evidence.study.conditions:
        yield Lint("training_log_only", BLOCK)


def few_seeds(evidence: StudyEvidence) -> Iterable[Lint]:
    """So few seeds that a bootstrap interval is too narrow."""
    most = max((len(primary(evidence, arm)) for arm in evidence.arms), default=0)
    if 2 <= most < FEW_SEEDS:
        yield Lint("few_seeds", NOTE, {"seeds": most})
