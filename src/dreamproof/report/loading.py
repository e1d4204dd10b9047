"""Reads the results of a study from its ledger, run folders and imported tables; no other module of the report does."""

from collections.abc import Iterable, Mapping
from itertools import dropwhile, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import FaultKind, Unreadable, canonical_json, text_hash
from dreamproof.report.data import FINAL, SELECTED, AttemptFacts, EvalFacts, Group, MeanOnly, StudyEvidence, TrainFacts
from dreamproof.report.imported import ImportedRuns, read_imported
from dreamproof.runs.layout import Cell, CheckpointFolder, StudyFolder
from dreamproof.runs.reader import (
    load_evaluation,
    read_checkpoint,
    read_collapses,
    read_summary,
    selected_agent_steps,
)
from dreamproof.runs.records import (
    EvaluatedCheckpoint,
    EvaluationRecord,
)
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.ledger.cells import CellState, EvalState
from dreamproof.study.ledger.chain import read_ledger
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.ledger.status import NOT_SAVED, train_outcome
from dreamproof.study.plan.gap import changes_of_analysis
from dreamproof.study.plan.on_disk import disk_faults, fault_text, other_checkpoint
from dreamproof.study.plan.open_study import OpenStudy

T = TypeVar("T")
COST = "cost"
CLOSING_EVENTS = ("report_written", "supervisor_ended")
DECLARATIONS = ("study_declared", "declaration_changed")
RESULTS = ("eval_proven", "imported")
WORK = ("attempt_started", "foreign_run_found", *RESULTS)
CELL_EVENTS = ("train_proven", "eval_proven", "imported", "unproven", "proof_lost", "cell_stopped", "replica_frozen")


def load(study_folder: Path, declared: Study | None = None) -> StudyEvidence:
    """Reads a study folder: its ledger and run folders, and the tables under `imported`.

    `declared` is the study read from its file, for a folder without a ledger.
    """
    folder = StudyFolder(study_folder)
    rows = _without_end(read_ledger(folder.ledger))
    state = StudyState.replay(rows) if rows else None
    study = state.study if state is not None else None
    study = study if study is not None else declared
    if study is None:
        if not folder.declaration.exists():
            raise BadInput(f"{study_folder}: neither a ledger nor a declaration lies here", "dreamproof report STUDY")
        study = read_study(folder.declaration)
    evidence = StudyEvidence(study, folder, rows=rows, state=state)
    _matrix(evidence)
    if state is not None:
        _from_state(evidence, state, rows)
    imported = read_imported(folder.imported, study)
    if imported is not None:
        _from_imported(evidence, imported)
    _join_conditions(evidence)
    return evidence


def _without_end(rows: list[Row]) -> list[Row]:
    """The rows without those that only close a session: what `run` writes before them is what `report` writes after."""
    count = len(rows)
    while count and rows[count - 1]["event"] in CLOSING_EVENTS:
        count -= 1
    return rows[:count]


def _join_conditions(evidence: StudyEvidence) -> None:
    """Adds the mean, or the IQM, over the deciding conditions as a value of every seed that has all of them."""
    names, other = evidence.deciding_conditions, evidence.other_score
    if len(names) > 1:
        _join_metric(evidence, evidence.study.metric.name, names)
    if other is not None:
        _join_metric(evidence, other.metric, other.tasks)


def _join_metric(evidence: StudyEvidence, metric: str, names: list[str]) -> None:
    for arm, checkpoint in product(evidence.arms, (FINAL, SELECTED)):
        tables = [evidence.values.get(Group(arm, name, metric, checkpoint), {}) for name in names]
        shared = [seed for seed in evidence.study.seeds if all(seed in table for table in tables)]
        joined = {seed: evidence.joined([table[seed] for table in tables]) for seed in shared}
        if joined:
            evidence.values[Group(arm, evidence.primary_condition, metric, checkpoint)] = joined


