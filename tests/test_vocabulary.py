"""Replaced words do not come back: none of tests/vocabulary.txt in source, documents or command-line help."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dreamproof.cli.main import app

ROOT = Path(__file__).parent.parent
SOURCE_ENDINGS = {".py", ".yaml", ".j2", ".xml"}


def vocabulary() -> dict[str, str]:
    """Replacement by regular expression."""
    lines = (ROOT / "tests" / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" -> ", 1) for line in lines if line and not line.startswith("#"))


def documents() -> Iterator[Path]:
    yield from (path for path in (ROOT / "src").rglob("*") if path.suffix in SOURCE_ENDINGS)
    yield from (path for path in (ROOT / "docs").rglob("*.md") if "notebook" not in path.parts)
    yield from (ROOT / "gallery").glob("*/README.md")
    yield from (ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))


def newest_changes() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]


def help_texts() -> dict[str, str]:
    verbs = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    calls = [["--help"], *([verb, "--help"] for verb in verbs)]
    return {" ".join(call): CliRunner().invoke(app, call).output for call in calls}


def findings(name: str, text: str) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: '{found[0]}', use '{new}'"
        for old, new in vocabulary().items()
        for found in re.finditer(old, text, re.MULTILINE)
    ]


def test_the_list_is_well_formed() -> None:
    assert len(vocabulary()) > 30
    for old in vocabulary():
        assert not re.search(old, ""), old


def test_a_replaced_word_is_found() -> None:
    assert findings("text", "first line\n5 seeds a side") == ["text:2: 'seeds a side', use 'seeds per arm'"]


def test_no_replaced_word_in_source_and_documents() -> None:
    found = [line for path in documents() for line in findings(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    assert found + findings("CHANGELOG.md", newest_changes()) == []


@pytest.mark.parametrize("call", help_texts())
def test_no_replaced_word_in_command_line_help(call: str) -> None:
    text = help_texts()[call]
    assert "Usage" in text
    assert findings(call, text) == []
