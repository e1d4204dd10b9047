"""A study as plain tables in one folder or one archive, for people and programs that have no dreamproof."""

import csv
import io
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.files import (
    CHUNK_BYTES,
    FaultKind,
    Unreadable,
    kind_fault,
    list_folder,
    open_regular,
    real_path,
    unreadable,
    write_text,
)
from dreamproof.base.safe_text import spreadsheet_text
from dreamproof.base.text import quoted
from dreamproof.runs.layout import StudyFolder
from dreamproof.runs.reader import load_evaluation
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.printed import PrintedAdapter
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.money import spending
from dreamproof.study.plan.on_disk import disk_faults
from dreamproof.study.plan.open_study import ARCHIVES, OpenStudy
from dreamproof.study.views.exported import write_list
from dreamproof.study.views.manifests import EVAL_COLUMNS, TRAIN_COLUMNS, eval_rows, train_rows
from dreamproof.study.views.verify import train_fault

RECORDS = (
    *("*.json", "*.jsonl", "*.csv", "*.out", "*.log", "events.out.tfevents.*"),
    *("evaluations/*.json", "checkpoints/*/record.json"),
)
"""What documents are made from inside a run folder: settings, curves, evaluations and the records of checkpoints."""
ATTEMPT_COLUMNS = (
    "attempt", "work", "cells", "conditions", "started_unix_seconds", "wall_seconds", "cause", "evidence",
    "from_agent_steps", "reached_agent_steps", "kept_agent_steps", "command",
)  # fmt: skip
EPISODE_COLUMNS = ("arm", "seed", "condition", "kind", "checkpoint", "metric", "episode", "value")
MONEY_COLUMNS = ("cell", "useful_seconds", "wasted_seconds", "money")
LEFT_OUT = "left_out.csv"
"""In an export only where something was left out."""
LEFT_OUT_COLUMNS = ("file", "reason")

Row = dict[str, Any]


@dataclass(frozen=True)
class Export:
    """What an export holds, and what could not be read."""

    files: list[str]
    left_out: dict[str, str]
    """The reason by file, as the ledger writes paths."""


