"""Runs verbs as a person would, inside this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dreamproof.cli.main import main


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
