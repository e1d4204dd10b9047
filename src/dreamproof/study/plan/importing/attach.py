"""Names the run of somebody else that works on a cell, by its process or its folder."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.text import quoted
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.study.adapters.folders import CLOCK_SECONDS, change_times, entries, modified
from dreamproof.study.ledger.outside_events import ForeignRunEnded
from dreamproof.study.plan.importing.candidates import Candidate, choose_adapter
from dreamproof.study.plan.importing.folders import folder_seconds, runs_below
from dreamproof.study.plan.importing.found import Found, ImportResult
from dreamproof.study.plan.importing.living import LivingRun, find_living, living_by
from dreamproof.study.plan.importing.record import adopt, record_living
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process.processes import ATTEMPT_VARIABLE, has_variable
from dreamproof.study.process.writers import callers, read_writer, written_folders


@dataclass(frozen=True)
class AttachOptions:
    """What a user knows of the run."""

    process_id: int | None = None
    folder: Path | None = None
    adapter: str | None = None
    has_ended: bool = False


def attach(opened: OpenStudy, cell: Cell, options: AttachOptions) -> ImportResult:
    """The run as living, watched by the next `run`; what it left, if it is over."""
    _require_free(opened, cell)
    living: LivingRun | None
    if options.has_ended:
        return end_foreign(opened, cell, "a user reported its end")
    if options.process_id is not None:
        living = _living_process(options.process_id)
        root = options.folder or _folder_of(opened, cell, options, living)
    elif options.folder is not None:
        root = options.folder
        _require_folder(root)
        living = find_living(opened, root)
    else:
        raise BadInput(
            "neither --pid nor --folder is given", f"dreamproof attach {quoted(opened.named)} {cell} --pid 12345"
        )
    _require_folder(root)
    _require_one_run(opened, cell, root)
    output = living.output if living is not None else None
    found = Found(cell, root, wall_seconds=folder_seconds(root), output=output)
    if living is None:
        return adopt(opened, found, options.adapter)
    adapter = choose_adapter(opened, root, options.adapter)
    steps = adapter.read(RunFolder(root), output).agent_steps
    result = ImportResult()
    record_living(opened, Candidate(found, adapter.name, steps, "it still runs", living), living, result)
    return result


def end_foreign(opened: OpenStudy, cell: Cell, reason: str) -> ImportResult:
    """The end of the foreign run of a cell, and what it left."""
    known = opened.state.known_cell(str(cell))
    if known.foreign is None:
        raise BadInput(f"{cell}: no run of somebody else is on record", f"dreamproof status {quoted(opened.named)}")
    root, started, output = opened.run(cell).root, known.foreign["started"], known.foreign["output"]
    last = max(change_times(root), default=time.time())
    seconds = max(0.0, last - started) if started is not None else folder_seconds(root)
    found = Found(cell, root, wall_seconds=seconds, output=Path(output) if output is not None else None)
    result = adopt(opened, found, known.source_adapter)
    ended = ForeignRunEnded(str(cell), reason)
    result.events = [ended, *(event for event in result.events if not isinstance(event, ForeignRunEnded))]
    return result


def _require_free(opened: OpenStudy, cell: Cell) -> None:
    known = opened.state.known_cell(str(cell))
    if opened.state.trained(known):
        raise BadInput(f"{cell}: is already proven", f"dreamproof why {quoted(opened.named)} {cell}")
    if known.running is not None:
        raise BadInput(
            f"{cell}: attempt {known.running} of this study works on it", f"dreamproof stop {quoted(opened.named)}"
        )


def _living_process(process_id: int) -> LivingRun:
    writer = read_writer(process_id)
    if writer is None:
        raise BadInput(f"--pid {process_id}: no such process on this machine", "ps -ef | grep train")
    if process_id in callers():
        raise BadInput(
            f"--pid {process_id}: this process started the command that you just gave, not a run", "ps -ef | grep train"
        )
    if has_variable(process_id, ATTEMPT_VARIABLE):
        raise BadInput(f"--pid {process_id}: a study started this process", "dreamproof status STUDY")
    return living_by(writer)


def _folder_of(opened: OpenStudy, cell: Cell, options: AttachOptions, living: LivingRun) -> Path:
    """The run folder that a process writes or names: the first that an adapter can read and that it has written."""
    assert living.writer is not None
    process_id, started = living.writer.process.process_id, living.writer.started_unix_seconds
    folders = written_folders(process_id)
    for folder in (inner for one in folders for inner in _with_inner(one)):
        was_written = max(change_times(folder), default=0.0) >= started - CLOCK_SECONDS
        reads = choose_adapter(opened, folder, options.adapter)
        if was_written and reads.matches(RunFolder(folder)) and len(runs_below(folder)) < 2:
            return folder
    raise BadInput(
        f"--pid {process_id}: no run folder found in its arguments and open files"
        + (f" (looked in {', '.join(map(str, folders[:5]))})" if folders else ""),
        f"dreamproof attach {quoted(opened.named)} {cell} --pid {process_id} --folder DIR",
    )


def _with_inner(folder: Path) -> list[Path]:
    """A folder's own folders, newest first, and the folder itself: trainers make one in the folder they are given."""
    inner = [Path(entry.path) for entry in entries(folder) if os.path.isdir(entry.path)]
    return [*sorted(inner, key=lambda path: modified(path) or 0.0, reverse=True), folder]


def _require_one_run(opened: OpenStudy, cell: Cell, root: Path) -> None:
    """Refuses a folder of several runs, and one that is on record as the run of another cell."""
    inner = runs_below(root)
    if len(inner) > 1:
        one = f"dreamproof attach {quoted(opened.named)} {cell} --folder {quoted(inner[0])}"
        raise BadInput(f"{root}: holds {len(inner)} runs or more, e.g. {inner[0].relative_to(root)}; name one", one)
    for other, known in opened.state.cells.items():
        if other != cell and known.reads_source and os.path.realpath(opened.run(other).root) == os.path.realpath(root):
            raise BadInput(f"{root}: is the run of {other}", f"dreamproof why {quoted(opened.named)} {other}")


def _require_folder(root: Path) -> None:
    if not os.path.isdir(root):
        raise BadInput(f"--folder {root}: no such folder", f"ls {quoted(root.parent)}")
