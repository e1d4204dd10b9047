"""Lints about arms that differ in more than was declared, and about what was changed after the start."""

from collections.abc import Iterable

from dreamproof.report.data import StudyEvidence
from dreamproof.report.lints.lint import BLOCK, NOTE, WARN, Lint, by_arm, judged, names, proven
from dreamproof.runs.layout import Cell
from dreamproof.runs.sources import different_sources

SAME_LENGTH = 1.01  # the last chunk of a trainer may overshoot the declared step a little
SELECTION_LAYOUTS = ("validation", "train")


def different_tasks(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms on different tasks have returns that cannot be compared; each is reported by itself."""
    study = evidence.study
    if study.arms_on_other_tasks:
        yield Lint("different_tasks", NOTE, {"arms": names(study.arms_on_other_tasks), "reference": study.reference})


def different_steps(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms that were trained for different numbers of agent steps."""
    steps = by_arm(evidence, lambda facts: str(facts.agent_steps))
    lengths = [int(value) for values in steps.values() for value in values]
    tolerated = evidence.study.agent_steps_tolerance
    if lengths and max(lengths) > SAME_LENGTH * min(lengths) and max(lengths) - min(lengths) > tolerated:
        shown = names(f"{arm}: {'/'.join(sorted(values, key=int))}" for arm, values in steps.items())
        differing = tuple(arm for arm in steps if steps[arm] != steps.get(evidence.study.reference))
        yield Lint("different_steps", BLOCK, {"arms": shown}, differing)


def different_settings(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells of one arm with different settings."""
    typed = by_arm(evidence, lambda facts: facts.settings_hash)
    resolved = by_arm(evidence, lambda facts: facts.resolved_hash)
    mixed = [arm for arm in typed if len(typed[arm]) > 1 or len(resolved.get(arm, ())) > 1]
    mixed += [arm for arm in resolved if arm not in typed and len(resolved[arm]) > 1]
    if mixed:
        yield Lint("different_settings", BLOCK, {"arms": names(mixed)}, judged(evidence, tuple(mixed)))


def sources_differ(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells that learned from other episodes, or started with another world model, than the cells beside them."""
    found = different_sources({facts.cell: facts.sources for facts in proven(evidence)})
    if found:
        arms = tuple(dict.fromkeys(cell.arm for other in found for cell in (other.first, other.second)))
        cells = tuple(dict.fromkeys(str(cell) for other in found for cell in (other.first, other.second)))
        facts = {"cells": names(cells), "sources": names(dict.fromkeys(other.name for other in found))}
        yield Lint("different_sources", BLOCK, facts, judged(evidence, arms), cells)


def different_code(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells trained by several versions of the code or of its libraries."""
    commits = set().union(*by_arm(evidence, lambda facts: facts.commit).values(), set())
    if len(commits) > 1:
        yield Lint("different_code", WARN, {"commits": names(sorted(commit[:12] for commit in commits))})
    libraries = {f"{name} {version}" for facts in proven(evidence) for name, version in facts.versions.items()}
    twice = sorted(text for text in libraries if sum(one.split()[0] == text.split()[0] for one in libraries) > 1)
    if twice:
        yield Lint("different_versions", WARN, {"versions": names(twice)})


def changed_declaration(evidence: StudyEvidence) -> Iterable[Lint]:
    """A declaration that was changed after the start."""
    changes = [change for row in evidence.changes for change in row.get("changes", [])]
    if evidence.first_declared is not None and evidence.first_declared.maximum_seeds is not None:
        changes = [change for change in changes if not change.startswith("seeds")]  # planned batches
    if changes:
        yield Lint("declaration_changed", WARN, {"times": len(evidence.changes), "changes": names(changes)})


def analysis_changed(evidence: StudyEvidence) -> Iterable[Lint]:
    """What a verdict is taken from was changed when results were known: it may have been chosen by them."""
    if evidence.analysis_changes:
        yield Lint("analysis_changed", BLOCK, {"changes": names(evidence.analysis_changes)})


def plan_used_up(evidence: StudyEvidence) -> Iterable[Lint]:
    """Seeds beyond the plan that was declared before results were known: they decide nothing."""
    declared = evidence.declared_before_results
    if declared is None:
        return
    planned = max(len(declared.seeds), declared.maximum_seeds or 0)
    if len(evidence.study.seeds) > planned:
        yield Lint("plan_used_up", WARN, {"seeds": len(evidence.study.seeds), "planned": planned})


def accepted_changes(evidence: StudyEvidence) -> Iterable[Lint]:
    """Work continued with changed settings or code on request."""
    for row in evidence.accepted:
        facts = {"what": row["what"], "flag": row["flag"], "changes": names(row["changes"])}
        yield Lint("changes_accepted", WARN, facts)


def remedies(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms whose batch or memory was changed after a failure."""
    changing = [row for row in evidence.remedies if "micro_batch" in row["action"] or "memory" in row["action"]]
    arms = dict.fromkeys(Cell.parse(cell).arm for row in changing for cell in row["cells"])
    if arms:
        facts = {"arms": names(arms), "actions": names(dict.fromkeys(row["action"] for row in changing))}
        yield Lint("remedy_changed_arm", WARN, facts)


def selection_layouts(evidence: StudyEvidence) -> Iterable[Lint]:
    """Evaluations on the layouts on which checkpoints are selected."""
    bad = [
        f"{cell}@{condition}"
        for (cell, condition), facts in evidence.evals.items()
        if facts.layouts in SELECTION_LAYOUTS
    ]
    if bad:
        yield Lint("selection_layouts", BLOCK, {"cells": names(bad)}, (), tuple(bad))


def proxies(evidence: StudyEvidence) -> Iterable[Lint]:
    """Skips conditions that were not evaluated: nothing is claimed, and the evaluator may still record their kind."""
    evaluated = {condition for (_, condition), facts in evidence.evals.items() if facts.evaluated}
    for condition in evidence.conditions:
        kind = evidence.kind(condition)
        if kind == "proxy":
            yield Lint("proxy", WARN, {"condition": condition})
        elif kind == "unknown" and condition in evaluated:
            yield Lint("kind_unknown", NOTE, {"condition": condition})


def imported(evidence: StudyEvidence) -> Iterable[Lint]:
    """Values that were taken in from outside."""
    cells = [cell for cell, facts in evidence.cells.items() if facts.imported]
    if cells:
        yield Lint("imported", NOTE, {"cells": len(cells)})
    groups = sorted({f"{group.metric}@{group.checkpoint}" for group in evidence.means})
    if groups:
        yield Lint("mean_only", NOTE, {"metrics": names(groups)})
