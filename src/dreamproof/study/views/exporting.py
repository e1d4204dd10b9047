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
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.files import real_path, write_text
from dreamproof.base.safe_text import spreadsheet_text
from dreamproof.runs.reader import read_evaluation
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.printed import PrintedAdapter
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.money import spending
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.views.manifests import EVAL_COLUMNS, TRAIN_COLUMNS, eval_rows, train_rows

RECORDS = (
    *("*.json", "*.jsonl", "*.csv", "*.out", "*.log", "events.out.tfevents.*"),
    *("evaluations/*.json", "checkpoints/*/record.json"),
)
"""What documents are made from inside a run folder: settings, curves, evaluations and the records of checkpoints."""
ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
ATTEMPT_COLUMNS = (
    "attempt", "work", "cells", "conditions", "started_unix_seconds", "wall_seconds", "cause", "evidence",
    "from_agent_steps", "reached_agent_steps", "kept_agent_steps", "command",
)  # fmt: skip
EPISODE_COLUMNS = ("arm", "seed", "condition", "kind", "checkpoint", "metric", "episode", "value")
MONEY_COLUMNS = ("cell", "useful_seconds", "wasted_seconds", "money")

Row = dict[str, Any]


def export_study(
    opened: OpenStudy, target: Path, now: float, with_checkpoints: bool = False, outside: tuple[Path, ...] = ()
) -> list[str]:
    """Writes the study to a folder, a .zip or a .tar.gz that must not exist yet; returns the names of its files.

    Nothing is taken from outside the study folder, whatever its ledger or a link names, except checkpoints in the
    folders of `outside`.
    """
    if target.exists():
        raise BadInput(f"{target}: already exists, and export does not overwrite", f"ls {target}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _scratch_folder(target.parent) as scratch:
            inside = scratch / opened.study.name
            _fill(opened, inside, now)
            if with_checkpoints:
                _copy_checkpoints(opened, inside, outside)
            names = sorted(path.relative_to(inside).as_posix() for path in inside.rglob("*") if path.is_file())
            _pack(inside, target)
    except OSError as error:
        place = error.filename or target
        raise BadInput(f"{place}: cannot be written: {error.strerror}", f"df -h {target.parent}") from None
    return names


@contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    """A folder that is removed at the end; TemporaryDirectory recurses without end where it may not be opened."""
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".export-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(opened: OpenStudy, folder: Path, now: float) -> None:
    state = opened.state
    tables: dict[str, tuple[tuple[str, ...], Iterable[Row]]] = {
        "cells.csv": (TRAIN_COLUMNS, train_rows(state, opened.study)),
        "evals.csv": (EVAL_COLUMNS, eval_rows(state)),
        "attempts.csv": (ATTEMPT_COLUMNS, map(attempt_row, state.attempts.values())),
        "episodes.csv": (EPISODE_COLUMNS, _episode_rows(opened)),
        "money.csv": (MONEY_COLUMNS, _money_rows(opened, now)),
    }
    for name, (columns, rows) in tables.items():
        write_text(folder / name, table(columns, rows), durable=False)
    own = opened.folder
    for source in (own.ledger, own.declaration, own.manifests, own.imported, own.tables, own.figures, own.reports):
        if os.path.lexists(source):
            _copy(source, folder / source.name)
    for source in _records(opened):
        _copy(source, folder / own.relative(source))


def _records(opened: OpenStudy) -> Iterator[Path]:
    """Files from which a report of the export is made again; nothing behind a link, and no weights."""
    own = opened.folder
    runs = [run for run in sorted(own.runs.glob("*")) if real_path(run) == real_path(own.runs) / run.name]
    for run in runs:
        found = {path for pattern in RECORDS for path in run.glob(pattern)}
        yield from sorted(path for path in found if real_path(path) == real_path(run) / path.relative_to(run))
    printed = [known for known in opened.state.cells.values() if isinstance(opened.adapter(known.cell), PrintedAdapter)]
    outputs = {own.attempt(known.attempts[-1]).output for known in printed if known.attempts}
    yield from sorted(path for path in outputs if path.is_file())


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


def _episode_rows(opened: OpenStudy) -> Iterator[Row]:
    """Every episode of every evaluation that is proven."""
    for known in opened.state.eval_cells.values():
        record = read_evaluation(opened.run(known.cell), known.condition) if opened.state.evaluated(known) else None
        if record is None:
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


def _copy_checkpoints(opened: OpenStudy, folder: Path, outside: tuple[Path, ...]) -> None:
    """The proven checkpoint of every cell, and nothing else of its run folder."""
    allowed = [real_path(opened.folder.root), *(real_path(place) for place in outside)]
    for cell, known in opened.state.cells.items():
        if known.proof is None:
            continue
        adapter: Adapter = opened.adapter(cell)
        run = opened.run(cell)
        within = adapter.checkpoint_root(run)
        source = within / known.proof.checkpoint
        _refuse_outside(source, within, allowed, str(cell))
        if os.path.lexists(source):
            _copy(source, folder / "checkpoints" / f"{cell.arm}-seed{cell.seed}" / source.name)


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


def _copy(source: Path, target: Path) -> None:
    """Copies a plain file, or a folder of such; refuses links and everything else by name."""
    waiting = [(source, target)]
    while waiting:
        path, place = waiting.pop()
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            place.mkdir(parents=True)
            waiting += [(inner, place / inner.name) for inner in path.iterdir()]
        elif stat.S_ISREG(mode):
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(path, place)
        else:
            what = f"a symbolic link to {os.readlink(path)}" if stat.S_ISLNK(mode) else "not a plain file"
            raise BadInput(f"{path}: is {what}; only regular files are exported", f"ls -l {path.parent}")


def _copy_file(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy)


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
