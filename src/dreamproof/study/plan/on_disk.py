"""What the run folders show now of cells that the ledger knows: unreadable files and proofs that are gone."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.files import FaultKind, Unreadable, list_folder, real_path
from dreamproof.base.safe_text import printable
from dreamproof.base.text import quoted
from dreamproof.runs.layout import Cell
from dreamproof.runs.reader import changed_record, other_evaluation, plain_evaluations, read_settings, run_fault
from dreamproof.runs.records import RunSettings
from dreamproof.study.ledger.chain import lost_end
from dreamproof.study.ledger.facts import EvalCell
from dreamproof.study.plan.commands import run_settings
from dreamproof.study.plan.open_study import OpenStudy, open_study


def cell_fault(opened: OpenStudy, cell: Cell) -> Unreadable | None:
    """The first file of a cell's run folder that cannot be read, or of its proof that is gone; None if none is."""
    names = [condition.name for condition in opened.study.conditions]
    return misplaced(opened, cell) or run_fault(opened.run(cell), names) or proof_gone(opened, cell)


def misplaced(opened: OpenStudy, cell: Cell) -> Unreadable | None:
    """Why a cell's run folder is not its own: it leads into the folder of another cell, or holds another's settings.

    Nothing is written to such a folder, and nothing in it proves the cell.
    """
    run, known = opened.run(cell), opened.state.known_cell(str(cell))
    if run != opened.folder.run(cell):  # imported
        return None
    places = [run.root, run.checkpoints, run.evaluations]
    if known.proof is not None:
        places.append(opened.adapter(cell).checkpoint_root(run) / known.proof.checkpoint)
    linked = next((place for place in places if _leads_to_another(opened, cell, place)), None)
    if linked is not None:
        return Unreadable(linked, "is a symbolic link into the run folder of another cell", FaultKind.BLOCKED)
    found, is_new = read_settings(run), known.proof is None and not known.attempts
    if found is None and is_new and run.checkpoint_folders():
        reason = "holds checkpoints, and no settings.json shows that they are of this cell"
        return Unreadable(run.checkpoints, reason, FaultKind.BLOCKED)
    if found is None:
        return None
    if Cell(found.arm, found.seed) != cell:
        return Unreadable(run.settings, f"is that of {found.arm}/{found.seed}", FaultKind.BLOCKED)
    if is_new and other_work(opened, cell, found):
        return Unreadable(run.settings, "names another task or other settings than the study", FaultKind.BLOCKED)
    return None


def _leads_to_another(opened: OpenStudy, cell: Cell, place: Path) -> bool:
    if not os.path.islink(place):
        return False
    runs, target = real_path(opened.folder.runs), real_path(place)
    return target.is_relative_to(runs) and not target.is_relative_to(runs / opened.folder.run(cell).root.name)


def other_work(opened: OpenStudy, cell: Cell, found: RunSettings) -> bool:
    """Whether the settings of a run are those of another task, or others than the study declares for a cell."""
    declared = run_settings(opened.study, cell)
    return (found.task, found.settings) != (declared.task, declared.model_dump(mode="json")["settings"])


def proof_gone(opened: OpenStudy, cell: Cell) -> Unreadable | None:
    """Why what proved a cell is not there: a file is gone, or the record is that of another checkpoint."""
    proof = opened.state.known_cell(str(cell)).proof
    if proof is None:
        return None
    lost = lost_proof(opened, cell, lacks_evaluation(opened, cell))
    return lost or opened.adapter(cell).changed_proof(opened.run(cell), proof, check_content=False)


def other_checkpoint(opened: OpenStudy, cell: Cell) -> Unreadable | None:
    """Why the folder of a proven cell, or the record of its checkpoint, is that of another; None if it is not."""
    proof = opened.state.known_cell(str(cell)).proof
    if proof is None:
        return None
    changed = opened.adapter(cell).changed_proof(opened.run(cell), proof, check_content=False)
    return misplaced(opened, cell) or changed


def lost_proof(opened: OpenStudy, cell: Cell, with_weights: bool = False) -> Unreadable | None:
    """What proved a cell, if it is no longer on disk; a quick look, `verify` reads every byte.

    An export holds no checkpoints of other trainers.
    """
    proof = opened.state.known_cell(str(cell)).proof
    if proof is None:
        return None
    fault = opened.adapter(cell).lost_proof(opened.run(cell), proof, with_weights)
    return None if fault is not None and fault.fault is FaultKind.ABSENT and opened.folder.is_export else fault


def lacks_evaluation(opened: OpenStudy, cell: Cell) -> bool:
    """Whether the weights of a cell are still needed."""
    evals = (opened.state.eval_cells.get((cell, condition.name)) for condition in opened.study.conditions)
    return any(known is not None and known.proof is None for known in evals)


