"""Finds runs and evaluations in the status tables that people keep."""

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import Unreadable, read_file
from dreamproof.base.text import quoted
from dreamproof.runs.layout import SEED, Cell
from dreamproof.settings.study import Study
from dreamproof.study.plan.importing.found import Found, ImportResult

COLUMNS = {
    "arm": ("arm", "config", "cfg", "variant", "method", "algo", "algorithm", "agent", "experiment", "exp", "name"),
    "seed": ("seed",),
    "status": ("status", "state", "result"),
    "folder": ("run_folder", "run_dir", "rundir", "logdir", "log_dir", "folder", "dir", "path", "output_dir", "run"),
    "condition": ("condition", "mode", "eval", "eval_mode", "split", "setting"),
    "job": ("job", "job_id", "jobid", "slurm_job_id"),
    "log": ("log_file", "logfile", "log", "output", "stdout"),
    "seconds": ("wall_seconds", "duration_sec", "duration_seconds", "duration_s", "elapsed_sec", "elapsed", "seconds"),
}
TABLE_BYTES = 64 << 20
DECIMAL_COMMA = re.compile(r"(?<=[0-9]),(?=[0-9])")
VERSION = re.compile(r"v[0-9.]+[-_]", re.IGNORECASE)


def find_in_table(study: Study, source: Path, result: ImportResult) -> Iterator[Found]:
    """Rows of a table that name a declared cell, or a declared condition of one."""
    rows = read_table(source, ("arm", "seed"))
    for line, row in enumerate(rows, start=2):
        arm = declared_name(row["arm"], study.arms)
        seed = row["seed"].strip()
        if arm is None or not SEED.fullmatch(seed) or int(seed) not in study.seeds:
            result.unmatched.append(f"line {line}: {row['arm'][:80]} seed {seed[:80]}")
            continue
        names = [one.name for one in study.conditions]
        condition = declared_name(row["condition"], names) if "condition" in row else None
        if "condition" in row and condition is None:
            result.unmatched.append(f"line {line}: condition {row['condition'][:80]}")
            continue
        root = _table_folder(source, row.get("folder", ""))
        log = _table_folder(source, row.get("log", ""))
        output = log if log is not None and os.path.isfile(log) else None
        yield Found(Cell(arm, int(seed)), root, row.get("status", ""), condition, _number(row.get("seconds")), output)


def read_table(source: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows under our own column names."""
    header, rows = read_rows(source)
    names = column_names(header)
    for one in needed:
        if one not in names:
            raise BadInput(
                f"{source}:1: no column for the {one} (columns: {', '.join(header)[:200]})",
                f"name one of its columns {' or '.join(COLUMNS[one][:2])}",
            )
    return [{ours: (row.get(theirs) or "") for ours, theirs in names.items()} for row in rows]


def read_rows(source: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows of a table: CSV, tab-separated, or the first table of a Markdown document."""
    text = _read_text(source)
    if source.suffix.lower() in (".md", ".markdown"):
        lines = [line.strip().strip("|") for line in text.splitlines() if line.strip().startswith("|")]
        lines = [line for line in lines if not re.fullmatch(r"[\s:|-]+", line)]
        delimiter = "|"
    else:
        lines = text.splitlines()
        delimiter = max("\t;,", key=lines[0].count) if lines else ","
    try:
        table = [[field.strip() for field in row] for row in csv.reader(lines, delimiter=delimiter)]
    except csv.Error as error:
        raise BadInput(f"{source}: is not a table: {error}", f"head {quoted(source)}") from None
    if delimiter == ";":
        table = [[DECIMAL_COMMA.sub(".", field) for field in row] for row in table]
    header = table[0] if table else []
    return header, [dict(zip(header, row, strict=False)) for row in table[1:]]


def _read_text(source: Path) -> str:
    content = read_file(source, TABLE_BYTES)
    if isinstance(content, Unreadable):
        raise BadInput(f"{source}: {content.reason}", f"ls -ld {quoted(source)}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{source}: is not UTF-8 text ({error.reason} at byte {error.start})", f"file {quoted(source)}"
        ) from None


def column_names(header: list[str]) -> dict[str, str]:
    """Our name of a column: theirs."""
    lower = {name.lower(): name for name in header}
    return {
        ours: lower[known]
        for ours, options in COLUMNS.items()
        for known in (next((option for option in options if option in lower), ""),)
        if known
    }


def declared_name(word: str, names: Iterable[str]) -> str | None:
    """The declared name in a table's field, in any case, with or without a version such as `v2_` before it."""
    options, text = list(names), word.strip()
    for given in (text, VERSION.sub("", text, count=1) if VERSION.match(text) else text):
        same = [name for name in options if name.lower() == given.lower()]
        if given in options or len(same) == 1:
            return given if given in options else same[0]
    return None


def _table_folder(source: Path, text: str) -> Path | None:
    if not text.strip():
        return None
    in_folder = source.parent / text.strip()
    # Tables of a study lie in its manifests/ and name folders as the study folder sees them.
    above = source.parent.parent / text.strip()
    return above if os.path.isdir(above) and not os.path.isdir(in_folder) else in_folder


def _number(text: str | None) -> float | None:
    try:
        seconds = float(text) if text else math.nan
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < math.inf else None
