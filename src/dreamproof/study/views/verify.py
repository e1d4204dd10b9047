"""Checks chain, files, hashes and proofs of a study, and names what is broken, first things first."""

from dataclasses import dataclass, field
from enum import StrEnum

from dreamproof.base.errors import BrokenEvidence, DreamproofError
from dreamproof.base.files import FaultKind, Unreadable, list_folder
from dreamproof.base.text import count_text
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.reader import checkpoint_fault, load_evaluation, read_settings, run_fault
from dreamproof.runs.resolved import NOT_STORED, read_resolved, resolved_fault
from dreamproof.runs.sources import different_sources, read_sources
from dreamproof.settings.study_file import read_study
from dreamproof.study.attempts.launch import orphaned_events
from dreamproof.study.ledger.cells import CellState, EvalState
from dreamproof.study.ledger.chain import Head, checked_rows, head_fault, read_head
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.on_disk import fault_text, lost_proof
from dreamproof.study.plan.open_study import OpenStudy, with_added_seeds
from dreamproof.study.views.exported import check_list


class FaultOf(StrEnum):
    """What a fault concerns, which decides what repairs it."""

    CHAIN = "chain"
    """The ledger was edited, or is another one: nothing is started on it."""
    LEDGER = "ledger"
    """The end of the ledger is lost: `run` takes in what the run folders prove."""
    EXPORT = "export"
    DECLARATION = "declaration"
    CHECKPOINT = "checkpoint"
    FILE = "file"
    """Another file of a run folder cannot be read."""
    RECORD = "record"
    """Settings, code or sources of a cell are not those on record."""
    EVALUATION = "evaluation"


@dataclass(frozen=True)
class Inspection:
    """What was checked and what does not hold, in the order in which it was found."""

    events: int = 0
    train_proofs: int = 0
    eval_proofs: int = 0
    faults: list[str] = field(default_factory=list)
    kind: FaultOf | None = None
    """What the first fault concerns."""
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
    head = read_head(opened.folder.ledger_head)
    changed, export_notes = check_list(opened.folder, check_content)
    trained = [cell for cell in opened.state.cells.values() if cell.proof is not None]
    evaluated = [known for known in opened.state.eval_cells.values() if known.proof is not None]
    pairs = [(FaultOf.CHAIN, broken)] if broken is not None else _head_faults(opened, head, events)
    pairs += [(FaultOf.LEDGER, text) for text in _forgotten(opened)]
    pairs += [(FaultOf.EXPORT, text) for text in changed]
    pairs += [(FaultOf.DECLARATION, fault)] if (fault := declaration_fault(opened)) is not None else []
    pairs += _train_faults(opened, trained, check_content)
    started = {cell.cell: read_sources(opened.run(cell.cell)) for cell in trained}
    pairs += [(FaultOf.RECORD, str(other)) for other in different_sources(started)]
    pairs += [
        (FaultOf.EVALUATION, f"{known.cell} under {known.condition}: {fault}")
        for known in evaluated
        if (fault := eval_fault(opened, known)) is not None
    ]
    notes = [*export_notes, *_notes(opened, head), *identity_notes(opened.state)]
    kind = pairs[0][0] if pairs else None
    return Inspection(events, len(trained), len(evaluated), [text for _, text in pairs], kind, notes)


def _head_faults(opened: OpenStudy, head: Head | Unreadable, events: int) -> list[tuple[FaultOf, str]]:
    """What a whole chain lacks of what its head recorded; another ledger is nothing that `run` repairs."""
    cut = head_fault(opened.folder.ledger, head) if isinstance(head, Head) else None
    if cut is None:
        return []
    kind = FaultOf.LEDGER if isinstance(head, Head) and events < head.number else FaultOf.CHAIN
    return [(kind, f"{opened.folder.ledger}: {cut}")]


def _forgotten(opened: OpenStudy) -> list[str]:
    """Attempts that ran and are not in the ledger."""
    return [
        f"attempt {event.attempt} is on disk but not in the ledger: lines at its end were lost or removed"
        for event in orphaned_events(opened.state, opened.folder)
    ]


def _train_faults(opened: OpenStudy, trained: list[CellState], check_content: bool) -> list[tuple[FaultOf, str]]:
    """The first fault of every proven cell, evaluations aside."""
    found = [(cell.cell, _train_fault(opened, cell, check_content)) for cell in trained]
    return [(fault[0], f"{cell}: {fault[1]}") for cell, fault in found if fault is not None]


def _train_fault(opened: OpenStudy, cell: CellState, check_content: bool) -> tuple[FaultOf, str] | None:
    if (fault := train_fault(opened, cell, check_content)) is not None:
        return FaultOf.CHECKPOINT, fault
    if (fault := identity_fault(opened, cell)) is not None:
        return FaultOf.RECORD, fault
    fault = _file_fault(opened, cell)
    return (FaultOf.FILE, fault) if fault is not None else None


def declaration_fault(opened: OpenStudy) -> str | None:
    """Why the study file inside the study folder is not what the ledger records; None if it is.

    The file that a person edits lies elsewhere and may be ahead of the ledger.
    """
    place, known = opened.folder.declaration, opened.state.understood_hash
    if known is None:
        return None
    try:
        found = with_added_seeds(read_study(place), opened.state).hash()
        return None if found == known else f"{place}: is not the declaration that was recorded"
    except DreamproofError as error:
        return error.seen


