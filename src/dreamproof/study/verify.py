"""Checks chain, files, hashes and proofs of a study, and names what is broken, first things first."""

from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.files import file_hash
from dreamproof.runs.layout import Cell, CheckpointFolder
from dreamproof.runs.reader import checkpoint_fault, read_checkpoint
from dreamproof.study.launch import orphaned_events
from dreamproof.study.ledger import checked_rows
from dreamproof.study.opening import OpenStudy
from dreamproof.study.state import CellState, EvalState


@dataclass(frozen=True)
class Inspection:
    """What was checked and what does not hold, in the order in which it was found."""

    events: int = 0
    train_proofs: int = 0
    eval_proofs: int = 0
    faults: list[str] = field(default_factory=list)


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
    return Inspection(events, len(trained), len(evaluated), faults)


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
    if not folder.root.is_dir():
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
    if not path.is_file():
        return f"checkpoint {path.name} is gone"
    if check_content and file_hash(path) != expected:
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
