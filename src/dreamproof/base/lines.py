"""JSON lines: append one, read many; a torn last line is normal and is left out."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dreamproof.base.files import open_own_file


def json_line(row: Any) -> str:
    """One row as one line, newline included."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(1-based number, content) of every line that ends with a newline; a missing file has none."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line[:-1]


def each_row(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole row that parses as a JSON object, one by one; broken ones are skipped (for logs, not the ledger)."""
    for _, line in whole_lines(path):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All that each_row finds."""
    return list(each_row(path))


def mend_torn_tail(path: Path) -> bool:
    """Cuts an unfinished last line off; True where there was one."""
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
