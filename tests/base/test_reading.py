"""Reads are total: whatever lies at a path, they give a value or a reason, and never wait."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.study.test_containment import BEATS, KINDS

from dreamproof.base.files import (
    FaultKind,
    Unreadable,
    content_hash,
    file_fault,
    list_folder,
    load_json,
    parse_json,
    read_file,
    read_tail,
)
from dreamproof.base.lines import last_rows, read_rows

LONG = "x" * 300


def reads(path: Path) -> list[Any]:
    return [read_file(path), load_json(path), content_hash(path), file_fault(path)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_gives_its_reason(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.json"
    KINDS[kind](path)
    found = reads(path)
    assert all(isinstance(one, Unreadable) and one.fault is FaultKind.BLOCKED for one in found)
    assert str(found[0]).startswith("x.json: ")
    assert (read_tail(path), read_rows(path), last_rows(path, 100)) == ("", [], [])


@pytest.mark.parametrize("name", ["missing", LONG, "nul\0", "missing/below"])
def test_a_path_that_leads_nowhere_gives_its_reason(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert all(isinstance(one, Unreadable) for one in reads(path)[:3])
    assert isinstance(list_folder(path), Unreadable)
    assert (read_tail(path), read_rows(path)) == ("", [])


@pytest.mark.parametrize("content", BEATS.values(), ids=BEATS)
def test_json_that_is_nonsense_gives_a_value_or_a_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    found = load_json(path)
    assert not isinstance(found, Unreadable) or found.fault is FaultKind.MALFORMED
    str(found).encode()


def test_halves_of_surrogate_pairs_become_text_that_can_be_written() -> None:
    assert parse_json('{"a\\ud800": ["\\udc00", "\\ud83d\\ude00"]}') == {"a�": ["�", "😀"]}


def test_a_file_larger_than_all_memory_is_read_in_part_only(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    with path.open("wb") as file:
        file.truncate(5 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"step": 7}\n')
    found = load_json(path, limit_bytes=1000)
    assert isinstance(found, Unreadable) and "larger than 1,000 bytes" in found.reason
    assert read_tail(path, 100).endswith('{"step": 7}\n')
    assert last_rows(path, 1000) == [{"step": 7}]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EACCES, errno.ELOOP])
@pytest.mark.parametrize("call", ["open", "fstat", "read"])
def test_an_error_of_the_system_at_any_call_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    if call == "read":
        monkeypatch.setattr(os, "fdopen", lambda descriptor, *_: _Failing(descriptor, number))
        monkeypatch.setattr(os, "read", fail)
    else:
        monkeypatch.setattr(os, call, fail)
    found = [read_file(path), content_hash(path)]
    monkeypatch.undo()
    assert all(isinstance(one, Unreadable) and os.strerror(number) in one.reason for one in found)


class _Failing:
    """An open file whose disk fails."""

    def __init__(self, descriptor: int, number: int) -> None:
        self._descriptor, self._number = descriptor, number

    def __enter__(self) -> "_Failing":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def read(self, *_: int) -> bytes:
        raise OSError(self._number, os.strerror(self._number))


def test_depth_counts_brackets_outside_of_strings_only() -> None:
    text = '["' + "[{" * 200 + '\\"", {"\\\\": "]"}]'
    assert parse_json(text)[1] == {"\\": "]"}
    flat, deep = "[" + "[[]]," * 100 + "[]]", "[" * 65 + '"]"' + "]" * 65
    assert len(parse_json(flat)) == 101
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(deep)
    assert parse_json(deep[1:-1])


def test_a_file_of_many_pieces_is_read_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b"ab" * 100_000)
    assert read_file(path) == b"ab" * 100_000
    assert read_file(path, 200_000) == b"ab" * 100_000
    assert "is larger than 199,999 bytes" in str(read_file(path, 199_999))
