"""The ledger: append-only JSON lines, each holding the hash of the one before. One writer, many readers."""

from __future__ import annotations

import gc
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.lines import mend_torn_tail
from dreamproof.study.clock import Moment, jump_text, jumps_between, moment_fields, moment_of, read_moment
from dreamproof.study.events import ClockJumped

if TYPE_CHECKING:
    from dreamproof.study.events import Event, Row

FIRST_PREVIOUS = "0" * 64
HASH_MARK = b',"hash":"'
HASH_TAIL_BYTES = len(HASH_MARK) + 64 + len(b'"}')


def line_hash(content: bytes) -> str:
    """The hash of a line that ends with its own hash: SHA-256 over everything before the hash, and a brace."""
    return hashlib.sha256(content[:-HASH_TAIL_BYTES] + b"}").hexdigest()


def sealed_line(row: Row) -> tuple[bytes, str]:
    """A row as the line that is written (newline included), and its hash."""
    body = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=True).encode()
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + HASH_MARK + digest.encode() + b'"}\n', digest


def _fault(content: bytes, row: Any, number: int, previous: str) -> str | None:
    if not isinstance(row, dict):
        return "is not an event"
    if content[-HASH_TAIL_BYTES:-66] != HASH_MARK or row.get("hash") != line_hash(content):
        return "does not match its own hash: it was edited"
    if row.get("prev") != previous:
        return "does not continue the line before: something was edited, added or taken out here"
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
    previous = after.hash
    try:
        with path.open("rb") as file:
            file.seek(after.size_bytes)
            content = file.read()
    except FileNotFoundError:
        return
    lines = content.split(b"\n")
    lines.pop()  # what follows the last newline is a torn line, or nothing
    for number, line in enumerate(lines, start=after.number + 1):
        try:
            row = from_json(line, cache_strings="keys")
        except ValueError:
            row = None
        fault = _fault(line, row, number, previous)
        if fault is not None:
            raise BrokenEvidence(
                f"{path}: line {number} {fault}",
                f"dreamproof verify {path.parent} (then put back the ledger from a copy; it is never edited by hand)",
            )
        previous = row["hash"]
        yield row


def read_ledger(path: Path) -> list[Row]:
    """All events of a ledger; a missing one has none; an edited one is refused."""
    with collector_paused():
        return list(checked_rows(path))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Holds the garbage collector still: a hundred thousand rows are no garbage, and counting them costs a second."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Ledger:
    """The open ledger of the one supervisor that holds the lease."""

    def __init__(self, path: Path, clock: Callable[[], Moment] = read_moment) -> None:
        self.path = path
        self._clock = clock
        self.mended = mend_torn_tail(path)
        self.rows = read_ledger(path)
        self._number = len(self.rows)
        self._previous = self.rows[-1]["hash"] if self.rows else FIRST_PREVIOUS
        self._last_moment = moment_of(self.rows[-1]) if self.rows else None
        newest = {row["boot"]: row for row in self.rows if "boot" in row}
        self._last_moments = {boot: moment_of(row) for boot, row in newest.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, event: Event, durable: bool = True) -> Row:
        """Adds one event; durable ones survive a power cut."""
        return self.append_all([event], durable)[-1]

    def append_all(self, events: list[Event], durable: bool = True) -> list[Row]:
        """Adds events in one write, so that all or (when torn) the first ones stand; a clock jump comes first."""
        rows, lines = [], []
        number, previous = self._number, self._previous
        moment = self._clock()
        for event in [*self._clock_jumps(moment), *events]:
            number += 1
            row = {"n": number, **moment_fields(moment), **event.row(), "prev": previous}
            line, previous = sealed_line(row)
            row["hash"] = previous
            rows.append(row)
            lines.append(line)
        self._write(b"".join(lines))
        self._number, self._previous = number, previous
        self._last_moment = self._last_moments[moment.boot] = moment
        if durable:
            os.fsync(self._descriptor)
        return rows

    def _clock_jumps(self, moment: Moment) -> list[Event]:
        """What happened to the clocks since the last event, for the record: it is never billed."""
        before = self._last_moments.get(moment.boot, self._last_moment)
        jumps = jumps_between(before, moment) if before is not None else []
        return [ClockJumped(jump.kind, jump.seconds, jump_text(jump.kind, jump.seconds)) for jump in jumps]

    def _write(self, content: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        written = 0
        try:
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    @property
    def position(self) -> Position:
        """The end of the last line."""
        return Position(os.fstat(self._descriptor).st_size, self._number, self._previous)

    def close(self) -> None:
        """Ends the writing."""
        os.close(self._descriptor)
