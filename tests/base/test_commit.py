"""Which code this is: from git, or given."""

import subprocess
from pathlib import Path

import pytest

from dreamproof.base import commit


def repository(folder: Path) -> Path:
    """A file under git, committed."""
    file = folder / "code.py"
    file.write_text("one\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "code.py"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return file


def test_edits_are_marked(tmp_path: Path) -> None:
    file = repository(tmp_path)
    clean = commit.commit_of(tmp_path)
    assert clean is not None and str(clean) == clean.name and len(clean.name) == 40
    file.write_text("two\n")
    edited = commit.commit_of(tmp_path)
    assert edited is not None and str(edited) == clean.name + "+" and "+two" in edited.edits


def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    assert commit.commit_of(tmp_path) is None


def test_the_commit_of_code_without_history_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(commit.VARIABLE, "abc123")
    commit.code_commit.cache_clear()
    assert commit.code_name() == "abc123"
    monkeypatch.undo()
    commit.code_commit.cache_clear()
