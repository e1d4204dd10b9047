"""Checks that a reader must know before trusting a number; some lints forbid a verdict."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from dreamproof.report.data import FINAL, Group, StudyEvidence, TrainFacts
from dreamproof.report.validation import fallen_cells
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import DATA_FLOORS
from dreamproof.runs.sources import different_sources
from dreamproof.stats.describe import falls_into_two_groups, finite_values
from dreamproof.stats.permutation import smallest_p, smallest_paired_p
from dreamproof.stats.power import ALPHA
from dreamproof.stats.shape import spreads_differ
from dreamproof.study.ledger.status import NOT_SAVED, NOT_SAVED_TEXT

BLOCK, WARN, NOTE = "block", "warn", "note"
LEVELS = (BLOCK, WARN, NOTE)
IDENTICAL_DIGITS = 10
COLLAPSE_SHARE = 0.5
SAME_LENGTH = 1.01  # the last chunk of a trainer may overshoot the declared step a little
FEW_SEEDS = 10
SELECTION_LAYOUTS = ("validation", "train")
SHOWN_NAMES = 12
PEAK_NAME = re.compile(
    r"(?<![a-z])(peak|max|maximum|best|highest|top)(?![a-z])|峰值|最大|最高|最佳|最好|最优|最優", re.I
)


@dataclass(frozen=True)
class Lint:
    """One finding; `code` is its text key, `arms` are those without a verdict because of it (empty: all)."""

    code: str
    level: str
    facts: Mapping[str, object] = field(default_factory=dict)
    arms: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


def find_lints(evidence: StudyEvidence) -> list[Lint]:
    """Every lint of a study, the blocking ones first."""
    finders: list[Callable[[StudyEvidence], Iterable[Lint]]] = [
        _runs_absent,
        _incomplete_training,
        _incomplete_evaluation,
        _conflicting_rows,
        _not_finite,
        _one_seed,
        _never_significant,
        _identical_values,
        _identical_checkpoints,
        _never_updated,
        _unexplained_checkpoint,
        _peak_only,
        _different_tasks,
        _different_steps,
        _different_settings,
        _different_sources,
        _different_code,
        _different_counts,
        _unmeasured_limits,
        _undeclared_seeds,
        _unfinished,
        _not_saved,
        _frozen,
        _remedies,
        _changed_declaration,
        _plan_used_up,
        _accepted_changes,
        _selection_layouts,
        _proxies,
        _floors,
        _two_groups,
        _unequal_spread,
        _collapsed,
        _collapses,
        _training_log_only,
        _imported,
        _few_seeds,
    ]
    found = [lint for finder in finders for lint in finder(evidence)]
    return sorted(found, key=lambda lint: LEVELS.index(lint.level))


def names(items: Iterable[object]) -> str:
    """Items in one line; a long list is cut and ends with the number of the rest."""
    texts = [str(item) for item in items]
    more = len(texts) - SHOWN_NAMES
    return ", ".join(texts[:SHOWN_NAMES]) + (f" … (+{more})" if more > 0 else "")


def _primary(evidence: StudyEvidence, arm: str) -> dict[int, float]:
    return evidence.values.get(Group(arm, evidence.primary_condition, evidence.study.metric.name), {})


def _compared(evidence: StudyEvidence) -> list[str]:
    """The reference and the arms that are compared with it, in declared order."""
    apart = evidence.study.arms_on_other_tasks
    return [arm for arm in evidence.arms if arm not in apart]


def _runs_absent(evidence: StudyEvidence) -> Iterable[Lint]:
    if evidence.runs_absent:
        yield Lint("runs_absent", BLOCK, {"folder": "runs"})


def _incomplete_training(evidence: StudyEvidence) -> Iterable[Lint]:
    missing = [cell for cell, facts in evidence.cells.items() if not facts.trained]
    if missing:
        arms = tuple(dict.fromkeys(cell.arm for cell in missing))
        facts = {"missing": len(missing), "declared": len(evidence.cells), "cells": names(missing)}
        yield Lint("incomplete_training", BLOCK, facts, _judged(evidence, arms), tuple(map(str, missing)))


def _incomplete_evaluation(evidence: StudyEvidence) -> Iterable[Lint]:
    missing = [key for key, facts in evidence.evals.items() if not facts.evaluated]
    if missing:
        deciding = [cell for cell, condition in missing if condition in evidence.needed_conditions]
        arms = tuple(dict.fromkeys(cell.arm for cell in deciding))
        facts = {"missing": len(missing), "declared": len(evidence.evals), "cells": eval_names(missing)}
        level = BLOCK if deciding else WARN
        cells = tuple(f"{cell}@{condition}" for cell, condition in missing)
        yield Lint("incomplete_evaluation", level, facts, _judged(evidence, arms), cells)


def _judged(evidence: StudyEvidence, arms: tuple[str, ...]) -> tuple[str, ...]:
    """Arms whose verdict depends on these; all of them if the reference is among them."""
    return tuple(evidence.arms) if evidence.study.reference in arms else arms


def eval_names(keys: list[tuple[Cell, str]]) -> str:
    """arms/seeds × conditions, grouped so that a hundred cells stay one line."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for cell, condition in keys:
        seeds.setdefault((cell.arm, condition), []).append(cell.seed)
    conditions: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (arm, condition), numbers in seeds.items():
        conditions.setdefault((arm, tuple(sorted(numbers))), []).append(condition)
    arms: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for (arm, own), where in conditions.items():
        arms.setdefault((own, tuple(where)), []).append(arm)
    return "; ".join(
        f"{','.join(who)}/{','.join(map(str, own))} × {','.join(where)}"
        for (own, where), who in list(arms.items())[:SHOWN_NAMES]
    ) + (" …" if len(arms) > SHOWN_NAMES else "")


