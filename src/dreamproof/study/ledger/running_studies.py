"""Which studies run on this machine: a register of supervisors, checked by process identity, and every living shim.

Other containers of the machine cannot be seen from here.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dreamproof.base.files import read_json, real_path, write_json
from dreamproof.runs.layout import AttemptFolder, StudyFolder
from dreamproof.study.ledger.lease import is_elsewhere
from dreamproof.study.process.processes import ProcessIdentity, boot_id, is_alive

SHIMS = ("dreamproof.study.process.shim", "dreamproof.study.backends.slurm.node")


def register_folders() -> list[Path]:
    """Where running supervisors of this user are written down: the state folder, or else a folder for temporary files.

    Both are the same in every session of the user, a cron job's included.
    """
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return [Path(state) / "dreamproof" / "running", Path(tempfile.gettempdir()) / f"dreamproof-{os.getuid()}-running"]


@contextmanager
def registered(root: Path, has_attempts: Callable[[], bool]) -> Iterator[None]:
    """Writes this process down as the supervisor of a study; the entry stays while the study's attempts run on."""
    entry = _write_entry(real_path(root))
    try:
        yield
    finally:
        if entry is not None and not has_attempts():
            with suppress(OSError):
                entry.unlink()


def _write_entry(root: Path) -> Path | None:
    """The entry; None if no folder can be written: the study's shims can still be seen."""
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    name = f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:24]}.json"
    for folder in register_folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid():
                write_json(folder / name, {"study": str(root), **identity.as_json()}, durable=False)
                return folder / name
    return None


def other_studies(root: Path) -> list[str]:
    """Every other study that is supervised or worked on here, each with the process that shows it."""
    own = real_path(root)
    found: dict[Path, str] = {}
    for study, use in [*_registered_studies(), *_studies_of_shims()]:
        if own not in (study, *study.parents) and study not in found:
            found[study] = use
    return [f"{study} ({use})" for study, use in sorted(found.items())]


def _registered_studies() -> Iterator[tuple[Path, str]]:
    for folder in register_folders():
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            entry = _content(path)
            holder = ProcessIdentity.read(entry)
            if not isinstance(entry, dict) or holder is None or is_elsewhere(holder):
                continue
            study = Path(str(entry.get("study")))
            use = _use(study, holder) if holder.boot_id == boot_id() else None
            if use is not None:
                yield study, use
            elif _content(path) == entry:  # not one that another supervisor has just written
                with suppress(OSError):
                    path.unlink()


def _content(path: Path) -> Any:
    """A JSON file's content; None if it cannot be read."""
    try:
        return read_json(path)
    except OSError:
        return None


def _use(study: Path, holder: ProcessIdentity) -> str | None:
    """What shows that a study is in use: its supervisor, or an attempt that outlives it; None if nothing does."""
    if is_alive(holder):
        return f"supervisor, process {holder.process_id}"
    for process in _living_of(study):
        return f"attempt without supervisor, process {process.process_id}"
    return None


def _living_of(study: Path) -> Iterator[ProcessIdentity]:
    """Shims and commands of a study's attempts that live."""
    attempts = StudyFolder(study).attempts
    for place in sorted(attempts.iterdir()) if attempts.is_dir() else ():
        folder = AttemptFolder(place)
        claim: Any = None if folder.exit.exists() else _content(folder.shim)
        for who in ("shim", "child") if isinstance(claim, dict) else ():
            identity = ProcessIdentity.read(claim.get(who))
            if identity is not None and is_alive(identity):
                yield identity


def _studies_of_shims() -> Iterator[tuple[Path, str]]:
    """Studies whose shims run here, from the table of processes."""
    for name in os.listdir("/proc"):
        command = _command_line(name) if name.isdigit() else []
        for module in SHIMS:
            if module in command[:-1]:
                place = Path(command[command.index(module) + 1])
                attempts = place.parent if module == SHIMS[0] else place
                yield Path(os.path.realpath(attempts.parent)), f"attempt, process {name}"


def _command_line(process: str) -> list[str]:
    try:
        content = Path("/proc", process, "cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in content.split(b"\0")]
