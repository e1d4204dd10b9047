"""Generic JSON lines with a step in each row, as many trainers write them."""

import os
import re
from pathlib import Path

from dreamproof.base.lines import last_rows
from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import (
    FolderAdapter,
    Reading,
    Series,
    modified,
    newest_file,
    newest_weights,
    not_finite,
    oldest_time,
    prove_by_weights,
    size_of,
    step_count,
    steps_when_written,
)
from dreamproof.study.adapters.native import series_of_rows

STEP_KEYS = (
    "agent_steps", "step", "steps", "env_steps", "env_step", "global_step", "total_steps", "total_timesteps",
    "timesteps", "timestep", "iteration", "epoch",
)  # fmt: skip
UPDATE_KEY = re.compile(r"(?:^|[/_.])(?:grad(?:ient)?_steps?|updates?|num_updates|n_updates)$")
TRAINING_KEY = re.compile(r"loss|grad", re.IGNORECASE)
TAIL_BYTES = 16384
# What is read to prove a run; a file may be larger than memory.
WHOLE_BYTES = 64 << 20

Row = dict[str, object]


def rows_file(run: RunFolder) -> Path | None:
    """metrics.jsonl, or the newest *.jsonl of the folder."""
    if os.path.exists(run.metrics):
        return run.metrics
    return newest_file(run.root, ".jsonl")


def number(value: object) -> float | None:
    """A JSON number, or None."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def step_key(rows: list[Row]) -> str | None:
    """The key that counts steps in these rows."""
    return next((key for key in STEP_KEYS if any(step_count(row.get(key)) is not None for row in rows)), None)


def newest_step(rows: list[Row], key: str) -> int:
    """The last value of a key; 0 if there is none. Not the highest: a resumed run restarts from a lower count."""
    return next((value for row in reversed(rows) if (value := step_count(row.get(key))) is not None), 0)


def updates_seen(rows: list[Row]) -> int:
    """Updates that the rows count; else the rows that hold a loss or a gradient, which is a lower bound."""
    counted = [
        value for row in rows for key in row if UPDATE_KEY.search(key) and (value := step_count(row[key])) is not None
    ]
    if counted:
        return max(counted)
    return sum(any(TRAINING_KEY.search(key) and number(row[key]) is not None for key in row) for row in rows)


def last_training_values(rows: list[Row]) -> dict[str, float]:
    """The newest value of every loss and gradient."""
    values: dict[str, float] = {}
    for row in rows:
        for key in row:
            if TRAINING_KEY.search(key) and (value := number(row[key])) is not None:
                values[key] = value
    return values


class JsonlAdapter(FolderAdapter):
    """Reads rows with a step; the newest checkpoint file is hashed and never opened."""

    name = "jsonl"

    def matches(self, run: RunFolder) -> bool:
        """Whether there is a *.jsonl file."""
        return newest_file(run.root, ".jsonl") is not None

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The last row's step, and the time of the newest checkpoint."""
        path = rows_file(run)
        rows = last_rows(path, TAIL_BYTES) if path is not None else []
        key = step_key(rows)
        weights = newest_weights(run.root)
        counters: dict[str, float] = {"checkpoint_time": weights.modified_unix_seconds} if weights else {}
        if key is None:
            return Reading(counters=counters)
        steps = newest_step(rows, key)
        counters |= {"agent_steps": steps, "rows_bytes": size_of(path) if path is not None else 0}
        return Reading(steps, None, "train", counters)

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps done when the newest checkpoint file was written, by file times."""
        path = rows_file(run)
        if path is None:
            return 0
        return steps_when_written(newest_weights(run.root), self.read(run).agent_steps, *_span(run, path))

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """Steps reached, an update seen, finite values, and a checkpoint written at the end."""
        path = rows_file(run)
        if path is None:
            return "no *.jsonl file"
        rows = last_rows(path, WHOLE_BYTES)
        key = step_key(rows)
        if key is None:
            return f"{printable(path.name)} holds no row with a step ({', '.join(STEP_KEYS[:4])}, …)"
        reached = newest_step(rows, key)
        if reached < agent_steps:
            return f"{printable(path.name)} ends at {reached:,} of {agent_steps:,} agent steps"
        return prove_by_rows(run, rows, reached, _span(run, path))

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every number over the step."""
        path = rows_file(run)
        rows = last_rows(path, WHOLE_BYTES) if path is not None else []
        key = step_key(rows)
        return series_of_rows(rows, key) if key is not None else {}


def _span(run: RunFolder, rows: Path) -> tuple[float, float]:
    """When the run began and when it last wrote a row."""
    ended = modified(rows) or 0.0
    return oldest_time(run.root) or ended, ended


def prove_by_rows(run: RunFolder, rows: list[Row], reached: int, span: tuple[float, float]) -> TrainProof | str:
    """The part of a proof that all foreign folders share, once the last step is known to be reached."""
    updates = updates_seen(rows)
    if updates <= 0:
        return "no loss, gradient or update count in its metrics: nothing shows a single update"
    fault = not_finite(last_training_values(rows))
    if fault is not None:
        return fault
    return prove_by_weights(run, reached, updates, span)
