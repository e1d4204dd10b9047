"""The ledger: append-only JSON lines, each holding the hash of the one before. One writer, many readers.

Its head file records how far it was written, so that a cut end shows.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.files import (
    FaultKind,
    Unreadable,
    encodable,
    file_fault,
    open_own_file,
    open_regular,
    parse_json,
    read_file,
    read_tail,
    unreadable,
    write_bytes,
)
from dreamproof.base.lines import truncate_partial_line
from dreamproof.base.text import quoted
from dreamproof.study.ledger.clock import Moment, jump_text, jumps_between, moment_fields, moment_of, read_moment
from dreamproof.study.ledger.events import ClockJumped, LedgerShortened

if TYPE_CHECKING:
    from dreamproof.study.ledger.events import Event, Row

FIRST_PREVIOUS = "0" * 64
HASH_MARK = b',"hash":"'
HASH_TAIL_BYTES = len(HASH_MARK) + 64 + len(b'"}')
LINE_BYTES = 64 << 20
SLOT_BYTES = 128
FIRST_DIGITS = 16
HEAD_SUFFIX = ".head"
TAIL_BYTES = 1024


class LedgerFailure(OSError):
    """The ledger could not be written; nothing of what was to be written counts."""


def _identity(folder: Path) -> tuple[int, int]:
    """Device and inode of a folder: the same after a move, and another one where it is made again."""
    there = os.stat(folder)
    return there.st_dev, there.st_ino


def line_hash(content: bytes) -> str:
    """The hash of a line that ends with its own hash: SHA-256 over everything before the hash, and a brace."""
    return hashlib.sha256(content[:-HASH_TAIL_BYTES] + b"}").hexdigest()


def sealed_line(row: Row) -> tuple[bytes, str]:
    """A row as the line that is written (newline included), and its hash."""
    body = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=True).encode("utf-8", "replace")
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + HASH_MARK + digest.encode() + b'"}\n', digest


def _fault(content: bytes, row: Any, number: int, previous: str) -> str | None:
    if not isinstance(row, dict):
        return "is not an event"
    if content[-HASH_TAIL_BYTES:-66] != HASH_MARK or row.get("hash") != line_hash(content):
        return "does not match its own hash: it was edited"
    if row.get("prev") != previous:
        return "does not continue the line before: something was edited, added or removed here"
    if row.get("n") != number:
        return f"has number {row.get('n')}, not {number}"
    return None


@dataclass(frozen=True)
class Position:
    """The end of one line: how many bytes and lines lie before it, and the hash of the line."""

    size_bytes: int = 0
    number: int = 0
    hash: str = FIRST_PREVIOUS


BEGINNING = Position()


def checked_rows(path: Path, after: Position = BEGINNING) -> Iterator[Row]:
    """Every event after a position, in order; raises BrokenEvidence at the first line that does not fit the chain."""
    yield from _checked(path, _lines(path, after.size_bytes), after)


def read_after(path: Path, after: Position) -> tuple[list[Row], Position]:
    """The events after a position, and the position behind the last of them."""
    lines = list(_lines(path, after.size_bytes))
    rows = list(_checked(path, lines, after))
    size = after.size_bytes + sum(len(line) + 1 for line in lines)
    return rows, Position(size, rows[-1]["n"], rows[-1]["hash"]) if rows else after


def _checked(path: Path, lines: Iterable[bytes], after: Position) -> Iterator[Row]:
    previous = after.hash
    for number, line in enumerate(lines, start=after.number + 1):
        try:
            row = from_json(line, cache_strings="keys")
        except ValueError:
            row = None
        fault = _fault(line, row, number, previous)
        if fault is not None:
            raise _broken(path, f"line {number} {fault}")
        previous = row["hash"]
        yield row


def _lines(path: Path, offset: int) -> Iterator[bytes]:
    """Whole lines from an offset on, without their newlines; what follows the last newline is a torn line."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        if opened.fault is FaultKind.ABSENT:
            return
        raise _broken(path, opened.reason)
    try:
        with os.fdopen(opened, "rb") as file:
            file.seek(offset)
            while (line := file.readline(LINE_BYTES)).endswith(b"\n"):
                yield line[:-1]
            if len(line) == LINE_BYTES:
                raise _broken(path, f"a line is longer than {LINE_BYTES:,} bytes")
    except OSError as error:
        raise _broken(path, unreadable(path, error).reason) from None


def _broken(path: Path, seen: str) -> BrokenEvidence:
    return BrokenEvidence(
        f"{path}: {seen}",
        f"dreamproof verify {quoted(path.parent)} (then restore the ledger from a copy; never edit it by hand)",
    )