@dataclass(frozen=True)
class DiskFaults:
    """What does not hold of the ledger's claims at a quick look at names and kinds of files."""

    cells: dict[Cell, Unreadable] = field(default_factory=dict)
    """A file that cannot be read or that proved the cell and is gone."""
    evals: dict[EvalCell, Unreadable] = field(default_factory=dict)
    """Evaluations of other cells whose file is gone or not the proven one: they can be made again."""


def disk_faults(opened: OpenStudy, for_work: bool = False) -> DiskFaults:
    """Looks at the run folders of all declared cells that were ever worked on.

    for_work: before and after work on the study, records and evaluations are read and compared with what was proven,
    and weights must be there where an evaluation is missing.
    """
    if not os.path.isdir(opened.folder.runs) and opened.folder.archive.is_file():
        return DiskFaults()
    found = DiskFaults()
    for cell, known in opened.state.cells.items():
        if known.proof is None and not known.attempts:
            continue
        run = opened.run(cell)
        plain = plain_evaluations(run)
        is_quick = plain is not None and known.proof is not None
        if is_quick:
            fault = misplaced(opened, cell) or proof_gone(opened, cell) if for_work else lost_proof(opened, cell)
        else:
            fault = cell_fault(opened, cell)
        if fault is not None:
            found.cells[cell] = fault
            continue
        for condition in opened.study.conditions:
            name = condition.name
            proof = opened.state.eval_cells[cell, name].proof
            if proof is None:
                continue
            is_plain = plain is not None and name in plain and proof.file_bytes == plain[name]
            changed = None if is_plain else changed_record(run.evaluation(name), proof.file_bytes)
            if changed is None and for_work:
                changed = other_evaluation(run, name, proof)
            if changed is not None:
                found.evals[cell, name] = changed
    return found


def lost_values(opened: OpenStudy) -> dict[str, Unreadable]:
    """Proven evaluations, or whole cells that cannot be read, whose values a report cannot have; named for people."""
    found = disk_faults(opened, for_work=True)
    lost = {f"{cell} under {condition}": fault for (cell, condition), fault in found.evals.items()}
    for cell, fault in found.cells.items():
        if fault.fault is FaultKind.BLOCKED:
            lost[str(cell)] = fault
            continue
        for condition in opened.study.conditions:
            proof = opened.state.eval_cells[cell, condition.name].proof
            path = opened.run(cell).evaluation(condition.name)
            changed = changed_record(path, proof.file_bytes) if proof is not None else None
            if changed is not None:
                lost[f"{cell} under {condition.name}"] = changed
    return lost


def require_values(opened: OpenStudy) -> None:
    """Raises BrokenEvidence if proven values are in no report because their files are gone or changed."""
    lost = lost_values(opened)
    if lost:
        first, fault = next(iter(lost.items()))
        raise BrokenEvidence(
            f"the reports lack {len(lost)} proven value(s), first {first}: {fault_text(opened, fault)}",
            f"dreamproof verify {quoted(opened.named)}",
        )


def require_ledger(opened: OpenStudy) -> None:
    """Raises BrokenEvidence if the end of the ledger is lost, or if this is another ledger than was written."""
    cut = lost_end(opened.folder.ledger, opened.state.event_count, thorough=True) or _forgotten_attempt(opened)
    if cut is not None:
        raise BrokenEvidence(
            f"{opened.folder.ledger}: {cut}",
            f"restore it from a copy, or dreamproof run {quoted(opened.named)} "
            "(it takes in what the run folders prove)",
        )


def _forgotten_attempt(opened: OpenStudy) -> str | None:
    """An attempt that ran and is not in the ledger: its start is recorded before its process is started.

    A job that a cluster started again (`a000001r1`) is recorded later.
    """
    entries = list_folder(opened.folder.attempts)
    names = [] if isinstance(entries, Unreadable) else sorted(entry.name for entry in entries)
    for name in names:
        ran = "r" not in name and os.path.lexists(opened.folder.attempt(name).exit)
        if ran and name not in opened.state.attempts:
            return f"attempt {printable(name)} ran and is not in it: its end was lost or cut off"
    return None


def open_with_disk(place: Path, numbers_only: bool = False) -> OpenStudy:
    """The study that a person names, as the ledger and the disk show it; for verbs that only look."""
    return show_disk(open_study(place, numbers_only))


def show_disk(opened: OpenStudy) -> OpenStudy:
    """Lays what the disk shows over the state that was read from the ledger; the ledger is not changed."""
    found = disk_faults(opened)
    opened.state.unreadable = {str(cell): fault_text(opened, fault) for cell, fault in found.cells.items()}
    opened.state.lost_evals = {(str(cell), condition) for cell, condition in found.evals}
    return opened


def fault_text(opened: OpenStudy, fault: Unreadable) -> str:
    """File and reason, as the study folder sees them."""
    return f"{printable(opened.folder.relative(fault.path))} {printable(fault.reason)}"
