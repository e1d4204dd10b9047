"""A failing disk is never exit code 0; only an output that nobody reads is quiet."""

import errno
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Verb

from dreamproof.cli.main import main
from dreamproof.cli.output import Output
from dreamproof.study import session
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.fuzz import call, record_study
from dreamproof.testing.small_study import declare


@pytest.fixture
def study(tmp_path: Path) -> Path:
    opened = open_study(declare(tmp_path))
    with session.open_ledger(opened) as ledger:
        session.declare(opened, ledger)
    return opened.file


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ENOSPC, errno.EACCES])
def test_any_error_of_the_system_is_a_failure_with_its_reason(
    study: Path, dreamproof: Verb, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number), "some/file")

    monkeypatch.setattr("dreamproof.study.plan.on_disk.open_study", fail)
    shown = dreamproof("verify", study)
    assert shown.code != 0 and "some/file" in shown.errors and "hint:" in shown.errors
    assert "Traceback" not in shown.errors
    asked = dreamproof("verify", study, "--json")
    error = json.loads(asked.output)["error"]
    assert asked.code == error["exit_code"] == shown.code
    assert "some/file" in error["message"] and error["hint"].endswith("run the same command again")


def test_a_ledger_that_cannot_be_written_is_a_failure(
    study: Path, dreamproof: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("ledger.jsonl"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    shown = dreamproof("run", study, "--no-check", "--plain")
    assert shown.code == 1 and "ledger.jsonl: Input/output error (EIO)" in shown.errors


class _Closed(io.StringIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_closed_output_changes_neither_work_nor_exit_code(
    study: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(sys, "stdout", _Closed(number))
    for arguments, code in ((["status", str(study)], 0), (["why", str(study), "nobody/0"], 2)):
        monkeypatch.setattr(sys, "argv", ["dreamproof", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code


def test_text_that_the_terminal_cannot_show_is_replaced() -> None:
    raw = io.BytesIO()
    output = Output(io.TextIOWrapper(raw, encoding="utf-8"))
    output.write("a\ud800b")
    output.flush()
    assert raw.getvalue() == b"a?b"


def test_verify_is_never_0_over_evidence_that_the_disk_does_not_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = record_study(tmp_path / "recorded")
    proven = [root / "runs" / f"low-seed{seed}" for seed in (0, 1)]
    evidence = [path for run in proven for path in run.rglob("*") if path.parts[-3:-1][0] == "checkpoints"]
    evidence += [*(run / "evaluations" / "id.json" for run in proven), root / "ledger.jsonl"]
    assert len(evidence) == 7 and call("verify", root) == 0
    real = os.open
    for bad in evidence:

        def fail(path: Any, *more: Any, bad: Path = bad, **others: Any) -> int:
            if str(path) == str(bad):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            return real(path, *more, **others)

        with monkeypatch.context() as patched:
            patched.setattr(os, "open", fail)
            assert call("verify", root) == 6, bad
