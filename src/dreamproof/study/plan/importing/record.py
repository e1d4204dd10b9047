"""Turns what an import found into events and lines of text."""

import os
from dataclasses import replace

from dreamproof.base.files import real_path
from dreamproof.base.safe_text import printable
from dreamproof.base.text import duration_text, quoted
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.reader import NotSaved, TrainProof
from dreamproof.study.adapters import find_adapter, study_format
from dreamproof.study.ledger.events import CellStopped, EvalProven, Event, TrainProven
from dreamproof.study.ledger.outside_events import ForeignRunEnded, ForeignRunFound, Imported, Unproven
from dreamproof.study.ledger.status import NOT_OURS, NOT_SAVED, NOT_SAVED_TEXT, status_text
from dreamproof.study.plan.importing.candidates import Candidate, assess, rank, status_note
from dreamproof.study.plan.importing.found import Found, ImportOptions, ImportResult
from dreamproof.study.plan.importing.living import LivingRun
from dreamproof.study.plan.importing.results import record_evaluation_folder
from dreamproof.study.plan.importing.slurm_logs import LogReading
from dreamproof.study.plan.on_disk import fault_text, proof_gone
from dreamproof.study.plan.open_study import OpenStudy


def record_training(opened: OpenStudy, found: list[Found], options: ImportOptions, result: ImportResult) -> None:
    """The best run of every cell, and why the others of a cell are not used."""
    by_cell: dict[Cell, list[Found]] = {}
    for one in found:
        by_cell.setdefault(one.cell, []).append(one)
    for cell, candidates in sorted(by_cell.items()):
        if opened.state.trained(opened.state.known_cell(str(cell))):
            lost = proof_gone(opened, cell)
            again = f"to train it again: dreamproof run {quoted(opened.named)} --retrain-lost"
            state = "already proven, unchanged" if lost is None else f"proven, but {fault_text(opened, lost)}; {again}"
            result.lines.append(f"{cell}: {state}")
            continue
        assessed = sorted((assess(opened, one, options) for one in candidates), key=rank)
        result.causes += [one.log.cause for one in assessed if one.log is not None and one.log.cause is not None]
        _record_best(opened, cell, assessed[-1], result)
        for other in reversed(assessed[:-1]):
            _record_aborted(opened, other, result)


def _record_best(opened: OpenStudy, cell: Cell, candidate: Candidate, result: ImportResult) -> None:
    text, found, proof = str(cell), candidate.found, candidate.proof
    if candidate.living is not None:
        record_living(opened, candidate, candidate.living, result)
        return
    source = _source(opened, found)
    known = opened.state.known_cell(text)
    if known.foreign is not None:
        result.events.append(ForeignRunEnded(text, "nothing shows that it still runs"))
    if _is_there(found) and (known.source != source or known.foreign is not None):
        result.events.append(_imported(opened, candidate))
    if isinstance(proof, str):
        _record_unproven(opened, cell, candidate, proof, result)
        return
    result.proven.append(text)
    result.lines.append(f"{cell}: proven, {proof.agent_steps:,} agent steps, {proof.checkpoint} in {source}")
    result.events.append(TrainProven.of(text, proof))
    result.events += _evaluations_in_run(opened, text, candidate, proof)


def _is_there(found: Found) -> bool:
    return os.path.isdir(found.root) if found.root is not None else found.output is not None


def _imported(opened: OpenStudy, candidate: Candidate, aborted: bool = False) -> Imported:
    found, log = candidate.found, candidate.log or LogReading()
    return Imported(
        str(found.cell),
        _source(opened, found),
        candidate.adapter or None,
        candidate.agent_steps,
        found.wall_seconds,
        log.of_agent_steps,
        found.job,
        log.final,
        log.peak,
        log.cause,
        list(log.evidence) or None,
        aborted or None,
    )


def _record_aborted(opened: OpenStudy, candidate: Candidate, result: ImportResult) -> None:
    """A run of which another one is used: its time is wasted."""
    found, text = candidate.found, str(candidate.found.cell)
    if candidate.living is not None or not _is_there(found):
        result.lines.append(f"  not used: {candidate.proof}")
        return
    source = _source(opened, found)
    spent = f", {duration_text(found.wall_seconds)}" if found.wall_seconds else ""
    is_aborted = isinstance(candidate.proof, str)
    kind, why = ("aborted", candidate.proof) if is_aborted else ("duplicate", "another run proves the cell as well")
    line = f"{kind}: {source}, {candidate.agent_steps:,} agent steps{spent}: {why}"
    result.aborted.setdefault(text, []).append(line)
    result.lines.append(f"  {line}")
    if all(one["source"] != source for one in opened.state.known_cell(text).outside):
        result.events.append(_imported(opened, candidate, aborted=True))


