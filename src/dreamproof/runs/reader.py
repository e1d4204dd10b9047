"""Reads run folders that may be half written, and says what they prove."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from dreamproof.base.files import file_hash, read_json
from dreamproof.base.lines import read_rows
from dreamproof.runs.layout import CheckpointFolder, RunFolder
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


def _read(path: Path, kind: type[Kind]) -> Kind | None:
    value = read_json(path)
    if value is None:
        return None
    try:
        return kind.model_validate(value)
    except ValidationError:
        return None


def read_settings(run: RunFolder) -> RunSettings | None:
    """What the trainer was told, or None."""
    return _read(run.settings, RunSettings)


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
    """Where the checkpoint lies that validated best; None where none was selected."""
    chosen = read_json(run.selected)
    return int(chosen["agent_steps"]) if chosen else None


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
    """The record of a checkpoint, or None where it is not whole."""
    return _read(folder.record, CheckpointRecord)


def read_evaluation(run: RunFolder, condition: str) -> EvaluationRecord | None:
    """The evaluation of one condition, or None."""
    return _read(run.evaluation(condition), EvaluationRecord)


def checkpoint_fault(folder: CheckpointFolder, check_content: bool = True, needed: str | None = None) -> str | None:
    """Why a checkpoint cannot be used, or None where it can; with one file `needed`, the others may be missing."""
    record = read_checkpoint(folder)
    if record is None:
        return f"{folder.record.name} is missing or not readable"
    if not record.files:
        return "its record names no file"
    if needed is not None and needed not in record.files:
        return f"its record names no file {needed}"
    for name, expected in record.files.items():
        path = folder.root / name
        if not path.is_file():
            if needed in (None, name):
                return f"file {name} is missing"
        elif check_content and file_hash(path) != expected:
            return f"file {name} is not what was saved (hash differs)"
    return None


def newest_good_checkpoint(run: RunFolder, needed: str | None = None) -> CheckpointFolder | None:
    """The latest checkpoint whose files are what was saved; with one file `needed`, others may be missing."""
    for folder in reversed(run.checkpoint_folders()):
        if checkpoint_fault(folder, needed=needed) is None:
            return folder
    return None


@dataclass(frozen=True)
class TrainProof:
    """Why a cell counts as trained."""

    agent_steps: int
    gradient_steps: int
    parameter_hash: str
    checkpoint: str


def prove_training(run: RunFolder, agent_steps: int, check_content: bool = True) -> TrainProof | str:
    """The proof that `agent_steps` were trained, or the reason why there is none."""
    folders = run.checkpoint_folders()
    if not folders:
        return "no checkpoint"
    folder = folders[-1]
    fault = checkpoint_fault(folder, check_content)
    record = read_checkpoint(folder)
    if fault is not None or record is None:
        return f"checkpoint {folder.root.name}: {fault}"
    if record.agent_steps < agent_steps:
        return f"checkpoint at {record.agent_steps:,} of {agent_steps:,} agent steps"
    if record.gradient_steps <= 0:
        return f"checkpoint {folder.root.name} was never trained: 0 updates"
    if not record.finite:
        return f"checkpoint {folder.root.name} holds numbers that are not finite"
    if not record.parameter_hash:
        return f"checkpoint {folder.root.name} names no parameter hash"
    return TrainProof(record.agent_steps, record.gradient_steps, record.parameter_hash, folder.root.name)


@dataclass(frozen=True)
class EvalProof:
    """Why an eval cell counts as done."""

    episodes: int
    parameter_hash: str


def prove_evaluation(run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
    """The proof that `condition` was evaluated on the proven checkpoint, or the reason why there is none."""
    record = read_evaluation(run, condition)
    if record is None:
        return "no evaluation file"
    final: EvaluatedCheckpoint | None = record.checkpoints.get("final")
    if final is None:
        return "the evaluation does not hold the final checkpoint"
    if final.gradient_steps <= 0:
        return "the evaluated checkpoint was never trained: 0 updates"
    if final.parameter_hash != parameter_hash:
        return f"made from checkpoint {final.parameter_hash[:12]}, the proven one is {parameter_hash[:12]}"
    if final.episode_count < episodes:
        return f"{final.episode_count} of {episodes} episodes"
    return EvalProof(final.episode_count, final.parameter_hash)