def _conflicting_rows(evidence: StudyEvidence) -> Iterable[Lint]:
    if evidence.conflicts:
        yield Lint("conflicting_rows", BLOCK, {"rows": names(evidence.conflicts)})


def _not_finite(evidence: StudyEvidence) -> Iterable[Lint]:
    bad = [
        (f"{group.arm}/{seed}@{group.condition}", group.arm)
        for group, values in evidence.values.items()
        if group.metric == evidence.study.metric.name and group.checkpoint == FINAL
        for seed, value in values.items()
        if not np.isfinite(value)
    ]
    if bad:
        cells = tuple(cell for cell, _ in bad)
        arms = _judged(evidence, tuple(dict.fromkeys(arm for _, arm in bad)))
        yield Lint("not_finite", BLOCK, {"cells": names(cells)}, arms, cells)


def _one_seed(evidence: StudyEvidence) -> Iterable[Lint]:
    arms = [arm for arm in evidence.arms if len(_primary(evidence, arm)) == 1]
    if arms:
        yield Lint("one_seed", BLOCK, {"arms": names(arms)}, _judged(evidence, tuple(arms)))


def _never_significant(evidence: StudyEvidence) -> Iterable[Lint]:
    compared = _compared(evidence)
    counts = [len(finite_values(list(_primary(evidence, arm).values()))) for arm in compared]
    fewest = min((count for count in counts if count > 0), default=0)
    smallest = smallest_paired_p(fewest) if evidence.study.paired_seeds else smallest_p(fewest, fewest)
    if len(compared) > 1 and fewest >= 2 and smallest > ALPHA:
        facts = {"seeds": fewest, "smallest_p": f"{smallest:.3f}"}
        yield Lint("never_significant", BLOCK, facts)


def _identical_values(evidence: StudyEvidence) -> Iterable[Lint]:
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
            yield Lint("identical_arms", BLOCK, facts, _judged(evidence, tuple(whole)), cells)
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


def _identical_checkpoints(evidence: StudyEvidence) -> Iterable[Lint]:
    owners: dict[str, list[Cell]] = {}
    for cell, facts in evidence.cells.items():
        if facts.parameter_hash:
            owners.setdefault(facts.parameter_hash, []).append(cell)
    twice = [cells for cells in owners.values() if len(cells) > 1]
    if twice:
        arms = tuple(dict.fromkeys(cell.arm for cells in twice for cell in cells))
        shown = names(" = ".join(map(str, cells)) for cells in twice)
        cells = tuple(str(cell) for cells in twice for cell in cells)
        yield Lint("identical_checkpoints", BLOCK, {"cells": shown}, _judged(evidence, arms), cells)