def record_living(opened: OpenStudy, candidate: Candidate, living: LivingRun, result: ImportResult) -> None:
    """A run of somebody else that still lives; nothing new is recorded if it is known."""
    cell = candidate.found.cell
    text, known = str(cell), opened.state.known_cell(str(cell))
    event = foreign_run(opened, candidate, living)
    result.living[text] = living.evidence
    result.lines.append(f"{cell}: {status_text(NOT_OURS)}, {candidate.agent_steps:,} agent steps: {living.evidence}")
    same_process = known.foreign is not None and known.foreign["process"] == event.process
    if not same_process or known.source != event.source:
        result.events.append(event)


def foreign_run(opened: OpenStudy, candidate: Candidate, living: LivingRun) -> ForeignRunFound:
    """The event that a run of somebody else works on a cell."""
    writer = living.writer
    return ForeignRunFound(
        str(candidate.found.cell),
        _source(opened, candidate.found),
        living.evidence,
        candidate.adapter,
        candidate.agent_steps,
        writer.process.as_json() if writer is not None else None,
        writer.started_unix_seconds if writer is not None else None,
        str(living.output) if living.output is not None else None,
    )


def adopt(opened: OpenStudy, found: Found, adapter: str | None) -> ImportResult:
    """Takes in what a run that is over left behind: its proof, or why it has none."""
    result = ImportResult()
    candidate = replace(assess(opened, found, ImportOptions(adapter=adapter)), living=None)
    _record_best(opened, found.cell, candidate, result)
    return result


def _record_unproven(opened: OpenStudy, cell: Cell, candidate: Candidate, reason: str, result: ImportResult) -> None:
    """What is not proven, and why; a run that was trained and not saved is stopped: it is not trained again unasked."""
    text, source, known = str(cell), _source(opened, candidate.found), opened.state.known_cell(str(cell))
    not_saved = isinstance(reason, NotSaved)
    result.unproven[text] = str(reason)
    result.lines.append(f"{cell}: {NOT_SAVED_TEXT if not_saved else 'unproven'}: {reason}")
    if known.unproven != reason or known.source != source:
        result.events.append(Unproven(text, source, str(reason)))
    if not_saved:
        result.not_saved[text] = candidate.found.wall_seconds or 0.0
    if not_saved and known.stopped_cause != NOT_SAVED:
        result.events.append(CellStopped(text, f"{NOT_SAVED_TEXT}: {reason}", NOT_SAVED))


def _evaluations_in_run(opened: OpenStudy, text: str, candidate: Candidate, proof: TrainProof) -> list[Event]:
    """Evaluations that lie in a proven run folder and were made from its final checkpoint."""
    assert candidate.found.root is not None
    adapter, run = find_adapter(candidate.adapter, study_format(opened.study)), RunFolder(candidate.found.root)
    episodes = opened.study.evaluation_episodes
    found = {
        one.name: adapter.prove_evaluation(run, one.name, episodes, proof.parameter_hash)
        for one in opened.study.conditions
    }
    return [EvalProven.of(text, name, made) for name, made in found.items() if not isinstance(made, str)]


def _source(opened: OpenStudy, found: Found) -> str:
    place = found.root or found.output
    if place is None:
        return "a table"
    # What is not there has nothing to resolve, and its name may be anything.
    return printable(opened.folder.relative(real_path(place) if os.path.exists(place) else place))[:300]


def record_evaluations(opened: OpenStudy, found: list[Found], result: ImportResult) -> None:
    """Evaluations that name the checkpoint they were made from are proven; others are only reported."""
    for one in found:
        condition = one.condition or ""
        known = opened.state.known_eval(str(one.cell), condition)
        if opened.state.evaluated(known):
            continue
        event = _evaluation_event(opened, one, condition)
        if isinstance(event, EvalProven):
            result.proven.append(f"{one.cell} {condition}")
        else:
            event = replace(event, reason=event.reason + record_evaluation_folder(opened, one, result))
            result.unproven[f"{one.cell} {condition}"] = event.reason
            result.lines.append(f"{one.cell} {condition}: unproven: {event.reason}")
            if known.unproven == event.reason:
                continue
        result.events.append(event)


def _evaluation_event(opened: OpenStudy, found: Found, condition: str) -> EvalProven | Unproven:
    text = str(found.cell)
    known = opened.state.known_cell(text)
    source = _source(opened, found)
    if known.proof is None:
        return Unproven(text, source, "its training is not proven" + status_note(found), condition)
    run = RunFolder(found.root) if found.root is not None and os.path.isdir(found.root) else opened.run(found.cell)
    proof = opened.adapter(found.cell).prove_evaluation(
        run, condition, opened.study.evaluation_episodes, known.proof.parameter_hash
    )
    if isinstance(proof, str):
        return Unproven(text, source, proof + status_note(found), condition)
    return EvalProven.of(text, condition, proof)
