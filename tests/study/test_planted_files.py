"""Files that we write respect the umask, and nothing planted in their place is followed."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import open_own_file, write_bytes, write_json
from dreamproof.base.lines import append_rows, truncate_partial_line
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.lease import Lease


@pytest.fixture(params=[0o077, 0o027, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    write_json(tmp_path / "a.json", {})
    write_bytes(tmp_path / "a.json", b"again")
    append_rows(tmp_path / "b.jsonl", [{"x": 1}])
    Lease(tmp_path / "lease.json").take()
    Ledger(tmp_path / "ledger.jsonl").close()
    modes = {name: mode(tmp_path / name) for name in ("a.json", "b.jsonl", "lease.json", "ledger.jsonl")}
    assert set(modes.values()) == {0o666 & ~umask}, modes


WRITERS: dict[str, Callable[[Path], object]] = {
    "write": lambda path: write_bytes(path, b"ours"),
    "append": lambda path: append_rows(path, [{"x": 1}]),
    "truncate": truncate_partial_line,
    "lease": lambda path: Lease(path).take(),
    "ledger": Ledger,
    "open": lambda path: os.close(open_own_file(path, os.O_WRONLY | os.O_APPEND)),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_planted_link_is_never_written_through(tmp_path: Path, writer: str, exists: bool) -> None:
    victim, planted = tmp_path / "victim", tmp_path / "planted"
    if exists:
        victim.write_text("precious, without a newline")
    planted.symlink_to(victim)
    try:
        WRITERS[writer](planted)
    except (OSError, BadInput, BrokenEvidence) as error:
        assert "symbolic link" in str(error)
    assert victim.exists() == exists
    assert not exists or victim.read_text() == "precious, without a newline"


@pytest.mark.parametrize("writer", ["append", "lease", "open"])
def test_a_planted_pipe_is_refused_and_does_not_hang(tmp_path: Path, writer: str) -> None:
    os.mkfifo(tmp_path / "planted")
    with pytest.raises((OSError, BadInput)):
        WRITERS[writer](tmp_path / "planted")
