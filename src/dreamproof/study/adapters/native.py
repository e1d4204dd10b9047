"""The native run folder, as `runs/` describes it."""

import os
from pathlib import Path

from dreamproof.base.files import FaultKind, Unreadable
from dreamproof.base.lines import last_rows, read_rows
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import (
    TrainProof,
    changed_file,
    changed_record,
    checkpoint_fault,
    checkpoint_unreadable,
    load_heartbeat,
    newest_good_checkpoint,
    prove_training,
    read_checkpoint,
)
from dreamproof.runs.records import CheckpointRecord
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series, worth_naming
from dreamproof.study.adapters.folders import modified
from dreamproof.study.adapters.rows import TAIL_BYTES, latest_values, series_of_rows

# While these last no step is made: a beat, written by the loop that works, is the only sign.
BEATING_PHASES = ("start", "evaluate", "save")
STEP_KEY = "agent_steps"


class NativeAdapter(FolderAdapter):
    """Reads heartbeat.json, checkpoints/ and metrics.jsonl."""

    name = "native"
    dumps_stacks = True
    looks_for = "heartbeat.json and checkpoints/step-*/record.json"
    proves = (
        "steps, updates, finite parameters, task and the hash of every file, by the record of a checkpoint "
        "(dreamproof.client writes it from any loop)"
    )

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether there is a heartbeat or a checkpoint with the name of its step."""
        return os.path.lexists(run.heartbeat) or bool(run.checkpoint_folders())

    def change_stamp(self, run: RunFolder) -> tuple[int, int] | None:
        """Time and inode of the heartbeat, which is replaced with every progress."""
        try:
            status = run.heartbeat.stat()
        except (OSError, ValueError):
            return None
        return status.st_mtime_ns, status.st_ino

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """How far training is. A beat alone is no progress: a thread may beat for a loop that hangs."""
        folders = run.checkpoint_folders()
        kept = folders[-1].agent_steps if folders else 0
        beat = load_heartbeat(run)
        if isinstance(beat, Unreadable):
            return Reading(agent_steps=kept, counters={"checkpoint": kept}, fault=worth_naming(beat))
        counters: dict[str, float] = {
            "agent_steps": beat.agent_steps,
            "gradient_steps": beat.gradient_steps,
            "checkpoint": kept,
            "compiles": beat.compiles,
        }
        if beat.phase in BEATING_PHASES:
            counters["beat"] = beat.beat
        return Reading(beat.agent_steps, beat.gradient_steps, beat.phase, counters)

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps of the newest checkpoint whose files are what was saved."""
        folder = newest_good_checkpoint(run)
        return folder.agent_steps if folder is not None else 0

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """When the newest whole checkpoint was committed; its content is not read again for this."""
        for folder in reversed(run.checkpoint_folders()):
            if checkpoint_fault(folder, check_content=False) is None:
                return modified(folder.record)
        return None

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """The proof by the record of a checkpoint and the hash of its files."""
        return prove_training(run, agent_steps, task=task)

    def checkpoint_root(self, run: RunFolder) -> Path:
        """The folder of checkpoints."""
        return run.checkpoints

    def lost_proof(self, run: RunFolder, proof: TrainProof, with_weights: bool = False) -> Unreadable | None:
        """The checkpoint or its record; `with_weights` also the files that the record names."""
        folder = CheckpointFolder(run.checkpoints / proof.checkpoint)
        fault = None if os.path.isdir(folder.root) else changed_file(folder.root, None)
        if fault is None:
            fault = changed_record(folder.record, proof.proof_bytes)
        return checkpoint_unreadable(folder, check_content=False) if fault is None and with_weights else fault

    def changed_proof(self, run: RunFolder, proof: TrainProof, check_content: bool) -> Unreadable | None:
        """A record of other weights; `check_content` also weights that are not those of the record."""
        folder = CheckpointFolder(run.checkpoints / proof.checkpoint)
        record = read_checkpoint(folder)
        if record is not None and record.parameter_hash != proof.parameter_hash:
            return Unreadable(folder.record, "is not the proven one (hash differs)", FaultKind.MALFORMED)
        if record is not None and _other_steps(record, proof):
            return Unreadable(folder.record, "is not the proven one (other steps)", FaultKind.MALFORMED)
        fault = checkpoint_unreadable(folder) if check_content else None
        return fault if fault is not None and fault.fault is FaultKind.MALFORMED else None

    def faulty_checkpoint(self, run: RunFolder) -> tuple[CheckpointFolder, Unreadable] | None:
        """The newest checkpoint and its fault; None if it is good or there is none."""
        folders = run.checkpoint_folders()
        fault = checkpoint_unreadable(folders[-1]) if folders else None
        return (folders[-1], fault) if fault is not None else None

    def proof_fault(self, run: RunFolder, proof: TrainProof, check_content: bool = True) -> str | None:
        """Compares the record of the proven checkpoint, and the hash of its files."""
        folder = CheckpointFolder(run.checkpoints / proof.checkpoint)
        if not os.path.isdir(folder.root):
            return f"checkpoint {proof.checkpoint} is gone"
        fault = checkpoint_fault(folder, check_content)
        if fault is not None:
            return f"checkpoint {proof.checkpoint}: {fault}"
        record = read_checkpoint(folder)
        if record is None or record.parameter_hash != proof.parameter_hash:
            return f"checkpoint {proof.checkpoint} is not the proven one (hash differs)"
        if _other_steps(record, proof):
            return f"checkpoint {proof.checkpoint} has other steps than the ledger"
        return None

    def code_hash(self, run: RunFolder, checkpoint: str) -> str | None:
        """From the record of the checkpoint."""
        record = read_checkpoint(CheckpointFolder(run.checkpoints / checkpoint))
        return record.code_hash or None if record is not None else None

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """From the last rows of metrics.jsonl."""
        return latest_values(list(last_rows(run.metrics, TAIL_BYTES)))

    def growing_log(self, run: RunFolder) -> tuple[Path, str] | None:
        """metrics.jsonl."""
        return run.metrics, STEP_KEY

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every number in metrics.jsonl over agent steps."""
        return series_of_rows(list(read_rows(run.metrics)), STEP_KEY)


def _other_steps(record: CheckpointRecord, proof: TrainProof) -> bool:
    return record.agent_steps < proof.agent_steps or record.gradient_steps != proof.gradient_steps