def _never_updated(evidence: StudyEvidence) -> Iterable[Lint]:
    bad = [cell for cell, facts in evidence.cells.items() if facts.trained and facts.gradient_steps == 0]
    bad += [cell for (cell, _), facts in evidence.evals.items() if facts.evaluated and facts.gradient_steps == 0]
    if bad:
        arms = _judged(evidence, tuple(dict.fromkeys(cell.arm for cell in bad)))
        yield Lint("never_updated", BLOCK, {"cells": names(dict.fromkeys(bad))}, arms, tuple(map(str, bad)))


def says_peak(metric: str) -> bool:
    """Whether the name of a metric says that it is the best of many values."""
    return PEAK_NAME.search(metric) is not None


def _unexplained_checkpoint(evidence: StudyEvidence) -> Iterable[Lint]:
    """A deciding metric whose name says peak, or whose table names no checkpoint, without a declared rule."""
    metric = evidence.study.metric
    if metric.checkpoint_rule is not None:
        return
    if says_peak(metric.name):
        yield Lint("peak_named", BLOCK, {"metric": metric.name})
    if metric.name in evidence.without_checkpoint:
        yield Lint("checkpoint_unknown", BLOCK, {"metric": metric.name})


def _peak_only(evidence: StudyEvidence) -> Iterable[Lint]:
    metric = evidence.study.metric.name
    others = [name for name in evidence.checkpoints(metric) if name != FINAL]
    picked = [name for name in others if says_peak(name)]
    bare = [
        arm
        for arm in evidence.arms
        if not _primary(evidence, arm)
        and any(Group(arm, evidence.primary_condition, metric, name) in evidence.values for name in picked)
    ]
    if bare:
        yield Lint("peak_only", BLOCK, {"arms": names(bare)}, _judged(evidence, tuple(bare)))
    elif picked:
        yield Lint("peak_shown", NOTE, {"checkpoints": names(picked)})
    best = [
        m for m in evidence.metrics if m != metric and FINAL not in evidence.checkpoints(m) and evidence.checkpoints(m)
    ]
    if best:
        facts = {"metrics": names(f"{m}@{evidence.checkpoints(m)[0]}" for m in best)}
        yield Lint("best_of_many", WARN, facts)


def _proven(evidence: StudyEvidence) -> list[TrainFacts]:
    return [facts for facts in evidence.cells.values() if facts.trained]