def _matrix(evidence: StudyEvidence) -> None:
    study, folder = evidence.study, evidence.folder
    for arm in study.arms:
        for seed in study.seeds:
            cell = Cell(arm, seed)
            run = folder.relative(folder.run(cell).root)
            evidence.cells[cell] = TrainFacts(cell, False, "missing", run_folder=run, of_agent_steps=study.agent_steps)
            for condition in study.conditions:
                evidence.evals[cell, condition.name] = EvalFacts(cell, condition.name, False)


def _from_state(evidence: StudyEvidence, state: StudyState, rows: list[Row]) -> None:
    evidence.remedies, evidence.changes = state.remedies, changes_after_start(rows)
    evidence.accepted = state.accepted
    evidence.last_event, evidence.ledger_hash = rows[-1]["t"], rows[-1]["hash"]
    first = next((row for row in rows if row["event"] == "study_declared"), None)
    evidence.first_declared = Study.model_validate(first["declaration"]) if first else None
    evidence.declared_before_results = declared_before_results(rows)[0]
    evidence.analysis_changes = analysis_changes(rows, evidence.study)
    _look_at_disk(evidence, state)
    settings = _settings_of_hashes(rows)
    for cell, known in state.cells.items():
        _train_facts(evidence, state, cell, known, settings)
    for row in rows:
        _note_line(evidence, row)
    with np.errstate(over="ignore", invalid="ignore"):
        for key, eval_known in state.eval_cells.items():
            _eval_facts(evidence, state, evidence.evals[key], eval_known)
    evidence.attempts = [_attempt(state, name) for name in state.attempts]


def _settings_of_hashes(rows: Iterable[Row]) -> dict[str, str]:
    """A hash of the settings behind every hash of settings on record; environment variables need not agree."""
    found = {row["resolved_hash"]: row["resolved"] for row in rows if row["event"] == "settings_resolved"}
    return {
        key: text_hash(canonical_json({name: value for name, value in resolved.items() if name != "environment"}))
        for key, resolved in found.items()
    }


def declared_before_results(rows: Iterable[Row]) -> tuple[Study | None, bool]:
    """The last declaration before the first result, and whether there is a result; reads no further than that."""
    declared: Row | None = None
    known = False
    for row in rows:
        known = row["event"] in RESULTS
        if known:
            break
        if row["event"] in DECLARATIONS:
            declared = row
    return Study.model_validate(declared["declaration"]) if declared is not None else None, known


def analysis_changes(rows: Iterable[Row], now: Study) -> list[str]:
    """What a verdict is taken from and was changed when results were known; nothing before there are any."""
    left = iter(rows)
    declared, known = declared_before_results(left)
    if declared is None or not known:
        return []
    # Without other seeds no later row matters, so a long ledger need not be read.
    later = [row for row in left if row["event"] in DECLARATIONS] if now.seeds != declared.seeds else []
    return changes_of_analysis(declared, [row["declaration"]["seeds"] for row in later], now)


def changes_after_start(rows: Iterable[Row]) -> list[Row]:
    """The changes of the declaration since anything was trained: before that, it is still being written."""
    since_work = dropwhile(lambda row: row["event"] not in WORK, rows)
    return [row for row in since_work if row["event"] == "declaration_changed"]


def _look_at_disk(evidence: StudyEvidence, state: StudyState) -> None:
    """Takes in which files cannot be read now, whatever the ledger says of proven cells.

    An evaluation counts without the checkpoint that it was made from, and what is gone is named.
    """
    opened = OpenStudy(evidence.folder, evidence.study, evidence.folder.declaration, state)
    found = disk_faults(opened)
    changed = {cell: other_checkpoint(opened, cell) for cell in state.cells if cell not in found.cells}
    found.cells.update({cell: fault for cell, fault in changed.items() if fault is not None})
    state.lost_evals = {(str(cell), condition) for cell, condition in found.evals}
    for known in state.cells.values():
        known.quarantined = None if known.proof is not None else known.quarantined
    for cell, fault in found.cells.items():
        text = fault_text(opened, fault)
        if fault.fault is FaultKind.ABSENT and state.cells[cell].proof is not None:
            evidence.cells[cell].lost = text
        else:
            state.unreadable[str(cell)] = text


