"""The ledger: a chain that shows every edit, and a tail that may be torn."""

import os
from pathlib import Path

import pytest

from dreamproof.base.errors import BrokenEvidence
from dreamproof.study.clock import Moment
from dreamproof.study.events import CellReopened, StopRequested
from dreamproof.study.ledger import Ledger, Position, checked_rows, read_ledger


def filled(path: Path, count: int = 5) -> Path:
    ledger = Ledger(path)
    for number in range(count):
        ledger.append(StopRequested(f"person {number}"), durable=False)
    ledger.close()
    return path


def test_events_come_back_in_order_with_numbers_and_times(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", clock=lambda: Moment(12.5))
    ledger.append_all([StopRequested("a"), CellReopened("low/0", "again")])
    rows = read_ledger(tmp_path / "ledger.jsonl")
    assert [(row["n"], row["t"], row["event"]) for row in rows] == [
        (1, 12.5, "stop_requested"),
        (2, 12.5, "cell_reopened"),
    ]
    assert rows[1]["prev"] == rows[0]["hash"]


def test_a_missing_ledger_has_no_events(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "ledger.jsonl") == []


def test_a_ledger_cut_at_any_byte_reopens_with_every_whole_line(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.jsonl").read_bytes()
    path = tmp_path / "ledger.jsonl"
    for size in [*range(0, len(whole), 7), len(whole)]:
        path.write_bytes(whole[:size])
        ledger = Ledger(path)
        kept = [row for row in ledger.rows if row["event"] == "stop_requested"]
        assert len(kept) == whole[:size].count(b"\n")
        ledger.append(StopRequested("after"), durable=False)
        ledger.close()
        assert read_ledger(path)[-1]["by"] == "after"


@pytest.mark.parametrize("line", range(5))
def test_an_edited_line_is_named(tmp_path: Path, line: int) -> None:
    path = filled(tmp_path / "ledger.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"person", b"nobody")
    path.write_bytes(b"".join(lines))
    with pytest.raises(BrokenEvidence, match=f"line {line + 1} does not match its own hash"):
        Ledger(path)


def test_a_line_taken_out_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(BrokenEvidence, match="line 3 does not continue"):
        read_ledger(path)


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger.jsonl")
    path.write_bytes(path.read_bytes() + b"\xff\xfe\n")
    with pytest.raises(BrokenEvidence, match="line 6 is not an event"):
        read_ledger(path)


def test_the_rows_after_a_position_continue_the_chain(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    rows = read_ledger(path)
    position = Position(len(lines[0] + lines[1]), 2, rows[1]["hash"])
    assert [row["n"] for row in checked_rows(path, position)] == [3, 4, 5]


def test_a_write_that_fails_halfway_leaves_the_ledger_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "ledger.jsonl")
    ledger = Ledger(path)
    real_write = os.write
    calls = []

    def full_disk(descriptor: int, content: bytes) -> int:
        if calls:
            raise OSError(28, "No space left on device")
        calls.append(descriptor)
        return real_write(descriptor, content[:10])

    before = path.read_bytes()
    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space"):
        ledger.append(StopRequested("late"))
    monkeypatch.undo()
    assert path.read_bytes() == before
    ledger.append(StopRequested("later"))
    assert [row["n"] for row in read_ledger(path)] == [1, 2, 3, 4, 5, 6]