def _by_arm(evidence: StudyEvidence, value: Callable[[TrainFacts], str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for facts in _proven(evidence):
        if value(facts):
            found.setdefault(facts.cell.arm, set()).add(value(facts))
    return found


def _different_steps(evidence: StudyEvidence) -> Iterable[Lint]:
    steps = _by_arm(evidence, lambda facts: str(facts.agent_steps))
    lengths = [int(value) for values in steps.values() for value in values]
    tolerated = evidence.study.agent_steps_tolerance
    if lengths and max(lengths) > SAME_LENGTH * min(lengths) and max(lengths) - min(lengths) > tolerated:
        shown = names(f"{arm}: {'/'.join(sorted(values, key=int))}" for arm, values in steps.items())
        differing = tuple(arm for arm in steps if steps[arm] != steps.get(evidence.study.reference))
        yield Lint("different_steps", BLOCK, {"arms": shown}, differing)


def _different_tasks(evidence: StudyEvidence) -> Iterable[Lint]:
    """Arms on different tasks have returns that cannot be compared; each is reported by itself."""
    study = evidence.study
    if study.arms_on_other_tasks:
        yield Lint("different_tasks", NOTE, {"arms": names(study.arms_on_other_tasks), "reference": study.reference})


def _different_settings(evidence: StudyEvidence) -> Iterable[Lint]:
    typed = _by_arm(evidence, lambda facts: facts.settings_hash)
    resolved = _by_arm(evidence, lambda facts: facts.resolved_hash)
    mixed = [arm for arm in typed if len(typed[arm]) > 1 or len(resolved.get(arm, ())) > 1]
    mixed += [arm for arm in resolved if arm not in typed and len(resolved[arm]) > 1]
    if mixed:
        yield Lint("different_settings", BLOCK, {"arms": names(mixed)}, _judged(evidence, tuple(mixed)))


def _different_sources(evidence: StudyEvidence) -> Iterable[Lint]:
    """Cells that learned from other episodes, or started with another world model, than the cells beside them."""
    found = different_sources({facts.cell: facts.sources for facts in _proven(evidence)})
    if found:
        arms = tuple(dict.fromkeys(cell.arm for other in found for cell in (other.first, other.second)))
        cells = tuple(dict.fromkeys(str(cell) for other in found for cell in (other.first, other.second)))
        facts = {"cells": names(cells), "sources": names(dict.fromkeys(other.name for other in found))}
        yield Lint("different_sources", BLOCK, facts, _judged(evidence, arms), cells)


def _different_code(evidence: StudyEvidence) -> Iterable[Lint]:
    commits = set().union(*_by_arm(evidence, lambda facts: facts.commit).values(), set())
    if len(commits) > 1:
        yield Lint("different_code", WARN, {"commits": names(sorted(commit[:12] for commit in commits))})
    libraries = {f"{name} {version}" for facts in _proven(evidence) for name, version in facts.versions.items()}
    twice = sorted(text for text in libraries if sum(one.split()[0] == text.split()[0] for one in libraries) > 1)
    if twice:
        yield Lint("different_versions", WARN, {"versions": names(twice)})


def _different_counts(evidence: StudyEvidence) -> Iterable[Lint]:
    counts = {arm: len(_primary(evidence, arm)) for arm in _compared(evidence)}
    if len(set(counts.values())) > 1:
        yield Lint("different_counts", WARN, {"arms": names(f"{arm}: {count}" for arm, count in counts.items())})


def _unfinished(evidence: StudyEvidence) -> Iterable[Lint]:
    open_cells = [facts for facts in evidence.cells.values() if facts.state in ("running", "unfinished", "stopped")]
    if open_cells:
        shown = names(f"{facts.cell} ({facts.agent_steps / facts.of_agent_steps:.0%})" for facts in open_cells)
        yield Lint("unfinished", WARN, {"cells": shown}, (), tuple(str(facts.cell) for facts in open_cells))


def _not_saved(evidence: StudyEvidence) -> Iterable[Lint]:
    lost = [facts for facts in evidence.cells.values() if facts.state == NOT_SAVED]
    if lost:
        cells = tuple(str(facts.cell) for facts in lost)
        reason = lost[0].reason.removeprefix(f"{NOT_SAVED_TEXT}: ")
        yield Lint("not_saved", WARN, {"count": len(lost), "cells": names(cells), "reason": reason}, (), cells)


def _frozen(evidence: StudyEvidence) -> Iterable[Lint]:
    cells = [facts.cell for facts in evidence.cells.values() if facts.frozen]
    if cells:
        yield Lint("replica_frozen", WARN, {"cells": names(cells)}, (), tuple(map(str, cells)))


def _remedies(evidence: StudyEvidence) -> Iterable[Lint]:
    changing = [row for row in evidence.remedies if "micro_batch" in row["action"] or "memory" in row["action"]]
    arms = dict.fromkeys(Cell.parse(cell).arm for row in changing for cell in row["cells"])
    if arms:
        facts = {"arms": names(arms), "actions": names(dict.fromkeys(row["action"] for row in changing))}
        yield Lint("remedy_changed_arm", WARN, facts)


def _changed_declaration(evidence: StudyEvidence) -> Iterable[Lint]:
    changes = [change for row in evidence.changes for change in row.get("changes", [])]
    if evidence.first_declared is not None and evidence.first_declared.maximum_seeds is not None:
        changes = [change for change in changes if not change.startswith("seeds")]  # planned batches
    if changes:
        yield Lint("declaration_changed", WARN, {"times": len(evidence.changes), "changes": names(changes)})


def _plan_used_up(evidence: StudyEvidence) -> Iterable[Lint]:
    """Seeds beyond the plan that was declared before results were known: they decide nothing."""
    declared = evidence.declared_before_results
    if declared is None:
        return
    planned = max(len(declared.seeds), declared.maximum_seeds or 0)
    if len(evidence.study.seeds) > planned:
        yield Lint("plan_used_up", WARN, {"seeds": len(evidence.study.seeds), "planned": planned})


def _accepted_changes(evidence: StudyEvidence) -> Iterable[Lint]:
    """Work continued with changed settings or code on request."""
    for row in evidence.accepted:
        facts = {"what": row["what"], "flag": row["flag"], "changes": names(row["changes"])}
        yield Lint("changes_accepted", WARN, facts)


def _selection_layouts(evidence: StudyEvidence) -> Iterable[Lint]:
    bad = [
        f"{cell}@{condition}"
        for (cell, condition), facts in evidence.evals.items()
        if facts.layouts in SELECTION_LAYOUTS
    ]
    if bad:
        yield Lint("selection_layouts", BLOCK, {"cells": names(bad)}, (), tuple(bad))


def _proxies(evidence: StudyEvidence) -> Iterable[Lint]:
    """Skips conditions that were not evaluated: nothing is claimed, and the evaluator may still record their kind."""
    evaluated = {condition for (_, condition), facts in evidence.evals.items() if facts.evaluated}
    for condition in evidence.conditions:
        kind = evidence.kind(condition)
        if kind == "proxy":
            yield Lint("proxy", WARN, {"condition": condition})
        elif kind == "unknown" and condition in evaluated:
            yield Lint("kind_unknown", NOTE, {"condition": condition})


def _floors(evidence: StudyEvidence) -> Iterable[Lint]:
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


def _two_groups(evidence: StudyEvidence) -> Iterable[Lint]:
    arms = [
        arm for arm in evidence.arms if falls_into_two_groups(finite_values(list(_primary(evidence, arm).values())))
    ]
    if arms:
        yield Lint("two_groups", WARN, {"arms": names(arms)})


def _unequal_spread(evidence: StudyEvidence) -> Iterable[Lint]:
    reference = finite_values(list(_primary(evidence, evidence.study.reference).values()))
    arms = [
        arm
        for arm in evidence.study.treatments
        if spreads_differ(finite_values(list(_primary(evidence, arm).values())), reference)
    ]
    if arms:
        yield Lint("unequal_spread", WARN, {"arms": names(arms), "reference": evidence.study.reference})


def _collapsed(evidence: StudyEvidence) -> Iterable[Lint]:
    """Runs that ended below half of their peak: of the deciding metric, or of the validation return."""
    cells = {}
    for facts in _proven(evidence):
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


def _collapses(evidence: StudyEvidence) -> Iterable[Lint]:
    fallen = fallen_cells(evidence)
    if fallen:
        facts = {
            "cells": names(f"{one.cell} ({one.collapse_count})" for one in fallen),
            "collapses": sum(one.collapse_count for one in fallen),
            "rollbacks": sum(one.rollback_count for one in fallen),
        }
        yield Lint("collapses", WARN, facts, (), tuple(str(one.cell) for one in fallen))


def _training_log_only(evidence: StudyEvidence) -> Iterable[Lint]:
    if not evidence.study.conditions:
        yield Lint("training_log_only", BLOCK)


def _imported(evidence: StudyEvidence) -> Iterable[Lint]:
    cells = [cell for cell, facts in evidence.cells.items() if facts.imported]
    if cells:
        yield Lint("imported", NOTE, {"cells": len(cells)})
    groups = sorted({f"{group.metric}@{group.checkpoint}" for group in evidence.means})
    if groups:
        yield Lint("mean_only", NOTE, {"metrics": names(groups)})


def _unmeasured_limits(evidence: StudyEvidence) -> Iterable[Lint]:
    """Limits of metrics that no evaluation holds, for example because of a misspelt name: they forbid a winner."""
    known = {group.metric for group in [*evidence.values, *evidence.means]}
    missing = [limit.name for limit in evidence.study.limits if limit.name not in known]
    if missing and known:
        yield Lint("limit_unmeasured", WARN, {"limits": names(missing), "metrics": names(sorted(known))})


def _undeclared_seeds(evidence: StudyEvidence) -> Iterable[Lint]:
    if evidence.undeclared:
        yield Lint("undeclared_seeds", WARN, {"cells": names(sorted(evidence.undeclared))})


def _few_seeds(evidence: StudyEvidence) -> Iterable[Lint]:
    most = max((len(_primary(evidence, arm)) for arm in evidence.arms), default=0)
    if 2 <= most < FEW_SEEDS:
        yield Lint("few_seeds", NOTE, {"seeds": most})