def _train_facts(
    evidence: StudyEvidence, state: StudyState, cell: Cell, known: CellState, settings: Mapping[str, str]
) -> None:
    facts = evidence.cells[cell]
    facts.trained = state.trained(known)
    facts.state = train_outcome(state, known)
    quarantine = state.quarantine(known)
    facts.reason = quarantine or known.stopped or known.frozen or known.unproven or ""
    facts.agent_steps = known.proof.agent_steps if known.proof else known.reached_agent_steps
    facts.wall_seconds = known.wall_seconds or None
    facts.frozen, facts.cause, facts.evidence = known.frozen, known.last_cause, known.last_evidence
    if facts.state == NOT_SAVED:
        facts.cause, facts.evidence = NOT_SAVED, [known.stopped or ""]
    if quarantine is not None:
        facts.cause, facts.evidence = "quarantined", [quarantine]
    facts.attempts, facts.imported = len(known.attempts), known.source is not None
    trainer = evidence.study.trainer
    facts.adapter = trainer.adapter if isinstance(trainer, CommandTrainer) else "native"
    if known.source is not None:
        facts.run_folder = known.source
        facts.adapter = known.source_adapter or facts.adapter
    if known.attempts:
        facts.output = evidence.folder.relative(evidence.folder.attempt(known.attempts[-1]).output)
    if known.proof is not None:
        facts.gradient_steps = known.proof.counted_gradient_steps
        facts.parameter_hash, facts.checkpoint = known.proof.parameter_hash, known.proof.checkpoint
        _checkpoint_facts(evidence, facts)
        if isinstance(trainer, CommandTrainer):
            facts.resolved_hash = settings.get(known.resolved_hash or "", "")
    run = evidence.kept_run(cell)
    facts.summary, facts.collapses = read_summary(run), read_collapses(run)
    facts.selected_agent_steps = selected_agent_steps(run)


def _checkpoint_facts(evidence: StudyEvidence, facts: TrainFacts) -> None:
    record = read_checkpoint(CheckpointFolder(evidence.kept_run(facts.cell).checkpoints / facts.checkpoint))
    if record is not None:
        facts.commit = record.code_commit or record.code_version
        facts.settings_hash, facts.versions = record.settings_hash, record.versions
        facts.sources = record.sources
        facts.resolved_hash = record.resolved_hash


def _note_line(evidence: StudyEvidence, row: Row) -> None:
    if row["event"] not in CELL_EVENTS:
        return
    cell = Cell.parse(row["cell"])
    condition = row.get("condition")
    if condition is not None and (cell, condition) in evidence.evals:
        evidence.evals[cell, condition].ledger_lines.append(row["n"])
    elif condition is None and cell in evidence.cells:
        evidence.cells[cell].ledger_lines.append(row["n"])


def _eval_facts(evidence: StudyEvidence, state: StudyState, facts: EvalFacts, known: EvalState) -> None:
    facts.evaluated = state.evaluated(known)
    facts.reason = known.unproven or state.quarantine(state.known_cell(str(known.cell))) or ""
    if known.proof is None:
        return
    facts.episodes, facts.parameter_hash = known.proof.episodes, known.proof.parameter_hash
    facts.imported = evidence.cells[facts.cell].imported
    record = load_evaluation(evidence.kept_run(facts.cell), facts.condition, known.proof)
    if isinstance(record, Unreadable):
        is_gone = record.fault is FaultKind.ABSENT
        facts.evaluated, facts.reason = False, "the evaluation file is gone" if is_gone else str(record)
        return
    facts.layouts = record.layouts
    evidence.kinds.setdefault(facts.condition, record.kind)
    several = len({evidence.study.task_of(arm) for arm in evidence.study.arms}) > 1
    for name, floor in record.floors.items() if not several else ():  # one task's floor is none of another's
        evidence.floors.setdefault(facts.condition, {}).setdefault(name, _measured(record, floor))
    if not facts.evaluated:
        return
    for checkpoint, found in _checkpoints(record, evidence.cells[facts.cell].selected_agent_steps).items():
        if checkpoint == FINAL:
            facts.gradient_steps = found.gradient_steps
        for metric, values in _measured(record, found.episodes).items():
            group = Group(facts.cell.arm, facts.condition, metric, checkpoint)
            array = np.asarray(values, dtype=np.float64)
            evidence.episodes.setdefault(group, {})[facts.cell.seed] = array
            evidence.values.setdefault(group, {})[facts.cell.seed] = float(array.mean()) if len(array) else float("nan")
        for metric, value in found.scalars.items():
            group = Group(facts.cell.arm, facts.condition, metric, checkpoint)
            evidence.values.setdefault(group, {}).setdefault(facts.cell.seed, value)


