"""Living processes of this machine that write a folder and that no study started."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from dreamproof.base.safe_text import one_line
from dreamproof.study.process.processes import ATTEMPT_VARIABLE, ProcessIdentity, has_variable

COMMAND_CHARACTERS = 80
# Times of files and of processes come from different clocks of the kernel.
CLOCK_SECONDS = 2.0
STANDARD_OUTPUT = 1


@dataclass(frozen=True)
class Writer:
    """A process that writes a folder, or names it in its arguments."""

    process: ProcessIdentity
    command: str
    """Program and script, for people."""
    started_unix_seconds: float
    holds_open: bool = False
    """Whether it has a file of the folder open for writing."""
    names_exactly: bool = False
    """Whether it names the folder itself, not only the beginning of its path."""

    @property
    def text(self) -> str:
        """The process for people."""
        return f"process {self.process.process_id} ({self.command})"


def read_writer(process_id: int) -> Writer | None:
    """The living process with this id; None if there is none."""
    identity = ProcessIdentity.of(process_id)
    try:
        process = psutil.Process(process_id)
        if identity is None or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Writer(identity, program_of(process.cmdline()) or process.name(), process.create_time())
    except psutil.Error:
        return None


def program_of(arguments: list[str]) -> str:
    """Program and script of a command; other arguments may be secrets and are never recorded."""
    script = next((Path(argument).name for argument in arguments[1:] if argument.endswith((".py", ".sh"))), "")
    if not script and "-m" in arguments[:-1]:
        script = f"-m {arguments[arguments.index('-m') + 1]}"
    program = Path(arguments[0]).name if arguments else ""
    return one_line(f"{program} {script}".strip())[:COMMAND_CHARACTERS]


def writers_of(folder: Path) -> list[Writer]:
    """Processes that write the folder, the surest first; left out are attempts of studies and who called this."""
    root = Path(os.path.realpath(folder))
    found = [writer for process in psutil.process_iter() if (writer := _writer(process, root)) is not None]
    return sorted(found, key=lambda one: (not one.holds_open, not one.names_exactly, -one.started_unix_seconds))


def _writer(process: psutil.Process, root: Path) -> Writer | None:
    """The process as a writer of the folder; None if nothing connects them."""
    try:
        holds = _holds_open(process, root)
        named = _named(process, root)
        if not holds and (named is None or not _may_have_made(process, root, named)):
            return None
        if process.pid in callers() or has_variable(process.pid, ATTEMPT_VARIABLE):
            return None
        found = read_writer(process.pid)
    except (psutil.Error, OSError):  # gone, or another user's
        return None
    if found is None:
        return None
    return Writer(found.process, found.command, found.started_unix_seconds, holds, named == root)


def callers() -> set[int]:
    """This process and those that started it: their arguments name folders that they do not write."""
    return {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}


def _holds_open(process: psutil.Process, root: Path) -> bool:
    """Whether a file below the folder is open for writing."""
    return any(one.mode != "r" and Path(one.path).is_relative_to(root) for one in process.open_files())


def _named(process: psutil.Process, root: Path) -> Path | None:
    """The argument that is the folder, or that its path begins with; trainers append a name of their own."""
    texts = [path for path in named_paths(process) if _begins(root, path)]
    return max(texts, key=lambda path: len(str(path)), default=None)


def _begins(root: Path, path: Path) -> bool:
    return str(path).startswith(str(root.parent)) and str(root).startswith(str(path))


def _may_have_made(process: psutil.Process, root: Path, named: Path) -> bool:
    """Whether the folder is the named one, or holds no file that is older than the process."""
    if named == root:
        return True
    times = [entry.stat().st_mtime for entry in os.scandir(root) if entry.is_file()]
    return bool(times) and min(times) >= process.create_time() - CLOCK_SECONDS


def named_paths(process: psutil.Process) -> Iterator[Path]:
    """Absolute paths of a process's arguments, `--key=value` included; the program itself left out."""
    folder = process.cwd()
    for argument in process.cmdline()[1:]:
        text = argument.partition("=")[2] if argument.startswith("-") and "=" in argument else argument
        if "/" in text or os.path.lexists(os.path.join(folder, text)):
            yield Path(os.path.realpath(os.path.join(folder, text)))


def written_folders(process_id: int) -> list[Path]:
    """Folders that a process names or holds files open in, its children included; those with open files first."""
    found: list[Path] = []
    for process in _family(process_id):
        try:
            found += [Path(one.path).parent for one in process.open_files() if one.mode != "r"]
            found += [path for path in named_paths(process) if path.is_dir()]
        except psutil.Error:
            continue
    return list(dict.fromkeys(found))


def output_file(process_id: int) -> Path | None:
    """The file that a process prints to; None for a terminal, a pipe or a process that cannot be read."""
    try:
        path = Path(os.readlink(f"/proc/{process_id}/fd/{STANDARD_OUTPUT}"))
    except OSError:
        return None
    return path if path.is_file() else None


def _family(process_id: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(process_id)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []
