"""A study that is read once and then followed: what is appended to its files is taken in, nothing is written."""

import os
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dreamproof.base.errors import DreamproofError
from dreamproof.base.files import Unreadable, open_regular, parse_json
from dreamproof.base.text import quoted
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.study.backends.local import is_gone
from dreamproof.study.ledger.chain import BEGINNING, collector_paused, read_after
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.lease import is_copy, living_holder
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.on_disk import show_disk
from dreamproof.study.plan.open_study import OpenStudy, find_folder, open_with

Stamp = tuple[Any, ...]
AGAIN_SECONDS = 10.0
"""A study that cannot be read is tried again so often, and whenever its file changes."""
TICK_SECONDS = 5.0
"""While attempts are open, times and forecasts change at least so often."""
DISK_LOOK_SECONDS, DISK_LOOK_SHARE = 10.0, 0.003
"""Run folders are looked at so often, or so that it takes this share of the time."""
BLOCK_LINES = 256
ALIVE, GONE, COPIED, NONE = "alive", "gone", "copied", "none"


def stamp_of(path: Path) -> Stamp | None:
    """Changes with the content of a file. It is opened, for a network file system checks the server only then."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return None
    try:
        status = os.fstat(opened)
    finally:
        os.close(opened)
    return status.st_ino, status.st_size, status.st_mtime_ns


class FollowedStudy:
    """One study, up to date as of the last `refresh`. Hold `lock` while its state is read."""

    def __init__(self, place: Path, name: str) -> None:
        self.place, self.name = place, name
        self.lock = threading.RLock()
        self.fault: DreamproofError | None = None
        """Why the study cannot be read now."""
        self.ledger_version = self.progress_version = 0
        """Raised with every change of the ledger, the declaration or the supervisor; of what running cells write."""
        self.presence = NONE
        self._opened: OpenStudy | None = None
        self._foreign_at = (-1, False)
        self._failed_at: tuple[float, Stamp | None] = (0.0, None)
        self._restart()
        self._seen: tuple[Stamp, Stamp] = ((), ())
        self.refresh()

    def _restart(self) -> None:
        self._position, self._state = BEGINNING, StudyState()
        self._ledger_stamp: Stamp | None = None
        self._next_disk_look = 0.0
        self._ends = array("Q", [0])
        """Where each line of the ledger ends, for readers of single events."""

    @property
    def version(self) -> int:
        """Raised with every change."""
        return self.ledger_version + self.progress_version

    @property
    def event_count(self) -> int:
        """Events of the ledger that were taken in."""
        return self._state.event_count

    @property
    def opened(self) -> OpenStudy:
        """The study; raises why it cannot be read."""
        if self.fault is not None:
            raise self.fault
        assert self._opened is not None
        return self._opened

    def refresh(self) -> bool:
        """Takes in what changed since the last call; whether anything did."""
        with self.lock:
            if self.fault is not None and not self._may_be_fixed():
                return False
            before = self.version
            try:
                self._look()
            except DreamproofError as error:
                self._failed(error)
            except OSError as error:
                self._failed(
                    DreamproofError(f"{self.place}: {error.strerror or error}", f"ls -ld {quoted(self.place)}")
                )
            return self.version != before

    def _failed(self, error: DreamproofError) -> None:
        """Keeps why the study cannot be read; it is read again from its beginning once its files change."""
        if self.fault is None or str(self.fault) != str(error):
            self.ledger_version += 1
        self.fault = error
        self._failed_at = (time.monotonic(), stamp_of(self.place))
        self._restart()

    def _may_be_fixed(self) -> bool:
        """Whether reading a faulty study again is worth its time: its file changed, or some time has passed."""
        since, stamp = self._failed_at
        return time.monotonic() - since >= AGAIN_SECONDS or stamp_of(self.place) != stamp

    def _look(self) -> None:
        folder = find_folder(self.place) if self._opened is None else self._opened.folder
        first = (*map(stamp_of, self._declarations(folder)), stamp_of(folder.ledger), living_holder(folder.lease))
        if first != self._seen[0]:
            self._seen = (first, ())
            self._take_in(folder)
            self.fault = None
            self.ledger_version += 1
            if self._state.unreadable or self._state.lost_evals:  # the ledger may have taken it in
                self._next_disk_look = 0.0
        if self.fault is None and self._disk_changed():
            self.ledger_version += 1
        second = tuple(self._progress()) if self.fault is None else ()
        if second != self._seen[1]:
            self.progress_version += 1
            self._seen = (first, second)

    def _disk_changed(self) -> bool:
        """Looks at the run folders now and then; whether they show something else than at the last look."""
        began = time.monotonic()
        if began < self._next_disk_look or self._opened is None:
            return False
        before = (self._state.unreadable, self._state.lost_evals)
        show_disk(self._opened)
        took = time.monotonic() - began
        self._next_disk_look = began + max(DISK_LOOK_SECONDS, took / DISK_LOOK_SHARE)
        return before != (self._state.unreadable, self._state.lost_evals)

    def _declarations(self, folder: StudyFolder) -> Iterator[Path]:
        yield folder.declaration
        if self.place.is_file():
            yield self.place
        yield folder.imported_results

    def _take_in(self, folder: StudyFolder) -> None:
        """Replays new events; begins again where the ledger is another one, shorter, or edited without growing."""
        stamp = stamp_of(folder.ledger)
        if self._ledger_stamp is not None and stamp != self._ledger_stamp and not _grew(self._ledger_stamp, stamp):
            self._restart()
        self._ledger_stamp = stamp
        with collector_paused():
            rows, position = read_after(folder.ledger, self._position)
            for row in rows:
                self._state.apply(row)
        self._note_ends(folder.ledger, position.size_bytes)
        self._position = position
        self._opened = open_with(self.place, lambda _: self._state)
        self.presence = _presence(self._opened)

    def _note_ends(self, ledger: Path, size: int) -> None:
        """Takes down where the new lines end."""
        end = self._ends[-1]
        opened = open_regular(ledger)
        if isinstance(opened, Unreadable):
            return
        with os.fdopen(opened, "rb") as file:
            file.seek(end)
            while end < size and (line := file.readline()):
                end += len(line)
                self._ends.append(end)

    def _progress(self) -> Iterator[Any]:
        """What changes while attempts work: their files, whether they live, and time itself."""
        assert self._opened is not None
        opened, folder = self._opened, self._opened.folder
        attempts = opened.state.open_attempts.values()
        foreign = [cell for cell, known in opened.state.cells.items() if known.foreign] if self._has_foreign() else []
        if attempts or foreign:
            yield int(time.monotonic() / TICK_SECONDS)
        for attempt in attempts:
            yield stamp_of(folder.attempt(attempt.name).output)
            if self.presence != ALIVE and opened.study.backend.runs_here:
                yield is_gone(folder.attempt(attempt.name))
        for cell in [*(Cell.parse(text) for attempt in attempts for text in attempt.cells), *foreign]:
            run = opened.run(cell)
            yield stamp_of(run.heartbeat), stamp_of(run.metrics), _folder_stamp(run.root)

    def _has_foreign(self) -> bool:
        """Whether somebody else may work on a cell; looked up once per change of the ledger."""
        known = self._foreign_at
        if known[0] != self.ledger_version:
            found = any(cell.foreign for cell in self._state.cells.values())
            self._foreign_at = known = (self.ledger_version, found)
        return known[1]

    def newest_events(self) -> Iterator[Row]:
        """Events of the ledger, newest first."""
        ends = self._ends
        for last in range(len(ends) - 1, 0, -BLOCK_LINES):
            first = max(0, last - BLOCK_LINES)
            yield from reversed(self._rows(ends[first], ends[last]))

    def _rows(self, start: int, end: int) -> list[Row]:
        opened = open_regular(self.opened.folder.ledger)
        if isinstance(opened, Unreadable):
            return []
        with os.fdopen(opened, "rb") as file:
            file.seek(start)
            lines = file.read(end - start).splitlines()
        return [parse_json(line.decode("utf-8", "replace")) for line in lines]


def _grew(before: Stamp, now: Stamp | None) -> bool:
    return now is not None and now[0] == before[0] and now[1] > before[1]


def _folder_stamp(folder: Path) -> Stamp | None:
    try:
        status = os.stat(folder)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns


def _presence(opened: OpenStudy) -> str:
    """Whether the supervisor lives; gone means that it ended without a record of it: it was killed."""
    lease = opened.folder.lease
    if living_holder(lease) is not None:
        return ALIVE
    newest = opened.state.supervisor
    if newest is None or newest.ended is not None:
        return NONE
    return COPIED if opened.folder.is_export or is_copy(lease) else GONE
