"""Checks chain, files, hashes and proofs of a study, and names what is broken, first things first."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.files import Unreadable, content_hash, file_fault
from dreamproof.runs.layout import Cell, CheckpointFolder
from dreamproof.runs.reader import checkpoint_fault, read_checkpoint
from dreamproof.study.launch import orphaned_events
from dreamproof.study.ledger import Head, checked_rows, head_fault, read_head
from dreamproof.study.opening import OpenStudy
from dreamproof.study.state import CellState, EvalState


@dataclass(frozen=True)
class Inspection:
    """What was checked and what does not hold, in the order in which it was found."""

    events: int = 0
    train_proofs: int = 0
    eval_proofs: int = 0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a person should know and what breaks nothing."""


def check_chain(opened: OpenStudy) -> tuple[int, str | None]:
    """How many events the chain holds, and the first line that breaks it."""
    count = 0
    try:
        for _ in checked_rows(opened.folder.ledger):
            count += 1
    except BrokenEvidence as error:
        return count, error.seen
    return count, None


def verify(opened: OpenStudy, check_content: bool = True) -> Inspection:
    """Checks everything that the ledger claims against the disk."""
    events, broken = check_chain(opened)
    faults = [broken] if broken is not None else []
    head = read_head(opened.folder.ledger_head)
    cut = head_fault(opened.folder.ledger, head) if isinstance(head, Head) and broken is None else None
    faults += [f"{opened.folder.ledger}: {cut}"] if cut is not None else []
    faults += [
        f"attempt {event.attempt} lies on disk but not in the ledger: its last lines were lost or taken out"
        for event in orphaned_events(opened.state, opened.folder)
    ]
    trained = [cell for cell in opened.state.cells.values() if cell.proof is not None]
    for cell in trained:
        fault = train_fault(opened, cell, check_content)
        if fault is not None:
            faults.append(f"{cell.cell}: {fault}")
    evaluated = [known for known in opened.state.eval_cells.values() if known.proof is not None]
    for known in evaluated:
        fault = eval_fault(opened, known)
        if fault is not None:
            faults.append(f"{known.cell} under {known.condition}: {fault}")
    return Inspection(events, len(trained), len(evaluated), faults, _notes(opened, head))


def _notes(opened: OpenStudy, head: Head | Unreadable) -> list[str]:
    notes = list(opened.state.shortened)
    if isinstance(head, Unreadable) and opened.state.event_count:
        notes.append(f"{head}, so that lines cut off the end of the ledger would not show")
    notes += [
        f"{cell.cell} is quarantined: {cell.quarantined}"
        for cell in opened.state.known_cells().values()
        if cell.quarantined
    ]
    return notes


def train_fault(opened: OpenStudy, cell: CellState, check_content: bool = True) -> str | None:
    """Why a cell's proof does not hold on disk; None where it does."""
    proof = cell.proof
    if proof is None:
        return "no proof is on record"
    adapter = opened.adapter(cell.cell)
    run = opened.run(cell.cell)
    if adapter.name != "native":
        return _file_fault(run.root / proof.checkpoint, proof.parameter_hash, check_content)
    folder = CheckpointFolder(run.checkpoints / proof.checkpoint)
    if not os.path.isdir(folder.root):
        return f"checkpoint {proof.checkpoint} is gone"
    fault = checkpoint_fault(folder, check_content)
    if fault is not None:
        return f"checkpoint {proof.checkpoint}: {fault}"
    record = read_checkpoint(folder)
    if record is None or record.parameter_hash != proof.parameter_hash:
        return f"checkpoint {proof.checkpoint} is not the one that was proven (hash differs)"
    if record.agent_steps < proof.agent_steps or record.gradient_steps != proof.gradient_steps:
        return f"checkpoint {proof.checkpoint} says other steps than the ledger"
    return None


def _file_fault(path: Path, expected: str, check_content: bool) -> str | None:
    """Foreign proofs rest on file times when made; later only the bytes count, since evaluations may write beside."""
    if not os.path.lexists(path):
        return f"checkpoint {path.name} is gone"
    found = content_hash(path) if check_content else file_fault(path)
    if isinstance(found, Unreadable):
        return f"checkpoint {found}"
    if check_content and found != expected:
        return f"checkpoint {path.name} is not the one that was proven (hash differs)"
    return None


def eval_fault(opened: OpenStudy, known: EvalState) -> str | None:
    """Why an eval cell's proof does not hold on disk; None where it does."""
    if known.proof is None:
        return "no proof is on record"
    cell: Cell = known.cell
    found = opened.adapter(cell).prove_evaluation(
        opened.run(cell), known.condition, known.proof.episodes, known.proof.parameter_hash
    )
    return found if isinstance(found, str) else None
