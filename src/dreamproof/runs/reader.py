"""Reads run folders that may hold anything, and reports what they prove. No content of a folder raises here."""

import hashlib
import math
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from dreamproof.base.files import (
    FaultKind,
    Unreadable,
    content_hash,
    file_fault,
    list_folder,
    load_json,
    read_file,
    tail_bytes,
)
from dreamproof.base.lines import read_rows
from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import CheckpointFolder, RunFolder, named_agent_steps
from dreamproof.runs.records import (
    CheckpointRecord,
    CollapseRecord,
    EvaluatedCheckpoint,
    EvaluationRecord,
    ExitRecord,
    FrozenRecord,
    Heartbeat,
    Record,
    RunSettings,
    SummaryRecord,
)

Kind = TypeVar("Kind", bound=Record)
READ_NAMES = {path.name for path in RunFolder(Path()).read_files}


def load_record(path: Path, kind: type[Kind]) -> Kind | Unreadable:
    """The record in a file, or why there is none."""
    value = load_json(path)
    if isinstance(value, Unreadable):
        return value
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        return Unreadable(path, printable(f"is not valid: {place}: {first['msg'].lower()}"), FaultKind.MALFORMED)


def load_evaluation(run: RunFolder, condition: str, proof: "EvalProof | None" = None) -> EvaluationRecord | Unreadable:
    """An evaluation, parsed and checked in one pass because a study has thousands of them.

    With `proof`, any other than the proven one is refused. What that pass refuses is read once more for the reason; so
    are escaped characters, which may not be printable.
    """
    path = run.evaluation(condition)
    content = read_file(path)
    found = None
    if isinstance(content, bytes) and b"\\u" not in content:
        with suppress(ValidationError):
            found = EvaluationRecord.model_validate_json(content)
    record = found if found is not None else load_record(path, EvaluationRecord)
    if proof is None or isinstance(record, Unreadable) or isinstance(content, Unreadable):
        return record
    if proof.file_hash is not None:
        is_same = hashlib.sha256(content).hexdigest() == proof.file_hash
    else:
        final = record.checkpoints.get("final")
        is_same = final is not None and final.parameter_hash == proof.parameter_hash and record.condition == condition
    return record if is_same else Unreadable(path, "is not the proven one (hash differs)", FaultKind.MALFORMED)


def _read(path: Path, kind: type[Kind]) -> Kind | None:
    record = load_record(path, kind)
    return None if isinstance(record, Unreadable) else record


def read_settings(run: RunFolder) -> RunSettings | None:
    """What the trainer was given, or None."""
    return _read(run.settings, RunSettings)


def load_heartbeat(run: RunFolder) -> Heartbeat | Unreadable:
    """The newest progress counters, or why there are none."""
    return load_record(run.heartbeat, Heartbeat)


def read_heartbeat(run: RunFolder) -> Heartbeat | None:
    """The newest progress counters, or None."""
    return _read(run.heartbeat, Heartbeat)


def read_exit(path: Path) -> ExitRecord | None:
    """How an attempt's process ended, or None while it has not."""
    return _read(path, ExitRecord)


def read_frozen(run: RunFolder) -> FrozenRecord | None:
    """When this replica stopped being finite, or None."""
    return _read(run.frozen, FrozenRecord)


def read_summary(run: RunFolder) -> SummaryRecord | None:
    """Final, peak and area of the validation curve, or None."""
    return _read(run.summary, SummaryRecord)


def selected_agent_steps(run: RunFolder) -> int | None:
    """The agent steps of the checkpoint that validated best; None if none was selected."""
    chosen = load_json(run.selected)
    steps = chosen.get("agent_steps") if isinstance(chosen, dict) else None
    return steps if isinstance(steps, int) and not isinstance(steps, bool) else None


def read_collapses(run: RunFolder) -> list[CollapseRecord]:
    """Sudden falls of the validation return, oldest first; of a step that was reached twice the later row counts."""
    found = {}
    for row in read_rows(run.collapses):
        try:
            record = CollapseRecord.model_validate(row)
        except ValidationError:
            continue
        found[record.agent_steps] = record
    return [found[steps] for steps in sorted(found)]


def read_checkpoint(folder: CheckpointFolder) -> CheckpointRecord | None:
    """The record of a checkpoint, or None if it is not whole."""
    return _read(folder.record, CheckpointRecord)


def read_evaluation(run: RunFolder, condition: str) -> EvaluationRecord | None:
    """The evaluation of one condition, or None."""
    return _read(run.evaluation(condition), EvaluationRecord)


def run_fault(run: RunFolder, conditions: Iterable[str] = ()) -> Unreadable | None:
    """The first file of a run folder whose content the system does not give; what is absent or torn is no fault."""
    for folder in (run.root, run.checkpoints, run.evaluations):
        entries = list_folder(folder)
        if isinstance(entries, Unreadable) and entries.fault is FaultKind.BLOCKED:
            return entries
    records = [folder.record for folder in run.checkpoint_folders()[-1:]]
    faults = map(file_fault, [*run.read_files, *records, *map(run.evaluation, conditions)])
    return next((fault for fault in faults if fault is not None), None)


