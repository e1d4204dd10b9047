"""W&B offline folders: wandb-summary.json and output.log of the newest run; of the .wandb file only its size."""

import re
from pathlib import Path

from dreamproof.base.files import read_json, read_tail
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series, TrainerFormat, not_finite
from dreamproof.study.adapters.checkpoints import RunSpan, Steps, kept_steps, newest_save, prove_by_checkpoint
from dreamproof.study.adapters.folders import attempt_began, entries, files_below, modified, size_of
from dreamproof.study.adapters.printed import TAIL_BYTES, Line, read_lines, read_pattern
from dreamproof.study.adapters.rows import (
    Row,
    last_training_values,
    latest_values,
    newest_step,
    recorded_seconds,
    step_key,
    updates_seen,
)

RUN_NAME = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-\w+")


def run_folders(root: Path) -> list[Path]:
    """W&B run folders of a run folder, oldest first by the time in their names."""
    found = [
        (name[1], Path(entry.path))
        for folder in (root / "wandb", root)
        for entry in entries(folder)
        if (name := RUN_NAME.fullmatch(entry.name))
    ]
    return [path for _, path in sorted(found)]


def read_summary(folder: Path) -> Row:
    """The last value of every key; empty until W&B writes it, which for an offline run is at its end."""
    value = read_json(folder / "files" / "wandb-summary.json")
    return value if isinstance(value, dict) else {}


class WandbAdapter(FolderAdapter):
    """Steps come from the summary, and before it is written from printed lines."""

    name = "wandb"
    looks_for = "wandb/offline-run-*/files/wandb-summary.json and output.log"
    proves = (
        "steps and finite losses by the last values in the summary (`_step` counts calls of log: it is taken only as "
        "the declared step_key), one update by a loss in it, and the final checkpoint by the step in its name, else by "
        "when it was written; no curves: the .wandb file is not read"
    )

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether there is a W&B run folder."""
        return bool(run_folders(run.root))

    def _summary_steps(self, folder: Path) -> int:
        rows = [read_summary(folder)]
        key = step_key(rows, self.format.step_key)
        return self.format.agent_steps(newest_step(rows, key)) if key is not None else 0

    def _lines(self, folder: Path, output: Path | None) -> list[Line]:
        log = folder / "files" / "output.log"
        text = read_tail(log if size_of(log) or output is None else output, TAIL_BYTES)
        pattern = self.format.line_pattern
        return read_pattern(text, re.compile(pattern)) if pattern else read_lines(text)

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The summary's step or the last printed line; the growing .wandb file shows that it works."""
        folders, saved = run_folders(run.root), newest_save(run.root)
        counters: dict[str, float] = {"checkpoint_time": saved} if saved is not None else {}
        if not folders:
            return Reading(counters=counters)
        counters["wandb_bytes"] = sum(size_of(path) for path in files_below(folders[-1], 1))
        steps = self._summary_steps(folders[-1])
        lines = [] if steps else self._lines(folders[-1], output)
        steps = steps or (self.format.agent_steps(lines[-1].done) if lines else 0)
        if not steps:
            return Reading(counters=counters)
        return Reading(steps, None, "train", counters | {"agent_steps": steps})

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps of the newest checkpoint, by its name or by file times."""
        folders = run_folders(run.root)
        if not folders:
            return kept_steps(run.root)
        return kept_steps(run.root, self.read(run, output).agent_steps, _span(folders[-1], output))

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """Steps of the summary, finite last losses, and a checkpoint of the end."""
        folders = run_folders(run.root)
        if not folders:
            return "no wandb/offline-run-* folder"
        summary = read_summary(folders[-1])
        if not summary:
            return f"{folders[-1].name} has no wandb-summary.json: the run did not call wandb.finish"
        if step_key([summary], self.format.step_key) is None:
            return "wandb-summary.json holds no step; log one (global_step) or declare trainer.step_key, e.g. _step"
        reached = self._summary_steps(folders[-1])
        if reached < agent_steps:
            return f"wandb-summary.json ends at {reached:,} of {agent_steps:,} agent steps"
        fault = not_finite(last_training_values([summary]))
        if fault is not None:
            return fault
        span = _span(folders[-1], output)
        updates = updates_seen([summary])
        return prove_by_checkpoint(run.root, run.root, Steps(agent_steps, reached), updates, span)

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """From the summary once it is written, before that from the last printed line."""
        folders = run_folders(run.root)
        if not folders:
            return {}
        lines = self._lines(folders[-1], output)
        return latest_values([read_summary(folders[-1])]) or (lines[-1].values if lines else {})

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """The last values alone: curves are in the .wandb file, which is not read."""
        folders = run_folders(run.root)
        summary = read_summary(folders[-1]) if folders else {}
        key = step_key([summary], self.format.step_key)
        return _last_values(summary, key, self.format) if key is not None else {}


def _last_values(summary: Row, key: str, trainer_format: TrainerFormat) -> Series:
    step = trainer_format.agent_steps(newest_step([summary], key))
    plain = {
        name: float(value)
        for name, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != key and name[0] != "_"
    }
    return {name: [(step, value)] for name, value in plain.items()}


def _span(folder: Path, output: Path | None) -> RunSpan:
    """The length by the summary, ending when the folder was last written."""
    summary = read_summary(folder)
    times = [time for path in files_below(folder) if (time := modified(path)) is not None]
    ended = max(times, default=0.0)
    recorded = recorded_seconds([summary])
    clock = summary.get("_timestamp")
    last = float(clock) if isinstance(clock, int | float) else None
    started = ended - recorded if recorded else min(times, default=0.0)
    return RunSpan(started, ended, recorded, attempt_began(output), last)