def read_ledger(path: Path) -> list[Row]:
    """All events of a ledger; a missing one has none; an edited one is refused."""
    with collector_paused():
        return list(checked_rows(path))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the garbage collector: it takes a second for a hundred thousand rows and frees nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True)
class Head:
    """How far a ledger was written."""

    number: int
    hash: str
    first: str = ""
    """The beginning of the first event's hash, which another ledger does not have."""


def read_head(path: Path) -> Head | Unreadable:
    """The newest of the two slots of a head file that is whole; a crash while one is written leaves the other."""
    content = read_file(path, 64 * SLOT_BYTES)
    if isinstance(content, Unreadable):
        return content
    slots = [_read_slot(content[start : start + SLOT_BYTES]) for start in (0, SLOT_BYTES)]
    found = [slot for slot in slots if slot is not None]
    if not found:
        return Unreadable(path, "holds no whole record", FaultKind.MALFORMED)
    return max(found, key=lambda head: head.number)


def _read_slot(content: bytes) -> Head | None:
    try:
        value = parse_json(content.decode())
        number, digest, first = value["n"], value["hash"], value.get("first", "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    is_whole = isinstance(number, int) and isinstance(digest, str) and isinstance(first, str)
    return Head(number, digest, first) if is_whole else None


def head_fault(path: Path, head: Head) -> str | None:
    """What a ledger lacks of what its head recorded; None if it goes at least so far."""
    number, digest = 0, FIRST_PREVIOUS
    for row in checked_rows(path):
        number, digest = row["n"], row["hash"]
        if number == 1 and not digest.startswith(head.first):
            return "its first event is not the one that was recorded: this is another ledger"
        if number == head.number:
            break
    if number < head.number:
        return f"it ends after event {number}, although {head.number} were recorded: its end was lost or cut off"
    return None if digest == head.hash else f"event {number} is not the one that was recorded"


def lost_end(path: Path, events: int, thorough: bool = False) -> str | None:
    """Why a ledger of which so many events were read lacks its end, or is another one; None if neither.

    A supervisor may have written more meanwhile, so it is read again before anything is called lost. While it works,
    the ledger is ahead of its head; only a `thorough` look reads the whole ledger then.
    """
    head = read_head(path.with_suffix(HEAD_SUFFIX))
    if not isinstance(head, Head) or (head.number < events and not thorough):
        return None
    is_end = events == head.number and read_tail(path, TAIL_BYTES).endswith(f'{HASH_MARK.decode()}{head.hash}"}}\n')
    return None if is_end else head_fault(path, head)


class _HeadFile:
    """Writes heads into two slots by turns, so that one is whole at any time."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        self._slot = 0

    def write(self, head: Head) -> None:
        """Records a head durably."""
        line = json.dumps({"n": head.number, "hash": head.hash, "first": head.first}).ljust(SLOT_BYTES - 1) + "\n"
        os.pwrite(self._descriptor, line.encode(), self._slot * SLOT_BYTES)
        os.fsync(self._descriptor)
        self._slot = 1 - self._slot

    def close(self) -> None:
        os.close(self._descriptor)


class Ledger:
    """The open ledger of the one supervisor that holds the lease."""

    def __init__(self, path: Path, clock: Callable[[], Moment] = read_moment) -> None:
        self.path = path
        self._clock = clock
        fault = file_fault(path)
        if fault is not None:
            raise _broken(path, fault.reason)
        truncate_partial_line(path)
        self.rows = read_ledger(path)
        self._number = len(self.rows)
        self._previous = self.rows[-1]["hash"] if self.rows else FIRST_PREVIOUS
        self._first = self.rows[0]["hash"][:FIRST_DIGITS] if self.rows else ""
        self._last_moment = moment_of(self.rows[-1]) if self.rows else None
        newest = {row["boot"]: row for row in self.rows if "boot" in row}
        self._last_moments = {boot: moment_of(row) for boot, row in newest.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._place = _identity(path.parent)
        self._descriptor = open_own_file(path, os.O_RDWR | os.O_APPEND)
        self._size_bytes = os.fstat(self._descriptor).st_size
        self._unsettled = False
        """Whether bytes of a failed write may lie behind the last event."""
        self._open_head(path.with_suffix(HEAD_SUFFIX))

    def _open_head(self, path: Path) -> None:
        """Records a lost end of the ledger, then the present head."""
        before = read_head(path)
        if isinstance(before, Unreadable) and before.fault is FaultKind.BLOCKED:
            os.close(self._descriptor)
            raise _broken(path, before.reason)
        self._head = _HeadFile(path)
        self.shortened: list[Row] = []
        """That the end of the ledger was lost, if it was; for people."""
        if isinstance(before, Head) and self._is_other(before):
            self._head.close()
            os.close(self._descriptor)
            raise BrokenEvidence(
                f"{self.path}: its events are not those that were recorded: this is another ledger",
                f"restore the ledger from a copy; if it is the right one after all: rm {quoted(path)}",
            )
        if isinstance(before, Head) and before.number > self._number:
            self.shortened = self.append_all([LedgerShortened(before.number, self._number)])
            self.rows += self.shortened
        elif self.rows:
            self._record_head()

    def _is_other(self, head: Head) -> bool:
        """Whether this ledger holds another event where the head recorded one: the newest, or the first."""
        if self.rows and not self.rows[0]["hash"].startswith(head.first):
            return True
        return 0 < head.number <= self._number and self.rows[head.number - 1]["hash"] != head.hash

    def _record_head(self) -> None:
        self._head.write(Head(self._number, self._previous, self._first))

    def append(self, event: Event, durable: bool = True) -> Row:
        """Adds one event; durable ones survive a power cut."""
        return self.append_all([event], durable)[-1]

    def append_all(self, events: list[Event], durable: bool = True) -> list[Row]:
        """Adds events in one write: all of them, or LedgerFailure and none; a clock jump comes first.

        A power cut may leave the first ones.
        """
        rows, lines = [], []
        number, previous = self._number, self._previous
        moment = self._clock()
        for event in [*self._clock_jumps(moment), *events]:
            number += 1
            row = encodable({"n": number, **moment_fields(moment), **event.row(), "prev": previous})
            line, previous = sealed_line(row)
            row["hash"] = previous
            rows.append(row)
            lines.append(line)
        try:
            self._write(b"".join(lines), durable)
        except OSError as error:
            raise LedgerFailure(error.errno, error.strerror, str(self.path)) from error
        self._number, self._previous = number, previous
        self._first = self._first or rows[0]["hash"][:FIRST_DIGITS]
        self._last_moment = self._last_moments[moment.boot] = moment
        if durable:
            # A head that lags behind the ledger hides nothing that is there; `close` insists on it.
            with suppress(OSError):
                self._record_head()
        return rows

    def _clock_jumps(self, moment: Moment) -> list[Event]:
        """What happened to the clocks since the last event, for the record: it is never billed."""
        before = self._last_moments.get(moment.boot, self._last_moment)
        jumps = jumps_between(before, moment) if before is not None else []
        return [ClockJumped(jump.kind, jump.seconds, jump_text(jump.kind, jump.seconds)) for jump in jumps]

    def _write(self, content: bytes, durable: bool) -> None:
        """Writes all of `content` or takes back what was written of it."""
        if self._unsettled:
            os.ftruncate(self._descriptor, self._size_bytes)
        self._require_unchanged()
        self._unsettled = True
        written = 0
        try:
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
            if durable:
                os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size_bytes)
                self._unsettled = False
            raise
        self._size_bytes += len(content)
        self._unsettled = False

    def _require_unchanged(self) -> None:
        """Raises BrokenEvidence if somebody else cut, continued or replaced the file; one that is gone is restored."""
        own = os.fstat(self._descriptor)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            self._restore()
            return
        if (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            raise _broken(self.path, "another file took its place while the study ran")
        if own.st_size != self._size_bytes:
            raise _broken(
                self.path, f"has {own.st_size:,} bytes, {self._size_bytes:,} were written: it was changed meanwhile"
            )

    def _restore(self) -> None:
        """Writes a removed ledger again: its content is still in the open file."""
        if _identity(self.path.parent) != self._place:  # the study was moved, and somebody made the folder again
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        write_bytes(self.path, os.pread(self._descriptor, self._size_bytes, 0))
        os.close(self._descriptor)
        self._descriptor = open_own_file(self.path, os.O_RDWR | os.O_APPEND)

    @property
    def position(self) -> Position:
        """The end of the last line."""
        return Position(self._size_bytes, self._number, self._previous)

    def close(self) -> None:
        """Ends the writing; the head is as far as the ledger from here on."""
        try:
            if self._unsettled:
                os.ftruncate(self._descriptor, self._size_bytes)
            if self._number:
                self._record_head()
        except OSError as error:
            raise LedgerFailure(error.errno, error.strerror, str(self.path)) from error
        finally:
            self._head.close()
            os.close(self._descriptor)
