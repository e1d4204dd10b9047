"""Atomic files and tolerant lines."""

import json
from pathlib import Path

from dreamproof.base.files import file_hash, read_json, read_tail, write_json
from dreamproof.base.lines import append_rows, read_rows, truncate_partial_line


def test_a_json_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "value.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert [entry.name for entry in path.parent.iterdir()] == ["value.json"]


def test_a_half_written_json_file_reads_as_none(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_text('{"a": ')
    assert read_json(path) is None


def test_a_torn_last_line_is_left_out_and_truncated(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_rows(path, [{"n": 1}, {"n": 2}])
    with path.open("a") as file:
        file.write('{"n": 3')
    assert read_rows(path) == [{"n": 1}, {"n": 2}]
    assert truncate_partial_line(path)
    append_rows(path, [{"n": 4}])
    assert [row["n"] for row in read_rows(path)] == [1, 2, 4]


def test_a_torn_tail_longer_than_one_read_is_cut_at_the_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 1}\n' + b"x" * 200_000)
    assert truncate_partial_line(path)
    assert path.read_bytes() == b'{"n": 1}\n'


def test_a_file_without_any_newline_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"y" * 70_000)
    assert truncate_partial_line(path)
    assert path.read_bytes() == b""


def test_the_tail_of_a_log_survives_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe" + b"a" * 100)
    assert read_tail(path, 50) == "a" * 50
    assert read_tail(path).startswith("��")


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(json.dumps([1]))
    first = file_hash(path)
    path.write_text(json.dumps([2]))
    assert file_hash(path) != first
