"""Replaced words do not come back: none of tests/vocabulary.txt in source, tests, documents or command-line help."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dreamproof.cli.main import app

ROOT = Path(__file__).parent.parent
CODE = ("src", "tests", "benchmarks", "examples", "studies")
CODE_ENDINGS = {".py", ".yaml", ".j2", ".xml", ".md"}
THIS = Path(__file__).name
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
# Files that must contain old words: names that old files and old versions use.
EXCEPTIONS = {
    "CHANGELOG.md": {"dream"},
    "src/dreamproof/cli/importing.py": {"strangers"},
    "tests/jaxcore/test_checkpoints.py": {"model/proceed"},
}


def vocabulary() -> dict[str, str]:
    """Replacement by regular expression."""
    lines = (ROOT / "tests" / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" -> ", 1) for line in lines if line and not line.startswith("#"))


VOCABULARY = {re.compile(old): new for old, new in vocabulary().items()}
# All at once, for speed: few files have any of them.
ANY_OF_THEM = re.compile(r"\b(?:" + "|".join(old.removeprefix(r"\b") for old in vocabulary()) + ")")


def documents() -> Iterator[Path]:
    for folder in CODE:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in CODE_ENDINGS and path.name != THIS)
    yield from (ROOT / "docs").rglob("*.md")
    yield from (ROOT / "gallery").glob("*/README.md")
    yield from (ROOT / name for name in PAGES)


def newest_changes() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]


@functools.cache
def help_texts() -> dict[str, str]:
    verbs = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    calls = [["--help"], *([verb, "--help"] for verb in verbs)]
    return {" ".join(call): CliRunner().invoke(app, call).output for call in calls}


def findings(name: str, text: str) -> list[str]:
    """One line per replaced word; the parts of a name_with_underscores count as words too."""
    found = {
        (text.count("\n", 0, match.start()) + 1, match[0], new)
        for view in (text, text.replace("_", " "))
        if ANY_OF_THEM.search(view)
        for old, new in VOCABULARY.items()
        for match in old.finditer(view)
        if match[0] not in EXCEPTIONS.get(name, ())
    }
    return [f"{name}:{line}: '{old}', use '{new}'" for line, old, new in sorted(found)]


def test_the_list_is_well_formed() -> None:
    assert len(vocabulary()) > 30
    for old in vocabulary():
        assert not re.search(old, ""), old


def test_a_replaced_word_is_found() -> None:
    assert findings("text", "first line\n5 seeds a side") == ["text:2: 'seeds a side', use 'seeds per arm'"]
    assert findings("code", "def test_what_is_told() -> None:") == ["code:1: 'told', use 'given, reported, printed'"]


def test_every_exception_is_needed() -> None:
    for name, allowed in EXCEPTIONS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert [word for word in allowed if word not in text] == [], name


def test_no_replaced_word_in_code_and_documents() -> None:
    found = [
        line
        for path in documents()
        for line in findings(path.relative_to(ROOT).as_posix(), path.read_text("utf-8", errors="replace"))
    ]
    assert found + findings("CHANGELOG.md", newest_changes()) == []


@pytest.mark.parametrize("call", help_texts())
def test_no_replaced_word_in_command_line_help(call: str) -> None:
    text = help_texts()[call]
    assert "Usage" in text
    assert findings(call, text) == []