def export_study(
    opened: OpenStudy, target: Path, now: float, with_checkpoints: bool = False, outside: tuple[Path, ...] = ()
) -> Export:
    """Writes the study to a folder, a .zip or a .tar.gz that must not exist yet.

    Nothing is taken from outside the study folder, whatever its ledger or a link names, except checkpoints in the
    folders of `outside`. A file that cannot be read is left out and named.
    """
    if target.exists():
        raise BadInput(f"{target}: already exists, and export does not overwrite", f"ls {quoted(target)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _scratch_folder(target.parent) as scratch:
            inside = scratch / opened.study.name
            faults = _fill(opened, inside, now)
            if with_checkpoints:
                faults += _copy_checkpoints(opened, inside, outside)
            faults += _drop_odd_names(inside, opened.folder.root)
            left_out = {opened.folder.relative(fault.path): fault.reason for fault in faults}
            if left_out:
                rows = (dict(zip(LEFT_OUT_COLUMNS, item, strict=True)) for item in sorted(left_out.items()))
                write_text(inside / LEFT_OUT, table(LEFT_OUT_COLUMNS, rows), durable=False)
            write_list(StudyFolder(inside), left_out)
            names = sorted(path.relative_to(inside).as_posix() for path in inside.rglob("*") if path.is_file())
            _pack(inside, target)
    except OSError as error:
        place = error.filename or target
        raise BadInput(f"{place}: cannot be written: {error.strerror}", f"df -h {quoted(target.parent)}") from None
    return Export(names, left_out)


@contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder that is removed at the end; TemporaryDirectory recurses without end where it may not be opened."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".export-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(opened: OpenStudy, folder: Path, now: float) -> list[Unreadable]:
    """Writes everything but checkpoints; returns what was left out."""
    state = opened.state
    without_episodes: list[Unreadable] = []
    tables: dict[str, tuple[tuple[str, ...], Iterable[Row]]] = {
        "cells.csv": (TRAIN_COLUMNS, train_rows(state, opened.study)),
        "evals.csv": (EVAL_COLUMNS, eval_rows(state)),
        "attempts.csv": (ATTEMPT_COLUMNS, map(attempt_row, state.attempts.values())),
        "episodes.csv": (EPISODE_COLUMNS, _episode_rows(opened, without_episodes)),
        "money.csv": (MONEY_COLUMNS, _money_rows(opened, now)),
    }
    for name, (columns, rows) in tables.items():
        write_text(folder / name, table(columns, rows), durable=False)
    own = opened.folder
    for source in (own.ledger, own.declaration):
        fault = _copy_file(source, folder / source.name) if os.path.lexists(source) else None
        if fault is not None:
            raise BadInput(f"{source}: {fault.reason}; there is no export without it", f"ls -l {source}")
    faults = [fault for fault in disk_faults(opened).cells.values() if fault.fault is FaultKind.ABSENT]
    for source in (own.manifests, own.imported, own.tables, own.figures, own.reports):
        if os.path.lexists(source):
            faults += _copy(source, folder / source.name)
    for found in _records(opened):
        fault = found if isinstance(found, Unreadable) else _copy_file(found, folder / own.relative(found))
        faults += [fault] if fault is not None else []
    return faults + without_episodes


def _records(opened: OpenStudy) -> Iterator[Path | Unreadable]:
    """Files from which a report of the export is made again, and what cannot be searched for them; no weights."""
    own = opened.folder
    for run in _matching(own.root, f"{own.runs.name}/*"):
        if isinstance(run, Unreadable):
            yield run
        elif (fault := kind_fault(run, stat.S_IFDIR)) is None:
            yield from {found for pattern in RECORDS for found in _matching(run, pattern)}
        elif not os.path.isfile(run):
            yield fault
    printed = [known for known in opened.state.cells.values() if isinstance(opened.adapter(known.cell), PrintedAdapter)]
    outputs = {own.attempt(known.attempts[-1]).output for known in printed if known.attempts}
    yield from sorted(path for path in outputs if os.path.lexists(path))


def _matching(folder: Path, pattern: str) -> Iterator[Path | Unreadable]:
    """Entries of a folder that match a pattern, and what cannot be searched for them; nothing behind a link."""
    entries = list_folder(folder)
    if isinstance(entries, Unreadable):
        yield entries
        return
    name, _, rest = pattern.partition("/")
    for path in (Path(entry.path) for entry in entries if fnmatchcase(entry.name, name)):
        fault = kind_fault(path, stat.S_IFDIR) if rest else None
        if not rest:
            yield path
        elif fault is None:
            yield from _matching(path, rest)
        elif name != "*":
            yield fault


def table(columns: tuple[str, ...], rows: Iterable[Row]) -> str:
    """Rows as comma-separated text; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _field(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _field(value: Any) -> Any:
    if value is None:
        return ""
    return spreadsheet_text(value) if isinstance(value, str) else value


def attempt_row(attempt: AttemptState) -> Row:
    """One attempt as a row of ATTEMPT_COLUMNS."""
    return {
        "attempt": attempt.name,
        "work": attempt.work,
        "cells": " ".join(attempt.cells),
        "conditions": " ".join(attempt.conditions),
        "started_unix_seconds": attempt.started,
        "wall_seconds": attempt.wall_seconds,
        "cause": attempt.cause,
        "evidence": " | ".join(attempt.evidence),
        "from_agent_steps": _steps(attempt.from_agent_steps, attempt.cells),
        "reached_agent_steps": _steps(attempt.reached_agent_steps, attempt.cells),
        "kept_agent_steps": _steps(attempt.kept_agent_steps, attempt.cells),
        "command": " ".join(attempt.command),
    }


def _steps(steps: dict[str, int], cells: list[str]) -> str:
    return " ".join(str(steps.get(cell, "")) for cell in cells)


def _episode_rows(opened: OpenStudy, faults: list[Unreadable]) -> Iterator[Row]:
    """Every episode of every evaluation that is proven; adds those that cannot be read to `faults`."""
    for known in opened.state.eval_cells.values():
        path = opened.run(known.cell).evaluation(known.condition)
        if (str(known.cell), known.condition) in opened.state.lost_evals:
            reason = "is gone or not the proven one; its episodes are not in episodes.csv"
            faults.append(Unreadable(path, reason, FaultKind.ABSENT))
        if not opened.state.evaluated(known):
            continue
        record = load_evaluation(opened.run(known.cell), known.condition, known.proof)
        if isinstance(record, Unreadable):
            faults.append(replace(record, reason=f"{record.reason}; its episodes are not in episodes.csv"))
            continue
        for checkpoint, made in record.checkpoints.items():
            for metric, values in made.episodes.items():
                for episode, value in enumerate(values):
                    place = (known.cell.arm, known.cell.seed, known.condition, record.kind, checkpoint)
                    yield dict(zip(EPISODE_COLUMNS, (*place, metric, episode, value), strict=True))


def _money_rows(opened: OpenStudy, now: float) -> Iterator[Row]:
    counted = spending.count_money(opened.state, read_moment()._replace(unix_seconds=now))
    for cell, part in counted.cells.items():
        yield {
            "cell": cell,
            "useful_seconds": part.useful_ms / 1000,
            "wasted_seconds": part.wasted_ms / 1000,
            "money": round(counted.money(part.useful_ms + part.wasted_ms), 6),
        }
    yield {"cell": "(idle)", "useful_seconds": 0.0, "wasted_seconds": 0.0, "money": counted.money(counted.idle_ms)}


def _copy_checkpoints(opened: OpenStudy, folder: Path, outside: tuple[Path, ...]) -> list[Unreadable]:
    """The proven checkpoint of every cell, and nothing else of its run folder; one with a fault is left out whole.

    It lies where it lies in the study, so that it can act; one from outside in the folder `checkpoints`.
    """
    left_out: list[Unreadable] = []
    allowed = [real_path(opened.folder.root), *(real_path(place) for place in outside)]
    for cell, known in opened.state.cells.items():
        if known.proof is None:
            continue
        adapter: Adapter = opened.adapter(cell)
        run = opened.run(cell)
        within = adapter.checkpoint_root(run)
        source = within / known.proof.checkpoint
        if os.path.islink(source) and not os.path.exists(source):
            left_out.append(Unreadable(source, f"checkpoint {source.name} is gone", FaultKind.ABSENT))
            continue
        _refuse_outside(source, within, allowed, str(cell))
        place = folder / "checkpoints" / f"{cell.arm}-seed{cell.seed}" / source.name
        plain = Path(os.path.normpath(source))
        if plain.is_relative_to(opened.folder.root):
            place = folder / plain.relative_to(opened.folder.root)
        copy = folder.parent / ".checkpoint"
        broken = train_fault(opened, known)
        faults = _copy(source, copy) if broken is None else [Unreadable(source, broken, FaultKind.MALFORMED)]
        if faults:
            shutil.rmtree(copy, ignore_errors=True)
        else:
            shutil.rmtree(place, ignore_errors=True)  # its record, which every export has
            place.parent.mkdir(parents=True, exist_ok=True)
            copy.rename(place)
        left_out += faults
    return left_out


def _refuse_outside(source: Path, within: Path, allowed: list[Path], cell: str) -> None:
    """Refuses a checkpoint that does not lie in its run folder, or whose run folder is not one to take from."""
    place, run = real_path(source), real_path(within)
    if place == run or not place.is_relative_to(run):
        raise BadInput(
            f"the checkpoint of {cell} is recorded as {source}, which is not inside its run folder {run}",
            "dreamproof verify STUDY; do not trust this ledger",
        )
    if not any(run.is_relative_to(root) for root in allowed):
        raise BadInput(
            f"the checkpoint of {cell} is in {run}, outside the study folder {allowed[0]}",
            f"check it; to include it: dreamproof export STUDY TARGET --checkpoints --outside {run}",
        )


def _copy(source: Path, target: Path) -> list[Unreadable]:
    """Copies a plain file, or a folder of such; returns what was left out. Follows no link and opens no pipe."""
    left_out: list[Unreadable] = []
    waiting = [(source, target)]
    while waiting:
        path, place = waiting.pop()
        if kind_fault(path, stat.S_IFDIR) is not None:
            fault = _copy_file(path, place)
            left_out += [fault] if fault is not None else []
            continue
        entries = list_folder(path)
        if isinstance(entries, Unreadable):
            left_out.append(entries)
            continue
        place.mkdir(parents=True)
        waiting += [(Path(entry.path), place / entry.name) for entry in entries]
    return left_out


def _copy_file(source: Path, target: Path) -> Unreadable | None:
    """Copies a plain file; why not, where it cannot be read. An error of the target is raised."""
    opened = kind_fault(source, stat.S_IFREG) or open_regular(source, follow=False)
    if isinstance(opened, Unreadable):
        return opened
    with os.fdopen(opened, "rb", buffering=0) as file:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            while piece := _read_piece(file, source):
                if isinstance(piece, Unreadable):
                    target.unlink()
                    return piece
                copy.write(piece)
    return None


def _read_piece(file: io.FileIO, path: Path) -> bytes | Unreadable:
    try:
        return file.read(CHUNK_BYTES)
    except OSError as error:
        return unreadable(path, error)


def _drop_odd_names(inside: Path, root: Path) -> list[Unreadable]:
    """Removes files whose path is no text, which neither a list of files nor an archive can name; returns them."""
    left_out: list[Unreadable] = []
    for path in [path for path in inside.rglob("*") if path.is_file()]:
        place = path.relative_to(inside)
        try:
            str(place).encode()
        except UnicodeEncodeError:
            path.unlink()
            left_out.append(Unreadable(root / place, "has a name that is not UTF-8 text", FaultKind.MALFORMED))
    return left_out


def _pack(folder: Path, target: Path) -> None:
    """Moves the filled folder into place, or into one archive that appears only when whole."""
    if not target.name.endswith(ARCHIVES):
        os.replace(folder, target)
        return
    partial = folder.parent / "archive"
    if target.name.endswith(".zip"):
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(folder.parent))
    else:
        with tarfile.open(partial, "w" if target.name.endswith(".tar") else "w:gz") as archive:
            archive.add(folder, folder.name)
    os.replace(partial, target)
