"""What changed between the code that a manifest describes and the present code."""

import hashlib
from dataclasses import dataclass
from typing import Any

from dreamproof.base.code import SourceCode
from dreamproof.base.commit import git_bytes
from dreamproof.base.syntax import syntax_hash


@dataclass(frozen=True)
class Difference:
    """How present code differs from a manifest, file by file."""

    changed: list[str]
    added: list[str]
    removed: list[str]
    layout: list[str]
    """Python files in which only comments, blank lines or line breaks changed."""

    @property
    def matters(self) -> bool:
        return bool(self.changed or self.added or self.removed)

    def lines(self, limit: int = 8) -> list[str]:
        """`changed train.py`, and so on, cut after `limit`."""
        groups = {"changed": self.changed, "added": self.added, "removed": self.removed}
        lines = [f"{kind} {name}" for kind, names in groups.items() for name in names]
        return lines if len(lines) <= limit else [*lines[:limit], f"and {len(lines) - limit} more files"]


def compare(old: dict[str, Any], new: SourceCode) -> Difference:
    """What changed since a manifest; where other files are counted than before, which content was not there."""
    before, after = old.get("hashes", {}), new.files
    if old.get("kind") != new.kind:
        known = set(before.values())
        return Difference(sorted(name for name, digest in after.items() if digest not in known), [], [], [])
    differing = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    layout = [name for name in differing if name.endswith(".py") and _same_syntax(old, new, name)]
    return Difference(
        [name for name in differing if name not in layout],
        sorted(after.keys() - before.keys()),
        sorted(before.keys() - after.keys()),
        layout,
    )


def _same_syntax(old: dict[str, Any], new: SourceCode, name: str) -> bool:
    before = old.get("syntax", {}).get(name) or _committed_syntax(old, new, name)
    try:
        return before is not None and before == syntax_hash(new.places[name].read_bytes())
    except OSError:
        return False


def _committed_syntax(old: dict[str, Any], new: SourceCode, name: str) -> str | None:
    """The syntax of a file as the old commit holds it; None if git does not have the content of the manifest."""
    commit = old.get("commit")
    content = git_bytes(new.folder, "show", f"{commit}:./{name}") if commit else None
    same = content is not None and hashlib.sha256(content).hexdigest() == old["hashes"][name]
    return syntax_hash(content) if content is not None and same else None
