"""JSON lines: append one, read many; a torn last line is normal and is left out, a broken one is skipped."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dreamproof.base.files import Unreadable, open_own_file, open_regular, parse_json, read_tail

ROWS_BYTES = 64 << 20
"""What is read of a log at most; a file may be larger than memory."""
LINE_BYTES = 4 << 20


def json_line(row: Any) -> str:
    """One row as one line, newline included."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_row(line: str) -> dict[str, Any] | None:
    """The JSON object in a line, or None."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def each_row(path: Path, limit_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """Every whole row that parses, one by one, of the last `limit_bytes` where given; for logs, not for the ledger."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return
    with os.fdopen(opened, "rb") as file:
        try:
            if limit_bytes is not None:
                file.seek(max(0, file.seek(0, os.SEEK_END) - limit_bytes))
            while line := file.readline(LINE_BYTES):
                row = parse_row(line.decode("utf-8", errors="replace")) if line.endswith(b"\n") else None
                if row is not None:
                    yield row
        except OSError:
            return


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All that each_row finds in as much of a file as fits into memory."""
    return list(each_row(path, ROWS_BYTES))


def last_rows(path: Path, limit_bytes: int) -> list[dict[str, Any]]:
    """Rows at the end of a file, oldest first, with or without the newline of the last one."""
    lines = read_tail(path, limit_bytes).split("\n")
    return [row for line in lines if (row := parse_row(line)) is not None]


def truncate_partial_line(path: Path) -> bool:
    """Cuts an unfinished last line off; True if there was one."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with os.fdopen(open_own_file(path, os.O_RDWR), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return False
        position, keep = size, 0
        while position > 0 and keep == 0:
            start = max(0, position - 65536)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            keep = start + found + 1 if found >= 0 else 0
            position = start
        file.truncate(keep)
        os.fsync(file.fileno())
    return True


def append_rows(path: Path, rows: list[Any], durable: bool = False) -> None:
    """Appends whole lines in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_own_file(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write("".join(map(json_line, rows)).encode())
        if durable:
            file.flush()
            os.fsync(file.fileno())
