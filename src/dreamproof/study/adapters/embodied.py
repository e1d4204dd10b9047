"""embodied/Dreamer log folders: metrics.jsonl is written by a clock of seconds, so replay chunks are the progress."""

import functools
import itertools
import math
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dreamproof.base.files import Unreadable, read_file
from dreamproof.base.lines import last_rows
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series, TrainerFormat, step_count
from dreamproof.study.adapters.checkpoints import RunSpan, Steps, find_checkpoints, newest_save
from dreamproof.study.adapters.folders import CLOCK_SECONDS, attempt_began, entries, modified, size_of
from dreamproof.study.adapters.rows import (
    TAIL_BYTES,
    WHOLE_BYTES,
    latest_values,
    newest_step,
    prove_by_rows,
    recorded_seconds,
    series_of_rows,
)

CHUNK = re.compile(r"^([0-9]{8}T[0-9]{6})(?:F[0-9]+)?-.+-([0-9]{1,9})\.npz$")
CONFIG_BYTES = 1 << 20
# The chunk being filled is not on disk yet: a finished run may lack so much at its end, but never a large part of it.
LARGEST_CHUNK = 1024
LARGEST_CHUNK_FRACTION = 0.02
LOG_FILES = ("metrics.jsonl", "config.yaml", "replay", "checkpoint.ckpt", "ckpt")


@dataclass(frozen=True)
class Chunks:
    """The replay of a run by its file names."""

    count: int = 0
    agent_steps: int = 0
    first_name: str = ""
    last_name: str = ""

    @property
    def named_seconds(self) -> float:
        """Seconds between the first and the last chunk by their names."""
        if not self.count:
            return 0.0
        try:
            first, last = (datetime.strptime(name, "%Y%m%dT%H%M%S") for name in (self.first_name, self.last_name))
        except ValueError:  # digits that are no date
            return 0.0
        return (last.replace(tzinfo=UTC) - first.replace(tzinfo=UTC)).total_seconds()


def read_chunks(folder: Path) -> Chunks:
    """Counts the chunks of one replay folder by name alone; none if there is no folder."""
    count, steps, names = 0, 0, []
    try:
        with os.scandir(folder) as chunks:
            for entry in chunks:
                found = CHUNK.match(entry.name)
                if found:
                    count, steps = count + 1, steps + int(found[2])
                    names.append(found[1])
    except (OSError, ValueError):
        return Chunks()
    return Chunks(count, steps, min(names, default=""), max(names, default=""))


def log_folders(root: Path) -> list[Path]:
    """Folders that hold a log of embodied, oldest first: the run folder, or folders in it that the trainer named."""
    inner = [Path(entry.path) for entry in entries(root) if os.path.isdir(entry.path) and entry.name not in LOG_FILES]
    found = [folder for folder in (root, *inner) if any(os.path.lexists(folder / name) for name in LOG_FILES)]
    return sorted(found, key=lambda folder: (_last_written(folder), folder))


def _last_written(folder: Path) -> float:
    return max((modified(folder / name) or 0.0 for name in LOG_FILES), default=0.0)


def log_folder(root: Path, output: Path | None) -> Path | None:
    """The newest log folder; of an attempt, the one that it created or continued."""
    began = attempt_began(output)
    folder = next(iter(reversed(log_folders(root))), None)
    if folder is None or began is None or _last_written(folder) >= began - CLOCK_SECONDS:
        return folder
    return None


@dataclass(frozen=True)
class EmbodiedConfig:
    """What the config.yaml that embodied writes next to its logs says; None for what it does not."""

    action_repeat: int | None = None
    """Simulator steps per agent step."""
    save_seconds: float | None = None


def read_config(root: Path) -> EmbodiedConfig:
    """The config.yaml of a log folder; empty if there is none."""
    path = root / "config.yaml"
    return _read_config(path, modified(path))


@functools.lru_cache(maxsize=1024)
def _read_config(path: Path, written: float | None) -> EmbodiedConfig:
    """Reads a config once for each time it was written: parsing costs more than a whole look at a run."""
    content = read_file(path, CONFIG_BYTES)
    if isinstance(content, Unreadable) or b"<<" in content:  # merged mappings may unfold without end
        return EmbodiedConfig()
    try:
        config: Any = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError):
        return EmbodiedConfig()
    return EmbodiedConfig(_repeat(config), _save_seconds(config))


def _repeat(config: Any) -> int | None:
    try:
        return step_count(config["env"][config["task"].split("_", 1)[0]]["repeat"]) or None
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _save_seconds(config: Any) -> float | None:
    try:
        return float(config["run"]["save_every"]) or None
    except (LookupError, TypeError, ValueError):
        return None


