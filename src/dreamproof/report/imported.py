"""Studies that were run elsewhere and imported as tables: `imported/results.csv`, `cells.csv` and `bill.csv`.

results.csv: arm, seed, condition, checkpoint, metric, value. A seed such as 0+1 marks a mean over those seeds,
which may be written as mean±sd.
cells.csv: arm, seed, state (proven, running, stopped, missing), agent_steps, and what else is known of the run.
bill.csv: what, amount.
"""

import csv
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import MAX_INT, FaultKind, Unreadable, read_file
from dreamproof.base.text import quoted
from dreamproof.runs.imported import VALUE_COLUMNS, ImportedValue
from dreamproof.runs.layout import Cell
from dreamproof.settings.study import Study

STATES = ("proven", "running", "stopped", "unfinished", "missing")
TABLE_BYTES = 256 << 20
PLUS_MINUS = re.compile(r"\s*(?:±|\+/-|\+-|\\pm)\s*")


@dataclass(frozen=True)
class ImportedRun:
    """One train cell as its owner reports it."""

    cell: Cell
    state: str
    agent_steps: int | None
    of_agent_steps: int | None
    gradient_steps: int | None
    wall_seconds: float | None
    cause: str
    evidence: str
    checkpoint: str
    parameter_hash: str
    line: int


@dataclass(frozen=True)
class BillLine:
    """One line of the bill."""

    what: str
    amount: float
    line: int


@dataclass
class ImportedRuns:
    """All imported rows; conflicts are keys with different values, `without_checkpoint` metrics that name none."""

    values: list[ImportedValue] = field(default_factory=list)
    runs: dict[Cell, ImportedRun] = field(default_factory=dict)
    bill: list[BillLine] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    without_checkpoint: list[str] = field(default_factory=list)


def read_imported(folder: Path, study: Study) -> ImportedRuns | None:
    """The tables of the folder, or None if there are none."""
    if not os.path.isdir(folder):
        return None
    found = ImportedRuns()
    _read_values(folder / "results.csv", study, found)
    _read_runs(folder / "cells.csv", study, found)
    for line, row in _rows(folder / "bill.csv", ("what", "amount")):
        found.bill.append(BillLine(row["what"], _number(row["amount"], folder / "bill.csv", line), line))
    return found


def _rows(path: Path, needed: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """(1-based line, row) of every line that is neither empty nor a comment."""
    content = read_file(path, TABLE_BYTES)
    if isinstance(content, Unreadable):
        if content.fault is FaultKind.ABSENT:
            return []
        raise BadInput(f"{path}: {content.reason}", f"ls -ld {quoted(path)}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text (byte {error.start})", f"file {quoted(path)}") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if _counts(line)]
    if not lines:
        return []
    try:
        table = list(csv.reader(line for _, line in lines))
    except csv.Error as error:
        raise BadInput(f"{path}: is not a table: {error}", f"head {quoted(path)}") from None
    if len(table) != len(lines):
        raise BadInput(f"{path}: a quotation mark is opened and not closed on its line", f"grep -n '\"' {path}")
    header = [name.strip() for name in table[0]]
    missing = [name for name in needed if name not in header]
    if missing:
        raise BadInput(
            f"{path}:{lines[0][0]}: the column '{missing[0]}' is missing; it needs {', '.join(needed)}",
            f"head -n {lines[0][0]} {path}",
        )
    rows = []
    for (number, _), parts in zip(lines[1:], table[1:], strict=True):
        if len(parts) != len(header):
            raise BadInput(
                f"{path}:{number}: {len(parts)} fields, the header has {len(header)}",
                f"sed -n {number}p {quoted(path)}",
            )
        rows.append((number, dict(zip(header, (part.strip() for part in parts), strict=True))))
    return rows


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _number(text: str, path: Path, line: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{path}:{line}: '{text[:80]}' is not a number", f"sed -n {line}p {quoted(path)}") from None


def _mean_and_sd(text: str, seeds: tuple[int, ...], path: Path, line: int) -> tuple[float, float | None]:
    """A value, or a mean with the sd between the seeds that its row names: 1.684±0.741."""
    mean, *spread = PLUS_MINUS.split(text)
    if not spread:
        return _number(mean, path, line), None
    if len(seeds) < 2:
        raise BadInput(f"{path}:{line}: '{text[:80]}' is over several seeds, the row names one", "name them: 0+1")
    return _number(mean, path, line), _number("±".join(spread), path, line)


def _whole(text: str, path: Path, line: int) -> int:
    number = _number(text, path, line)
    if not abs(number) < MAX_INT or number != int(number):
        raise BadInput(f"{path}:{line}: '{text[:80]}' is not a whole number", f"sed -n {line}p {quoted(path)}")
    return int(number)


def _known_arm(arm: str, study: Study, path: Path, line: int) -> str:
    if arm not in study.arms:
        raise BadInput(
            f"{path}:{line}: '{arm}' is not one of the arms {', '.join(study.arms)}", f"sed -n {line}p {quoted(path)}"
        )
    return arm


def _read_values(path: Path, study: Study, found: ImportedRuns) -> None:
    seen: dict[tuple[object, ...], ImportedValue] = {}
    ambiguous: set[tuple[object, ...]] = set()
    for line, row in _rows(path, VALUE_COLUMNS):
        seeds = tuple(_whole(part, path, line) for part in row["seed"].split("+"))
        arm = _known_arm(row["arm"], study, path, line)
        number, sd = _mean_and_sd(row["value"] or "nan", seeds, path, line)
        place = (row["condition"], row["checkpoint"] or "final", row["metric"])
        value = ImportedValue(arm, seeds, *place, number, sd, line)
        if not row["checkpoint"] and value.metric not in found.without_checkpoint:
            found.without_checkpoint.append(value.metric)
        key = (value.arm, value.seeds, value.condition, value.checkpoint, value.metric)
        before = seen.get(key)
        if before is None:
            seen[key] = value
        elif before.value != value.value and not (before.value != before.value and number != number):
            ambiguous.add(key)
            where = f"{value.arm}/{'+'.join(map(str, seeds))} {value.condition} {value.metric} ({value.checkpoint})"
            found.conflicts.append(f"{where}: {before.value:g} ({path.name}:{before.line}), {number:g} ({line})")
    found.values = [value for key, value in seen.items() if key not in ambiguous]


def _read_runs(path: Path, study: Study, found: ImportedRuns) -> None:
    for line, row in _rows(path, ("arm", "seed", "state")):
        cell = Cell(_known_arm(row["arm"], study, path, line), _whole(row["seed"], path, line))
        if row["state"] not in STATES:
            raise BadInput(
                f"{path}:{line}: state '{row['state']}' is not one of {', '.join(STATES)}",
                f"sed -n {line}p {quoted(path)}",
            )
        hours = row.get("wall_hours", "")
        updates, length = row.get("gradient_steps", ""), row.get("of_agent_steps", "")
        found.runs[cell] = ImportedRun(
            cell=cell,
            state=row["state"],
            agent_steps=_whole(row["agent_steps"], path, line) if row.get("agent_steps") else None,
            of_agent_steps=_whole(length, path, line) if length else None,
            gradient_steps=_whole(updates, path, line) if updates else None,
            wall_seconds=_number(hours, path, line) * 3600 if hours else None,
            cause=row.get("cause", ""),
            evidence=row.get("evidence", ""),
            checkpoint=row.get("checkpoint", ""),
            parameter_hash=row.get("parameter_hash", ""),
            line=line,
        )
