"""Which code a run was made by, as the content of its files; what git reports of them is recorded too.

The content decides, not the commit: a rebase changes nothing, an edit that was never committed does.
"""

import functools
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from dreamproof.base.commit import VARIABLE, git_output
from dreamproof.base.files import canonical_json, file_hash, real_path, text_hash
from dreamproof.base.syntax import syntax_hash
from dreamproof.base.text import split_task

COMPUTE_PACKAGES = ("jaxcore", "envs", "nn", "agents", "train", "evaluate")
SOURCE_SUFFIXES = frozenset(
    {
        ".py",
        ".pyx",
        ".pxd",
        ".c",
        ".cc",
        ".cpp",
        ".cxx",
        ".h",
        ".hpp",
        ".cu",
        ".cuh",
        ".rs",
        ".jl",
        ".lua",
        ".sh",
        ".bash",
        ".yaml",
        ".yml",
        ".toml",
        ".gin",
        ".cfg",
        ".ini",
        ".xml",
    }
)
"""What counts of files that git does not know: trainers leave logs and models next to their source."""
NO_SOURCE_SUFFIXES = frozenset(
    {".md", ".rst", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".ipynb", ".log", ".bib", ".mp4"}
)
"""What does not count of files that git knows."""
NO_SOURCE_NAMES = frozenset({"LICENSE", "CITATION.cff", ".gitignore", ".gitattributes", ".gitmodules"})
NO_SOURCE_FOLDERS = frozenset({"docs", "doc", ".github", ".vscode", ".idea"})
OUTPUT_FOLDERS = frozenset(
    {
        "__pycache__",
        "wandb",
        "outputs",
        "multirun",
        "logs",
        "log",
        "logdir",
        "runs",
        "results",
        "checkpoints",
        "ckpt",
        "mlruns",
        "lightning_logs",
        "node_modules",
        "venv",
        "env",
        "site-packages",
        "build",
        "dist",
    }
)
"""Folders whose untracked content is taken for output or installed packages."""
LEDGER = "ledger.jsonl"
STUDY_KEYS = [re.compile(rf"^{key}:".encode(), re.MULTILINE) for key in ("arms", "metric", "trainer")]
LARGE_BYTES = 16 << 20
MAX_FILES = 20_000
MAX_SCRIPT_FILES = 2_000
MAX_DEPTH = 4
MAX_PARSED_BYTES = 4 << 20