class EmbodiedAdapter(FolderAdapter):
    """Reads replay/, metrics.jsonl and checkpoints; a checkpoint is a pickle and is never loaded."""

    name = "embodied"
    looks_for = "replay/*-LENGTH.npz, metrics.jsonl and checkpoint.ckpt or ckpt/, in the run folder or a folder in it"
    proves = (
        "steps by replay chunks and metrics, updates and finite losses by metrics, and the final checkpoint by the "
        "step in it, else by when it was written; the hash is that of checkpoint.ckpt or of the whole checkpoint folder"
    )

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether there are replay chunks or a checkpoint.ckpt."""
        return any(
            read_chunks(folder / "replay").count or os.path.exists(folder / "checkpoint.ckpt")
            for folder in log_folders(run.root)
        )

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """Replay chunks show how far it is; the metrics' step only corroborates."""
        root = log_folder(run.root, output)
        return _read(root) if root is not None else Reading(counters={"replay_chunks": 0.0})

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """The step in the newest checkpoint; else steps of the chunks that were on disk when it was written."""
        root = log_folder(run.root, None)
        found = find_checkpoints(root) if root is not None else []
        if root is None or not found:
            return 0
        if found[-1].agent_steps is not None:
            return found[-1].agent_steps
        kept = 0
        for entry in entries(root / "replay"):
            chunk = CHUNK.match(entry.name)
            if chunk and (modified(Path(entry.path)) or math.inf) <= found[-1].modified_unix_seconds:
                kept += int(chunk[2])
        return kept

    def save_seconds(self, run: RunFolder) -> float | None:
        """run.save_every, which counts seconds."""
        root = log_folder(run.root, None)
        return read_config(root).save_seconds if root is not None else None

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """By the first log folder that proves it, newest first; else why the newest does not."""
        if not os.path.isdir(run.root):
            return "the folder does not exist"
        folders = list(reversed(log_folders(run.root))) or [run.root]
        found = [_prove(run, folder, agent_steps, output) for folder in folders]
        return next((one for one in found if isinstance(one, TrainProof)), found[0])

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """From the last rows of metrics.jsonl."""
        root = log_folder(run.root, output)
        return latest_values(list(last_rows(root / "metrics.jsonl", TAIL_BYTES))) if root is not None else {}

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every number of metrics.jsonl over agent steps."""
        root = log_folder(run.root, None)
        if root is None:
            return {}
        scale = TrainerFormat(steps_per_count=1 / (read_config(root).action_repeat or 1))
        return series_of_rows(list(last_rows(root / "metrics.jsonl", WHOLE_BYTES)), "step", scale)


def _read(root: Path) -> Reading:
    chunks, seen = read_chunks(root / "replay"), read_chunks(root / "eval_replay")
    metrics = root / "metrics.jsonl"
    repeat = read_config(root).action_repeat
    logged = newest_step(list(last_rows(metrics, TAIL_BYTES)), "step") // (repeat or 1)
    # Logged steps count simulator steps: without a known repeat they are taken only if there are no chunks.
    steps = max(chunks.agent_steps, logged) if repeat or not chunks.count else chunks.agent_steps
    if not steps:
        return Reading(counters={"replay_chunks": 0.0})
    counters: dict[str, float] = {
        "agent_steps": steps,
        "replay_chunks": chunks.count,
        "eval_replay_steps": seen.agent_steps,
        "metrics_bytes": size_of(metrics),
        "checkpoint_time": newest_save(root) or 0.0,
    }
    return Reading(steps, None, "train", counters)


def _prove(run: RunFolder, root: Path, agent_steps: int, output: Path | None) -> TrainProof | str:
    rows = list(last_rows(root / "metrics.jsonl", WHOLE_BYTES))
    saved = max((one.agent_steps or 0 for one in find_checkpoints(root)), default=0)
    reached = max(_read(root).agent_steps, saved)
    if reached + min(LARGEST_CHUNK, LARGEST_CHUNK_FRACTION * agent_steps) < agent_steps:
        return f"replay and metrics show {reached:,} of {agent_steps:,} agent steps"
    logged = _logged_at_most(rows) // (read_config(root).action_repeat or 1)
    if max(logged, saved) < agent_steps:
        return f"metrics.jsonl ends before {agent_steps:,} agent steps: its next row would have come at {logged:,}"
    return prove_by_rows(run, root, rows, Steps(agent_steps, max(reached, agent_steps)), _span(root, rows, output))


def _logged_at_most(rows: list[dict[str, object]]) -> int:
    """The step that a run can have reached without one more row: the last row's and the longest step between rows.

    Replay chunks alone would count twice what a resumed run did again.
    """
    steps = [value for row in rows if (value := step_count(row.get("step"))) is not None]
    longest = max((after - before for before, after in itertools.pairwise(steps)), default=0)
    return newest_step(rows, "step") + max(0, longest)


def _span(root: Path, rows: list[dict[str, object]], output: Path | None) -> RunSpan:
    """When the run began and last wrote, by the times of its replay, its metrics and its config."""
    chunks = [Path(entry.path) for entry in entries(root / "replay") if entry.name.endswith(".npz")]
    paths = [root / "metrics.jsonl", root / "config.yaml", *chunks]
    times = [time for path in paths if (time := modified(path)) is not None]
    recorded = max(recorded_seconds(rows) or 0.0, read_chunks(root / "replay").named_seconds)
    first, last = min(times, default=0.0), max(times, default=0.0)
    return RunSpan(first, last, recorded or None, attempt_began(output), file_times=(first, last))