def _measured(record: EvaluationRecord, values: Mapping[str, T]) -> dict[str, T]:
    """Values without the cost of a task that has none: its zeros would keep every limit."""
    return {name: value for name, value in values.items() if name != COST or record.has_cost is not False}


def _checkpoints(record: EvaluationRecord, selected: int | None) -> dict[str, EvaluatedCheckpoint]:
    """Evaluations by checkpoint; a final checkpoint that was also selected counts as both."""
    final = record.checkpoints.get(FINAL)
    if SELECTED in record.checkpoints or final is None or selected != final.agent_steps:
        return record.checkpoints
    return record.checkpoints | {SELECTED: final}


def _attempt(state: StudyState, name: str) -> AttemptFacts:
    attempt = state.attempts[name]
    return AttemptFacts(
        name,
        attempt.work,
        tuple(attempt.cells),
        attempt.started,
        attempt.ended,
        attempt.wall_seconds,
        attempt.cause,
        tuple(attempt.evidence),
    )


def _from_imported(evidence: StudyEvidence, imported: ImportedRuns) -> None:
    evidence.bill, evidence.conflicts = imported.bill, imported.conflicts
    evidence.without_checkpoint = imported.without_checkpoint
    for cell, run in imported.runs.items():
        facts = evidence.cells.get(cell)
        if facts is None or facts.trained:
            continue
        facts.imported = True
        facts.state = "reported" if run.state == "proven" else run.state
        facts.of_agent_steps = run.of_agent_steps or evidence.study.agent_steps
        unknown = facts.of_agent_steps if run.state == "proven" else 0  # its owner calls it complete
        steps = unknown if run.agent_steps is None else run.agent_steps
        facts.trained = run.state == "proven" and steps >= facts.of_agent_steps
        if run.state == "proven" and not facts.trained:
            facts.state = "unfinished"
        facts.agent_steps, facts.gradient_steps = steps, run.gradient_steps
        facts.wall_seconds, facts.cause = run.wall_seconds, run.cause or None
        facts.reason, facts.checkpoint = run.evidence, run.checkpoint
        facts.evidence = [run.evidence] if run.evidence else []
        facts.parameter_hash, facts.run_folder = run.parameter_hash, f"imported/cells.csv:{run.line}"
    for value in imported.values:
        _imported_value(evidence, value)


def _imported_value(evidence: StudyEvidence, value: Any) -> None:
    group = Group(value.arm, value.condition, value.metric, value.checkpoint)
    if len(value.seeds) > 1:
        evidence.means.setdefault(group, MeanOnly(value.value, value.seeds, value.sd))
        return
    seed = value.seeds[0]
    if seed not in evidence.study.seeds:
        evidence.undeclared.setdefault(Cell(value.arm, seed), value.line)
        return
    evidence.values.setdefault(group, {}).setdefault(seed, value.value)
    cell = Cell(value.arm, seed)
    evidence.sources.setdefault((cell, value.condition), []).append(value.line)
    facts = evidence.evals.get((cell, value.condition))
    if facts is not None and value.metric == evidence.study.metric.name and value.checkpoint == FINAL:
        facts.evaluated, facts.imported = bool(np.isfinite(value.value)), True
        facts.reason = f"imported/results.csv:{value.line}"
