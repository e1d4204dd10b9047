"""Checks that a reader must know before trusting a number; some lints forbid a verdict."""

from collections.abc import Callable, Iterable

from dreamproof.report.data import StudyEvidence
from dreamproof.report.lints import comparable, missing, training, values
from dreamproof.report.lints.lint import LEVELS, Lint


def find_lints(evidence: StudyEvidence) -> list[Lint]:
    """Every lint of a study, the blocking ones first."""
    finders: list[Callable[[StudyEvidence], Iterable[Lint]]] = [
        missing.runs_absent,
        missing.incomplete_training,
        missing.incomplete_evaluation,
        values.conflicting_rows,
        values.not_finite,
        missing.one_seed,
        missing.never_significant,
        values.identical_values,
        values.identical_checkpoints,
        values.never_updated,
        values.unexplained_checkpoint,
        values.peak_only,
        comparable.different_tasks,
        comparable.different_steps,
        comparable.different_settings,
        comparable.sources_differ,
        comparable.different_code,
        missing.different_counts,
        missing.unmeasured_limits,
        missing.undeclared_seeds,
        missing.unfinished,
        missing.not_saved,
        training.frozen,
        comparable.remedies,
        comparable.changed_declaration,
        comparable.analysis_changed,
        comparable.plan_used_up,
        comparable.accepted_changes,
        comparable.selection_layouts,
        comparable.proxies,
        values.floors,
        values.two_groups,
        values.unequal_spread,
        training.collapsed,
        training.collapses,
        missing.training_log_only,
        comparable.imported,
        missing.few_seeds,
    ]
    found = [lint for finder in finders for lint in finder(evidence)]
    return sorted(found, key=lambda lint: LEVELS.index(lint.level))