def plain_evaluations(run: RunFolder) -> dict[str, int] | None:
    """Sizes of the evaluations by condition, without opening a file; None if not all files are plain ones."""
    try:
        with os.scandir(run.root) as entries:
            if not all(entry.is_file() for entry in entries if entry.name in READ_NAMES):
                return None
        if not os.path.lexists(run.evaluations):
            return {}
        with os.scandir(run.evaluations) as entries:
            found = list(entries)
        if not all(entry.is_file() and os.access(entry.path, os.R_OK) for entry in found):
            return None
        return {entry.name.removesuffix(".json"): entry.stat().st_size for entry in found}
    except OSError:
        return None


def size_of_file(path: Path) -> int | None:
    """Bytes of a file; None if it is not there or not a plain file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def changed_file(path: Path, proven_bytes: int | None) -> Unreadable | None:
    """Why a file of a proof is not the proven one, by its kind and size alone; `verify` compares its content."""
    if not os.path.lexists(path):
        return Unreadable(path, "is gone", FaultKind.ABSENT)
    size = size_of_file(path)
    if size is None or not os.access(path, os.R_OK):
        return file_fault(path)
    if proven_bytes is None or size == proven_bytes:
        return None
    return Unreadable(path, f"has {size:,} bytes; {proven_bytes:,} were proven", FaultKind.MALFORMED)


def changed_record(path: Path, proven_bytes: int | None) -> Unreadable | None:
    """The same of a JSON file; of a proof that names no size, as old ledgers have, the end of the file is read."""
    fault = changed_file(path, proven_bytes)
    if fault is not None or proven_bytes is not None:
        return fault
    end = tail_bytes(path, 16)
    if isinstance(end, Unreadable):
        return end
    return None if end.rstrip().endswith(b"}") else Unreadable(path, "is not a whole record", FaultKind.MALFORMED)


def checkpoint_unreadable(
    folder: CheckpointFolder, check_content: bool = True, needed: str | None = None
) -> Unreadable | None:
    """Why a checkpoint cannot be used, or None if it can; with one file `needed`, the others may be missing."""
    record = load_record(folder.record, CheckpointRecord)
    if isinstance(record, Unreadable):
        return record
    reason = _record_fault(folder, record, needed)
    if reason is not None:
        return Unreadable(folder.record, reason, FaultKind.MALFORMED)
    faults = (_content_fault(folder, name, record.files[name], check_content, needed) for name in record.files)
    return next((fault for fault in faults if fault is not None), None)


def _record_fault(folder: CheckpointFolder, record: CheckpointRecord, needed: str | None) -> str | None:
    named = named_agent_steps(folder.root.name)
    if named is not None and named != record.agent_steps:
        return f"holds {record.agent_steps:,} agent steps, the folder name says {named:,}"
    if not record.files:
        return "names no file"
    if needed is not None and needed not in record.files:
        return f"names no file {needed}"
    return None


def _content_fault(
    folder: CheckpointFolder, name: str, expected: str, check_content: bool, needed: str | None
) -> Unreadable | None:
    path, shown = folder.root / name, printable(name)
    found = content_hash(path) if check_content else _presence(path)
    if isinstance(found, Unreadable):
        optional = found.fault is FaultKind.ABSENT and needed not in (None, name)
        return None if optional else Unreadable(path, f"file {shown} {found.reason}", found.fault)
    if check_content and found != expected:
        return Unreadable(path, f"file {shown} is not what was saved (hash differs)", FaultKind.MALFORMED)
    return None


def _presence(path: Path) -> str | Unreadable:
    fault = file_fault(path)
    if fault is not None:
        return fault
    return "" if path.exists() else Unreadable(path, "is missing", FaultKind.ABSENT)


def checkpoint_fault(folder: CheckpointFolder, check_content: bool = True, needed: str | None = None) -> str | None:
    """The same as text."""
    found = checkpoint_unreadable(folder, check_content, needed)
    if found is None:
        return None
    return f"its {found}" if found.path == folder.record else found.reason


def newest_good_checkpoint(run: RunFolder, needed: str | None = None) -> CheckpointFolder | None:
    """The latest checkpoint whose files are what was saved; with one file `needed`, others may be missing."""
    for folder in reversed(run.checkpoint_folders()):
        if checkpoint_unreadable(folder, needed=needed) is None:
            return folder
    return None


@dataclass(frozen=True)
class TrainProof:
    """Why a cell counts as trained."""

    agent_steps: int
    gradient_steps: int
    parameter_hash: str
    checkpoint: str
    gradient_steps_at_least: bool = False
    """Whether there may have been more: a foreign log shows that updates were made, not how many."""
    proof_bytes: int | None = field(default=None, compare=False)
    """Size of the file that shows it: the record of a checkpoint, or a foreign checkpoint of one file."""

    @property
    def counted_gradient_steps(self) -> int | None:
        """The number of updates where it is known."""
        return None if self.gradient_steps_at_least else self.gradient_steps


class NotFinite(str):
    """A reason why there is no proof: the run was trained to its end, and what it learned is not finite."""


class NotSaved(str):
    """A reason why there is no proof: the run was trained to its end, and no checkpoint holds what it learned."""


def prove_training(
    run: RunFolder, agent_steps: int, check_content: bool = True, task: str | None = None
) -> TrainProof | str:
    """The proof that `agent_steps` of `task` were trained, or the reason why the newest checkpoint is none.

    Any whole checkpoint of enough steps is a proof: one that was left behind with a higher number hides no other.
    """
    listed = list_folder(run.checkpoints)
    if isinstance(listed, Unreadable) and listed.fault is FaultKind.BLOCKED:
        return str(listed)
    reason = ""
    for folder in reversed(run.checkpoint_folders()):
        found = _prove_by(folder, agent_steps, check_content, task)
        if isinstance(found, TrainProof):
            return found
        reason = reason or found
    return reason or "no checkpoint"


def _prove_by(folder: CheckpointFolder, agent_steps: int, check_content: bool, task: str | None) -> TrainProof | str:
    name, record = folder.root.name, load_record(folder.record, CheckpointRecord)
    if isinstance(record, Unreadable):
        return f"checkpoint {name}: its {record}"
    if record.agent_steps < agent_steps:
        return f"checkpoint at {record.agent_steps:,} of {agent_steps:,} agent steps"
    if task is not None and record.task != task:
        return f"checkpoint {name} was trained on '{printable(record.task)}', not on '{task}'"
    if record.gradient_steps <= 0:
        return f"checkpoint {name} was never trained: 0 updates"
    if not record.finite:
        return f"checkpoint {name} holds numbers that are not finite"
    if not record.parameter_hash:
        return f"checkpoint {name} names no parameter hash"
    fault = checkpoint_fault(folder, check_content)
    if fault is not None:
        return f"checkpoint {name}: {fault}"
    return TrainProof(
        record.agent_steps, record.gradient_steps, record.parameter_hash, name, proof_bytes=size_of_file(folder.record)
    )


@dataclass(frozen=True)
class EvalProof:
    """Why an eval cell counts as done; size and hash of its file are not known of proofs before version 0.2."""

    episodes: int
    parameter_hash: str
    file_bytes: int | None = field(default=None, compare=False)
    file_hash: str | None = field(default=None, compare=False)


def prove_evaluation(run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
    """The proof that `condition` was evaluated on the proven checkpoint, or the reason why there is none."""
    record = load_record(run.evaluation(condition), EvaluationRecord)
    if isinstance(record, Unreadable):
        return "no evaluation file" if record.fault is FaultKind.ABSENT else f"evaluation file {record}"
    if record.condition != condition:
        return f"its file is of the condition {printable(record.condition)[:100]}"
    final: EvaluatedCheckpoint | None = record.checkpoints.get("final")
    if final is None:
        return "the evaluation does not hold the final checkpoint"
    if final.gradient_steps <= 0:
        return "the evaluated checkpoint was never trained: 0 updates"
    if final.parameter_hash != parameter_hash:
        made = printable(final.parameter_hash[:12])
        return f"made from checkpoint {made}, the proven one is {parameter_hash[:12]}"
    if final.episode_count < episodes:
        return f"{final.episode_count} of {episodes} episodes"
    path = run.evaluation(condition)
    digest = content_hash(path)
    if isinstance(digest, Unreadable):
        return f"evaluation file {digest}"
    return EvalProof(final.episode_count, final.parameter_hash, size_of_file(path), digest)


def other_evaluation(run: RunFolder, condition: str, proof: EvalProof) -> Unreadable | None:
    """Why the content of an evaluation file is not what was proven; None if it is."""
    path = run.evaluation(condition)
    if proof.file_hash is None:
        found = prove_evaluation(run, condition, proof.episodes, proof.parameter_hash)
        fault = f"is not the proven one: {found}" if isinstance(found, str) else None
        return Unreadable(path, fault, FaultKind.MALFORMED) if fault is not None else None
    digest = content_hash(path)
    if isinstance(digest, Unreadable):
        return digest
    is_same = digest == proof.file_hash
    return None if is_same else Unreadable(path, "is not the proven one (hash differs)", FaultKind.MALFORMED)


def missing_metric(run: RunFolder, condition: str, metric: str) -> str | None:
    """Why an evaluation gives no value of the deciding metric; None if it does."""
    record = load_record(run.evaluation(condition), EvaluationRecord)
    if isinstance(record, Unreadable) or metric in record.checkpoints["final"].scalars:
        return None
    episodes = record.checkpoints["final"].episodes
    if metric not in episodes:
        return f"the evaluation holds {printable(', '.join(episodes))[:200]}, not the deciding metric {metric}"
    wrong = sum(not math.isfinite(value) for value in episodes[metric])
    return f"{metric} is not a number in {wrong} of {len(episodes[metric])} episodes" if wrong else None
