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
from dreamproof.study.adapters.api import (
    FolderAdapter,
    Reading,
    Series,
    entries,
    modified,
    newest_weights,
    size_of,
    step_count,
)
from dreamproof.study.adapters.jsonl import TAIL_BYTES, WHOLE_BYTES, newest_step, prove_by_rows
from dreamproof.study.adapters.native import series_of_rows

CHUNK = re.compile(r"^([0-9]{8}T[0-9]{6})(?:F[0-9]+)?-.+-([0-9]{1,9})\.npz$")
CONFIG_BYTES = 1 << 20
# The chunk being filled is not on disk yet: a finished run may lack so much at its end.
LARGEST_CHUNK = 1024
COPIED_FRACTION = 0.1


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


def action_repeat(root: Path) -> int | None:
    """Simulator steps per agent step, from the config.yaml that embodied writes next to its logs; None if unknown."""
    path = root / "config.yaml"
    return _read_repeat(path, modified(path))


@functools.lru_cache(maxsize=1024)
def _read_repeat(path: Path, written: float | None) -> int | None:
    """Reads a config once for each time it was written: parsing costs more than a whole look at a run."""
    content = read_file(path, CONFIG_BYTES)
    if isinstance(content, Unreadable) or b"<<" in content:  # merged mappings may unfold without end
        return None
    try:
        config: Any = yaml.safe_load(content)
        suite = config["task"].split("_", 1)[0]
        repeat = step_count(config["env"][suite]["repeat"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return repeat or None


class EmbodiedAdapter(FolderAdapter):
    """Reads replay/, metrics.jsonl and checkpoint.ckpt; the checkpoint is a pickle and is never loaded."""

    name = "embodied"

    def matches(self, run: RunFolder) -> bool:
        """Whether there are replay chunks or a checkpoint.ckpt."""
        return bool(read_chunks(run.root / "replay").count) or os.path.exists(run.root / "checkpoint.ckpt")

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """Replay chunks show how far it is; the metrics' step only corroborates."""
        chunks = read_chunks(run.root / "replay")
        seen = read_chunks(run.root / "eval_replay")
        rows = last_rows(run.metrics, TAIL_BYTES)
        repeat = action_repeat(run.root)
        logged = newest_step(rows, "step") // (repeat or 1)
        # Logged steps count simulator steps: without a known repeat they are taken only if there are no chunks.
        steps = max(chunks.agent_steps, logged) if repeat or not chunks.count else chunks.agent_steps
        if not steps:
            return Reading(counters={"replay_chunks": 0.0})
        counters: dict[str, float] = {
            "agent_steps": steps,
            "replay_chunks": chunks.count,
            "eval_replay_steps": seen.agent_steps,
            "metrics_bytes": size_of(run.metrics),
            "checkpoint_time": modified(run.root / "checkpoint.ckpt") or 0.0,
        }
        return Reading(steps, None, "train", counters)

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps of the chunks that were on disk when the checkpoint was written."""
        weights = newest_weights(run.root)
        if weights is None:
            return 0
        kept = 0
        for entry in entries(run.root / "replay"):
            found = CHUNK.match(entry.name)
            if found and (modified(Path(entry.path)) or math.inf) <= weights.modified_unix_seconds:
                kept += int(found[2])
        return kept

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """Steps by replay and metrics, updates by metrics, and a checkpoint written at the end of the run."""
        if not os.path.isdir(run.root):
            return "the folder does not exist"
        rows = last_rows(run.metrics, WHOLE_BYTES)
        reached = self.read(run).agent_steps
        if reached + LARGEST_CHUNK <= agent_steps:
            return f"replay and metrics show {reached:,} of {agent_steps:,} agent steps"
        logged = _logged_at_most(rows) // (action_repeat(run.root) or 1)
        if logged < agent_steps:
            return f"metrics.jsonl ends before {agent_steps:,} agent steps: its next row would have come at {logged:,}"
        span = _span(run)
        named = read_chunks(run.root / "replay").named_seconds
        if named > 60 and span[1] - span[0] < COPIED_FRACTION * named:
            return "file times were lost in copying: nothing shows when the checkpoint was written"
        return prove_by_rows(run, rows, max(reached, agent_steps), span)

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every number of metrics.jsonl over agent steps."""
        return series_of_rows(last_rows(run.metrics, WHOLE_BYTES), "step", 1 / (action_repeat(run.root) or 1))


def _logged_at_most(rows: list[dict[str, object]]) -> int:
    """The step that a run can have reached without one more row: the last row's and the longest step between rows.

    Replay chunks alone would count twice what a resumed run did again.
    """
    steps = [value for row in rows if (value := step_count(row.get("step"))) is not None]
    longest = max((after - before for before, after in itertools.pairwise(steps)), default=0)
    return newest_step(rows, "step") + max(0, longest)


def _span(run: RunFolder) -> tuple[float, float]:
    """When the run began and when it last wrote, by the times of its replay, its metrics and its config."""
    chunks = [Path(entry.path) for entry in entries(run.root / "replay") if entry.name.endswith(".npz")]
    paths = [run.metrics, run.root / "config.yaml", *chunks]
    times = [time for path in paths if (time := modified(path)) is not None]
    return (min(times), max(times)) if times else (0.0, 0.0)
