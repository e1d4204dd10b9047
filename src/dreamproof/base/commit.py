"""Which code this is: the git commit of a folder, and whether it was edited since."""

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "DREAMPROOF_CODE_COMMIT"
GIT_SECONDS = 60.0


@dataclass(frozen=True)
class Commit:
    """A commit and the edits since, as git shows them; a commit given by variable has none."""

    name: str
    edits: str = ""

    def __str__(self) -> str:
        return self.name + ("+" if self.edits else "")


def commit_of(folder: Path) -> Commit | None:
    """The commit of a folder in a git repository; None outside of one, or without git."""
    name = git_output(folder, "rev-parse", "HEAD")
    edits = git_output(folder, "diff", "HEAD")
    return None if name is None or edits is None else Commit(name.strip(), edits)


@functools.cache
def code_commit() -> Commit | None:
    """The commit of this program; DREAMPROOF_CODE_COMMIT where the code has no git history."""
    given = os.environ.get(VARIABLE)
    return Commit(given) if given else commit_of(Path(__file__).parent)


def code_name() -> str | None:
    """The commit of this program as records hold it, with + if it was edited since."""
    commit = code_commit()
    return None if commit is None else str(commit)


def git_output(folder: Path, *arguments: str) -> str | None:
    """The output of a git command in a folder as text; None if it fails or is not installed."""
    output = git_bytes(folder, *arguments)
    return None if output is None else output.decode("utf-8", errors="replace")


def git_bytes(folder: Path, *arguments: str) -> bytes | None:
    """The same as bytes."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
