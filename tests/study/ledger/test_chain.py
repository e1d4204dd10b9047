"""The ledger: a chain that shows every edit, and a tail that may be torn."""

import errno
import os
from pathlib import Path

import pytest
from tests.study.test_containment import KINDS

from dreamproof.base.errors import BrokenEvidence
from dreamproof.study.ledger.chain import (
    Head,
    Ledger,
    LedgerFailure,
    Position,
    checked_rows,
    head_fault,
    read_head,
    read_ledger,
)
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.events import CellReopened, StopRequested


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
    path, head = tmp_path / "ledger.jsonl", (tmp_path / "whole.head").read_bytes()
    for size in [*range(0, len(whole), 7), len(whole)]:
        path.write_bytes(whole[:size])
        path.with_suffix(".head").write_bytes(head)
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_an_event_whose_fsync_fails_is_taken_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(StopRequested("before"))
    size = path.stat().st_size

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        for _ in range(3):
            with pytest.raises(LedgerFailure, match=r"ledger\.jsonl"):
                ledger.append(StopRequested("never"))
            assert path.stat().st_size == size
    ledger.append(StopRequested("after"))
    ledger.close()
    assert [(row["n"], row["by"]) for row in read_ledger(path)] == [(1, "before"), (2, "after")]


def test_what_could_not_be_taken_back_is_taken_back_before_the_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)

    def fail(*_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        patched.setattr(os, "ftruncate", fail)
        with pytest.raises(LedgerFailure):
            ledger.append(StopRequested("never"))
    assert b"never" in path.read_bytes()
    ledger.append(StopRequested("after"))
    ledger.close()
    assert [row["by"] for row in read_ledger(path)] == ["after"]


def test_a_text_that_is_no_text_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    row = ledger.append(StopRequested("half \ud800 a pair"))
    ledger.close()
    assert read_ledger(path) == [row]


def test_the_head_shows_a_cut_end_and_survives_a_torn_slot(tmp_path: Path) -> None:
    path, head = tmp_path / "ledger.jsonl", tmp_path / "ledger.head"
    ledger = Ledger(path)
    for by in ("a", "b", "c"):
        ledger.append(StopRequested(by))
    ledger.close()
    rows = read_ledger(path)
    assert read_head(head) == Head(3, rows[-1]["hash"], rows[0]["hash"][:16])
    assert head_fault(path, Head(3, read_ledger(path)[-1]["hash"])) is None
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    found = read_head(head)
    assert isinstance(found, Head)
    assert head_fault(path, found) == "it ends after event 2, although 3 were recorded: its end was lost or cut off"
    content = head.read_bytes()
    for slot in (0, 128):
        head.write_bytes(content[:slot] + b"\0" * 128 + content[slot + 128 :])
        torn = read_head(head)
        assert isinstance(torn, Head) and torn.number in (2, 3)


def test_a_head_that_lags_behind_after_a_crash_is_no_fault(tmp_path: Path) -> None:
    path, head = tmp_path / "ledger.jsonl", tmp_path / "ledger.head"
    ledger = Ledger(path)
    ledger.append(StopRequested("a"))
    before = head.read_bytes()
    ledger.append(StopRequested("b"))
    head.write_bytes(before)
    found = read_head(head)
    assert isinstance(found, Head) and found.number == 1 and head_fault(path, found) is None


def test_a_writer_that_finds_the_end_cut_records_it_and_continues(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    ledger = Ledger(path)
    ledger.close()
    last = read_ledger(path)[-1]
    assert (last["event"], last["recorded"], last["found"]) == ("ledger_shortened", 5, 2)
    Ledger(path).close()
    assert len(read_ledger(path)) == 3


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket", "loop", "device"])
def test_a_ledger_that_is_no_file_is_broken_evidence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ledger.jsonl"
    KINDS[kind](path)
    with pytest.raises(BrokenEvidence):
        read_ledger(path)
    with pytest.raises(BrokenEvidence):
        Ledger(path)
