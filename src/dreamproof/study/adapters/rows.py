"""Rows with a step in each, as JSON lines or CSV: which key counts steps, what shows updates, how long it took."""

import csv
import math
import re
from pathlib import Path

from dreamproof.base.files import read_tail
from dreamproof.base.lines import last_rows
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import Series, TrainerFormat, not_finite, step_count
from dreamproof.study.adapters.checkpoints import RunSpan, Steps, Updates, prove_by_checkpoint
from dreamproof.study.adapters.folders import attempt_began, head_of, modified, oldest_time, size_of

STEP_KEYS = (
    "agent_steps", "step", "steps", "env_steps", "env_step", "global_step", "total_steps", "total_timesteps",
    "num_timesteps", "timesteps", "timestep", "total_env_steps", "timesteps_total", "num_env_steps_sampled",
    "num_env_steps_sampled_lifetime", "totalenvinteracts", "frames", "iteration", "epoch",
)  # fmt: skip
CSV_ENDINGS = (".csv", ".tsv", "progress.txt")
DELIMITERS = ",;\t"
UPDATE_KEY = re.compile(r"(?:^|[/_.])(?:grad(?:ient)?_steps?|updates?|num_updates|n_updates)$")
TRAINING_KEY = re.compile(r"loss|grad", re.IGNORECASE)
DURATION_KEYS = ("_runtime", "timer/duration", "time/time_elapsed", "time_elapsed", "elapsed_seconds", "wall_seconds")
CLOCK_KEYS = ("_timestamp", "timestamp", "unix_seconds", "wall_time", "time")
FIRST_UNIX_SECONDS = 1e9
TAIL_BYTES = 16384
HEADER_BYTES = 65536
# What is read to prove a run; a file may be larger than memory.
WHOLE_BYTES = 64 << 20

BYTE_ORDER_MARK = "\ufeff"
DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+(?:[eE][-+]?[0-9]+)?")

Row = dict[str, object]


def table_rows(path: Path, limit_bytes: int) -> list[Row]:
    """Rows at the end of a table, oldest first: a CSV file by its header, anything else as JSON lines."""
    if path.name.endswith(CSV_ENDINGS):
        return _csv_rows(path, limit_bytes)
    return [flat(row) for row in last_rows(path, limit_bytes)]


def flat(row: Row) -> Row:
    """A row whose inner mappings are written as `outer/inner`."""
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    found: Row = {}
    for key, value in row.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{key}/{name}" if name else key: one for name, one in inner.items()}
    return found


def _csv_rows(path: Path, limit_bytes: int) -> list[Row]:
    text = read_tail(path, limit_bytes).removeprefix(BYTE_ORDER_MARK)
    lines = text[: text.rfind("\n") + 1].splitlines()  # a last line without its newline may be half written
    if size_of(path) > limit_bytes:
        lines = [_header_line(path), *lines[1:]]
    lines = [line for line in lines if line and not line.startswith("#")]
    delimiter = max(DELIMITERS, key=lines[0].count) if lines else ","
    try:
        table = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return []
    if delimiter == ";":
        table = [[_with_point(field) for field in fields] for fields in table]
    header = table[0] if table else []
    return [_csv_row(header, fields) for fields in table[1:] if len(fields) == len(header)]


def _with_point(field: str) -> str:
    """A number with a decimal comma, as tables with semicolons have it, with a point."""
    return field.replace(",", ".") if DECIMAL_COMMA.fullmatch(field.strip()) else field


def _header_line(path: Path) -> str:
    text = head_of(path, HEADER_BYTES).decode("utf-8", errors="replace").removeprefix(BYTE_ORDER_MARK)
    return next((line for line in text.splitlines() if line and not line.startswith("#")), "")


def _csv_row(header: list[str], fields: list[str]) -> Row:
    values = {name.strip(): _value(field) for name, field in zip(header, fields, strict=True)}
    return {name: value for name, value in values.items() if value is not None}