def _file_fault(opened: OpenStudy, cell: CellState) -> str | None:
    """A file of a proven cell that cannot be read, evaluations aside: they are checked one by one."""
    fault = run_fault(opened.run(cell.cell))
    return fault_text(opened, fault) if fault is not None else None


def _notes(opened: OpenStudy, head: Head | Unreadable) -> list[str]:
    notes = list(opened.state.shortened)
    if isinstance(head, Unreadable) and opened.state.event_count and not opened.folder.is_export:
        notes.append(f"{head}, so missing lines at the end of the ledger cannot be detected")
    notes += [
        f"{cell.cell} is quarantined: {why}"
        for cell in opened.state.known_cells().values()
        if (why := opened.state.quarantine(cell)) is not None
    ]
    return notes


def identity_fault(opened: OpenStudy, cell: CellState) -> str | None:
    """Why settings and code of a proven cell are not those on record; None if they are or none are recorded."""
    if cell.resolved_hash is None or cell.source is not None:
        return None
    run = opened.run(cell.cell)
    record = read_resolved(run)
    if record is None:
        return f"{run.resolved.name} is gone or cannot be read; the ledger names settings {cell.resolved_hash[:12]}"
    fault = resolved_fault(run)
    if fault is not None:
        return fault
    if record.hash != cell.resolved_hash:
        return f"{run.resolved.name} is not the one that was recorded (hash differs)"
    return _code_fault(opened, cell)


def _code_fault(opened: OpenStudy, cell: CellState) -> str | None:
    """Our own trainers write the hash of their code into every checkpoint."""
    proof, codes = cell.proof, opened.state.codes
    trained_by = opened.adapter(cell.cell).code_hash(opened.run(cell.cell), proof.checkpoint) if proof else None
    if proof is None or trained_by is None or cell.code_hash is None:
        return None
    if first_of(codes, trained_by) == first_of(codes, cell.code_hash):
        return None
    return f"checkpoint {proof.checkpoint} was trained by other code ({trained_by[:12]}) than the ledger records"


def first_of(codes: dict[str, Row], code_hash: str) -> str:
    """The first code that this one equals but for comments and layout."""
    seen = {code_hash}
    while (before := codes.get(code_hash, {}).get("same_as")) is not None and before not in seen:
        seen.add(before)
        code_hash = before
    return code_hash


def identity_notes(state: StudyState) -> list[str]:
    """Accepted changes of settings or code, and how many cells are older than their record."""
    notes = [
        f"changed {row['what']} accepted ({row['flag']}): {'; '.join(row['changes'][:3])}"
        + (f"; and {len(row['changes']) - 3} more" if len(row["changes"]) > 3 else "")
        for row in state.accepted
    ]
    old = [cell for cell in state.cells.values() if cell.proof and cell.attempts and cell.resolved_hash is None]
    return notes + ([f"{count_text(len(old), 'cell')} {NOT_STORED}"] if old else [])


def verify_run(run: RunFolder) -> list[str]:
    """What does not hold in a run folder, from its files alone: settings, and every checkpoint."""
    faults = [] if read_settings(run) is not None else [f"{run.settings.name} is missing or cannot be read"]
    fault = resolved_fault(run)
    faults += [fault] if fault is not None else []
    unreadable = run_fault(run)
    faults += [str(unreadable)] if unreadable is not None else []
    found = [(folder.root.name, checkpoint_fault(folder)) for folder in run.checkpoint_folders()]
    faults += [f"checkpoint {name}: {fault}" for name, fault in found if fault is not None]
    return faults + _evaluation_faults(run)


def _evaluation_faults(run: RunFolder) -> list[str]:
    entries = list_folder(run.evaluations)
    if isinstance(entries, Unreadable):
        return [] if entries.fault is FaultKind.ABSENT else [str(entries)]
    names = [entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")]
    found = [load_evaluation(run, name) for name in names]
    return [f"evaluation {fault}" for fault in found if isinstance(fault, Unreadable)]


def train_fault(opened: OpenStudy, cell: CellState, check_content: bool = True) -> str | None:
    """Why a cell's proof does not hold on disk; None if it does."""
    if cell.proof is None:
        return "no proof is on record"
    adapter, run = opened.adapter(cell.cell), opened.run(cell.cell)
    if opened.folder.is_export:  # holds records without the weights that they name
        fault = lost_proof(opened, cell.cell)
        return fault_text(opened, fault) if fault is not None else None
    return adapter.proof_fault(run, cell.proof, check_content)


def eval_fault(opened: OpenStudy, known: EvalState) -> str | None:
    """Why an eval cell's proof does not hold on disk; None if it does."""
    if known.proof is None:
        return "no proof is on record"
    cell: Cell = known.cell
    found = opened.adapter(cell).prove_evaluation(
        opened.run(cell), known.condition, known.proof.episodes, known.proof.parameter_hash
    )
    if isinstance(found, str):
        return found
    changed = known.proof.file_hash not in (None, found.file_hash)
    return "its file is not the one that was proven (hash differs)" if changed else None