@dataclass(frozen=True)
class SourceCode:
    """The files that count, each by the hash of its content, and their state in git."""

    kind: str
    """`package`, `repository`, `beside` (the folder of a script, without git) or `named` (by the study)."""
    files: dict[str, str]
    folder: Path
    commit: str | None = None
    diff_hash: str | None = None
    """Hash of the edits since the commit; None if there are none."""
    untracked_hash: str | None = None
    """Hash of the counted files that git does not know; None if there are none."""
    note: str | None = None
    places: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)
    committed: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The counted files that are as in the commit, so git keeps their content."""

    @functools.cached_property
    def hash(self) -> str:
        """The hash of the content, independent of its path."""
        return text_hash(canonical_json(self.files))

    def facts(self) -> dict[str, Any]:
        """The facts a record holds; nothing of this machine's folders."""
        facts = {
            "hash": self.hash,
            "kind": self.kind,
            "folder": self.folder.name,
            "files": len(self.files),
            "commit": self.commit,
            "diff_hash": self.diff_hash,
            "untracked_hash": self.untracked_hash,
            "note": self.note,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def manifest(self) -> dict[str, Any]:
        """Every file with its hash and, for Python that git does not keep, the hash without comments and layout."""
        return {**self.facts(), "hashes": self.files, "syntax": self._syntax()}

    def _syntax(self) -> dict[str, str]:
        found: dict[str, str] = {}
        left = MAX_PARSED_BYTES
        for name, place in self.places.items():
            counts = name.endswith(".py") and name not in self.committed
            if counts and (left := left - place.stat().st_size) >= 0:
                digest = syntax_hash(place.read_bytes())
                found |= {name: digest} if digest is not None else {}
        return found


def own_code(task: str, folder: Path) -> SourceCode:
    """What our own trainers compute with: the compute packages, and the file of a task that is not ours.

    `folder` is where the trainer runs. What plans, reports or prints does not count.
    """
    root = Path(__file__).parents[1]
    found = [path for name in COMPUTE_PACKAGES for path in sorted((root / name).rglob("*.py"))]
    places = {path.relative_to(root).as_posix(): path for path in found}
    source, _ = split_task(task)
    file = folder / (source if source.endswith(".py") else source.replace(".", "/") + ".py")
    if source and file.is_file():
        places[f"task/{file.name}"] = file
    new = frozenset(_listed(root, "ls-files", "-z", "--others", "--exclude-standard"))
    code = _code("package", root, places, True, new)
    given = os.environ.get(VARIABLE)
    if not given:
        return code
    return replace(code, commit=given, diff_hash=None, untracked_hash=None, committed=frozenset())


def script_code(script: Path | None, folder: Path, excluded: Iterable[Path]) -> SourceCode:
    """The repository of a script, or of a folder if the script is unknown; without git, its source files."""
    start = real_path(script.parent if script is not None else folder)
    top = git_output(start, "rev-parse", "--show-toplevel")
    if top is None:
        return _script_folder(start, script, [real_path(path) for path in excluded])
    root = Path(top.rstrip("\n"))
    return _repository(root, [real_path(path) for path in excluded])


def named_code(folder: Path, patterns: Iterable[str], excluded: Iterable[Path]) -> tuple[SourceCode, list[str]]:
    """The files that these paths or patterns name, seen from a folder, and the patterns that name none."""
    shut = [real_path(path) for path in excluded]
    places: dict[str, Path] = {}
    empty: list[str] = []
    for pattern in patterns:
        found = [path for path in _named(folder, pattern) if not _inside(real_path(path), shut)]
        places |= {os.path.relpath(path, folder): path for path in found}
        empty += [] if found else [pattern]
    return _code("named", folder, places, git_output(folder, "rev-parse", "HEAD") is not None), empty


def _named(folder: Path, pattern: str) -> Iterator[Path]:
    place = folder / pattern
    if place.is_dir():
        yield from (path for path in sorted(place.rglob("*")) if path.is_file() and not _is_output(path, place))
    elif place.is_file():
        yield place
    elif not Path(pattern).is_absolute() and pattern:
        yield from (path for path in sorted(folder.glob(pattern)) if path.is_file())


def _repository(root: Path, excluded: list[Path]) -> SourceCode:
    tracked = _listed(root, "ls-files", "-z", "--cached", "--recurse-submodules")
    untracked = _listed(root, "ls-files", "-z", "--others", "--exclude-standard")
    studies = _study_folders([*tracked, *untracked])
    names = [name for name in tracked if not _is_document(name)]
    new = [name for name in untracked if _is_source(name)]
    places = {
        name: root / name
        for name in sorted({*names, *new})
        if not _inside(root / name, excluded) and not any(name.startswith(f"{study}/") for study in studies)
    }
    return _code("repository", root, places, True, frozenset(new))


def _script_folder(folder: Path, script: Path | None, excluded: list[Path]) -> SourceCode:
    """The script and the source files of its folder and below, up to a limit."""
    places = {} if script is None else {script.name: script}
    note = None
    for path in _walk(folder, excluded):
        if len(places) >= MAX_SCRIPT_FILES:
            note = f"the first {MAX_SCRIPT_FILES} files only; name what counts under trainer.code"
            break
        places[path.relative_to(folder).as_posix()] = path
    return _code("beside", folder, dict(sorted(places.items())), False, note=note)


def _walk(folder: Path, excluded: list[Path]) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        place = Path(here)
        if LEDGER in names or _inside(place, excluded):
            folders.clear()
            continue
        deep = len(place.relative_to(folder).parts) >= MAX_DEPTH
        folders[:] = [] if deep else sorted(name for name in folders if not _is_output_folder(name))
        yield from (
            place / name
            for name in sorted(names)
            if Path(name).suffix in SOURCE_SUFFIXES and not _inside(place / name, excluded)
        )


def _code(
    kind: str,
    folder: Path,
    places: dict[str, Path],
    in_git: bool,
    untracked: frozenset[str] = frozenset(),
    note: str | None = None,
) -> SourceCode:
    if len(places) > MAX_FILES:
        note = f"the first {MAX_FILES} files only; name what counts under trainer.code"
        places = dict(sorted(places.items())[:MAX_FILES])
    hashed = {name: _content_hash(path) for name, path in places.items() if not _is_study_file(path)}
    files = {name: digest for name, digest in hashed.items() if digest is not None}
    places = {name: places[name] for name in files}
    commit, diff, committed = _in_git(folder, places) if in_git else (None, None, frozenset())
    new = {name: files[name] for name in sorted(untracked) if name in files}
    new_hash = text_hash(canonical_json(new)) if new else None
    return SourceCode(kind, files, folder, commit, diff, new_hash, note, places, committed)


def _in_git(folder: Path, places: dict[str, Path]) -> tuple[str | None, str | None, frozenset[str]]:
    """The commit, the hash of the edits since, and which of the files are as in the commit."""
    commit = (git_output(folder, "rev-parse", "HEAD") or "").strip()
    if not commit:
        return None, None, frozenset()
    edited = [name for name in _listed(folder, "diff", "--name-only", "--relative", "-z", "HEAD") if name in places]
    text = git_output(folder, "diff", "HEAD", "--", *edited) if edited else None
    kept = places.keys() & _listed(folder, "ls-tree", "-r", "-z", "--name-only", commit)
    return commit, text_hash(text) if text else None, frozenset(kept.difference(edited))


_HASHED: dict[Path, tuple[tuple[int, int, int], str]] = {}


def _content_hash(path: Path) -> str | None:
    """The hash of a plain file's content; of a link, of where it leads; of a large file, of its size alone."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return text_hash(f"link {os.readlink(path)}")
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > LARGE_BYTES:
            return text_hash(f"large {found.st_size}")
        state = (found.st_size, found.st_mtime_ns, found.st_ino)
        known = _HASHED.get(path)
        if known is None or known[0] != state:
            known = _HASHED[path] = (state, file_hash(path))
        return known[1]
    except OSError:
        return hashlib.sha256(b"unreadable").hexdigest() if path.exists() else None


def _listed(root: Path, *arguments: str) -> list[str]:
    return [name for name in (git_output(root, *arguments) or "").split("\0") if name]


def _study_folders(names: Iterable[str]) -> list[str]:
    """Folders of studies, whose files are results and no code."""
    folders = [name.removesuffix(LEDGER).rstrip("/") for name in names if PurePosixPath(name).name == LEDGER]
    return [folder for folder in folders if folder]


def _is_study_file(path: Path) -> bool:
    """Whether a file declares a study: its content is compared as a declaration, not as code."""
    if path.suffix not in (".yaml", ".yml") or not path.is_file() or path.stat().st_size > LARGE_BYTES:
        return False
    content = path.read_bytes()
    return all(key.search(content) for key in STUDY_KEYS)


def _is_document(name: str) -> bool:
    path = PurePosixPath(name)
    folders = set(path.parts[:-1])
    return (
        path.suffix.lower() in NO_SOURCE_SUFFIXES or path.name in NO_SOURCE_NAMES or bool(folders & NO_SOURCE_FOLDERS)
    )


def _is_source(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in SOURCE_SUFFIXES and not any(map(_is_output_folder, path.parts[:-1]))


def _is_output(path: Path, below: Path) -> bool:
    return any(map(_is_output_folder, path.relative_to(below).parts[:-1]))


def _is_output_folder(name: str) -> bool:
    return name in OUTPUT_FOLDERS or name.startswith(".") or name.endswith(".egg-info")


def _inside(path: Path, excluded: list[Path]) -> bool:
    return any(path == one or one in path.parents for one in excluded)