def _value(field: str) -> object:
    text = field.strip()
    if not text:
        return None
    try:
        return int(text) if len(text) < 18 and text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def number(value: object) -> float | None:
    """A number, or None."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def step_key(rows: list[Row], declared: str | None = None) -> str | None:
    """The key that counts steps in these rows: the declared one, or a usual name with any group before it."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if _counts(rows, key)]
    if declared is not None:
        return next((key for key in (declared, declared.replace(".", "/")) if key in keys), None)
    usual = (key for name in STEP_KEYS for key in keys if _usual_name(key) == name)
    return next(usual, None)


def _counts(rows: list[Row], key: str) -> bool:
    return any(step_count(row.get(key)) is not None for row in rows)


def _usual_name(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", re.split(r"[/.]", key)[-1].lower())


def newest_step(rows: list[Row], key: str) -> int:
    """The last value of a key; 0 if there is none. Not the highest: a resumed run restarts from a lower count."""
    return next((value for row in reversed(rows) if (value := step_count(row.get(key))) is not None), 0)


def updates_seen(rows: list[Row]) -> Updates:
    """Updates that the rows count; else the rows that hold a loss or a gradient, which is a lower bound."""
    counted = [
        value for row in rows for key in row if UPDATE_KEY.search(key) and (value := step_count(row[key])) is not None
    ]
    if counted:
        return Updates(max(counted))
    shown = sum(any(TRAINING_KEY.search(key) and number(row[key]) is not None for key in row) for row in rows)
    return Updates(shown, is_counted=False)


def last_training_values(rows: list[Row]) -> dict[str, float]:
    """The newest value of every loss and gradient."""
    values: dict[str, float] = {}
    for row in rows:
        for key in row:
            if TRAINING_KEY.search(key) and (value := number(row[key])) is not None:
                values[key] = value
    return values


def latest_values(rows: list[Row]) -> dict[str, float]:
    """The newest value of every number."""
    return {key: value for row in rows for key, content in row.items() if (value := number(content)) is not None}


def recorded_seconds(rows: list[Row]) -> float | None:
    """How long a run took according to its rows: a duration that they name, or the difference of their clocks."""
    for key in DURATION_KEYS:
        found = [value for row in rows if (value := number(row.get(key))) is not None and 0 <= value < math.inf]
        if found:
            return max(found)
    clock = _clock(rows)
    return max(clock) - min(clock) if len(clock) > 1 else None


def last_clock(rows: list[Row]) -> float | None:
    """The last Unix time that the rows name; None if they name none."""
    return max(_clock(rows), default=None)


def _clock(rows: list[Row]) -> list[float]:
    for key in CLOCK_KEYS:
        found = [value for row in rows if (value := number(row.get(key))) is not None]
        if found and all(FIRST_UNIX_SECONDS < value < math.inf for value in found):
            return found
    return []


def series_of_rows(rows: list[Row], key: str, trainer_format: TrainerFormat | None = None) -> Series:
    """Numbers of rows over agent steps; rows without a step are left out."""
    series: Series = {}
    scale = trainer_format or TrainerFormat()
    for row in rows:
        step = step_count(row.get(key))
        if step is None:
            continue
        agent_steps = scale.agent_steps(step)
        for name, content in row.items():
            value = number(content)
            if name != key and value is not None:
                series.setdefault(name, []).append((agent_steps, value))
    return series


def span_of(run: RunFolder, log: Path, rows: list[Row], output: Path | None) -> RunSpan:
    """When the run began and when it last wrote its log."""
    ended = modified(log) or 0.0
    began = attempt_began(output)
    times = [time for time in (oldest_time(run.root), oldest_time(log.parent), ended) if time is not None]
    return RunSpan(min(times), ended, recorded_seconds(rows), began, last_clock(rows))


def prove_by_rows(run: RunFolder, log_root: Path, rows: list[Row], steps: Steps, span: RunSpan) -> TrainProof | str:
    """The part of a proof that folders with rows share, once the last step is known to be reached."""
    fault = not_finite(last_training_values(rows))
    if fault is not None:
        return fault
    return prove_by_checkpoint(run.root, log_root, steps, updates_seen(rows), span)
