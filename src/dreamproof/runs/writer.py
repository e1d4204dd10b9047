"""What a trainer in Python writes into its run folder. A trainer in any other way may write the same files itself."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dreamproof.base.files import file_hash, sync_folder, write_json
from dreamproof.base.lines import append_rows, truncate_partial_line
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.records import (
    CheckpointRecord,
    CollapseRecord,
    EvaluationRecord,
    FrozenRecord,
    Heartbeat,
    Phase,
    SummaryRecord,
)


class RunWriter:
    """The single writer of one run folder."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._beat = 0
        run.root.mkdir(parents=True, exist_ok=True)
        truncate_partial_line(run.metrics)
        truncate_partial_line(run.collapses)

    def beat(self, agent_steps: int, gradient_steps: int, phase: Phase, **more: Any) -> None:
        """Replaces the heartbeat after some work was done."""
        self._beat += 1
        self.pulse(agent_steps, gradient_steps, phase, **more)

    def pulse(self, agent_steps: int, gradient_steps: int, phase: Phase, **more: Any) -> None:
        """Rewrites the heartbeat without a beat: the process is alive, which does not show progress."""
        self._require_folder()
        heartbeat = Heartbeat(
            agent_steps=agent_steps,
            gradient_steps=gradient_steps,
            phase=phase,
            beat=self._beat,
            process_id=os.getpid(),
            unix_seconds=time.time(),
            **more,
        )
        write_json(self.run.heartbeat, heartbeat.model_dump(), durable=False)

    def _require_folder(self) -> None:
        """A run folder that was moved is not created again: that would split the run in two."""
        if not self.run.root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "the run folder was moved or removed", str(self.run.root))

    def log(self, row: dict[str, Any]) -> None:
        """Appends one row of metrics; it reaches the disk at once."""
        append_rows(self.run.metrics, [row])

    def save(self, fill: Callable[[Path], None], facts: dict[str, Any]) -> CheckpointFolder:
        """Commits a checkpoint: `fill` writes its files into a folder that appears only when whole."""
        self._require_folder()
        target = self.run.checkpoint(facts["agent_steps"])
        partial = self.run.checkpoints / f".partial-{target.root.name}-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        fill(partial)
        names = sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file())
        for name in names:
            with (partial / name).open("rb") as file:
                os.fsync(file.fileno())
        record = CheckpointRecord(files={name: file_hash(partial / name) for name in names}, **facts)
        write_json(partial / target.record.name, record.model_dump())
        if target.root.exists():
            shutil.rmtree(target.root)
        os.replace(partial, target.root)
        sync_folder(self.run.checkpoints)
        return target

    def keep_newest(self, count: int, also: set[int]) -> None:
        """Deletes all but the newest `count` checkpoints and those at the steps in `also`."""
        folders = self.run.checkpoint_folders()
        for folder in folders[: max(0, len(folders) - count)]:
            if folder.agent_steps not in also:
                shutil.rmtree(folder.root)
        for partial in self.run.checkpoints.glob(".partial-*"):
            shutil.rmtree(partial, ignore_errors=True)

    def write_evaluation(self, record: EvaluationRecord) -> None:
        """Replaces the evaluation of one condition."""
        write_json(self.run.evaluation(record.condition), record.model_dump())

    def record_collapse(self, record: CollapseRecord) -> None:
        """Appends a fall of the validation return; it reaches the disk at once."""
        append_rows(self.run.collapses, [record.model_dump()])

    def write_summary(self, record: SummaryRecord) -> None:
        """Replaces the summary of the validation curve."""
        write_json(self.run.summary, record.model_dump())

    def write_frozen(self, record: FrozenRecord) -> None:
        """Records that this replica stopped being finite."""
        write_json(self.run.frozen, record.model_dump())
