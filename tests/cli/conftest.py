"""Runs verbs as a person would, inside this process; a finished study to try them on."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dreamproof.cli.main import main
from dreamproof.testing.small_study import run_small


@dataclass(frozen=True)
class Shown:
    """What a verb printed and how it ended."""

    code: int
    output: str
    errors: str


Verb = Callable[..., Shown]


@pytest.fixture
def dreamproof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Calls `dreamproof WORDS…`."""

    def call(*arguments: str | Path) -> Shown:
        monkeypatch.setattr(sys, "argv", ["dreamproof", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return Shown(code, printed.out, printed.err)

    return call


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a study that ran to its end."""
    return run_small(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def finished(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(recorded.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / recorded.name


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is away for a moment is not waited for."""
    monkeypatch.setattr("dreamproof.study.attempts.quarantine.PASSING_SECONDS", 0.0)
