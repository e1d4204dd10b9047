"""Files that are either whole or absent: atomic writes, content hashes, tolerant reads."""

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20


def is_full(error: OSError) -> bool:
    """Whether a write failed because the disk or the quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def unless_full() -> Iterator[None]:
    """Leaves undone what a full disk has no room for; only for what can be written again later."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise


def sync_folder(folder: Path) -> None:
    """Makes a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_own_file(path: Path, flags: int) -> int:
    """A descriptor of one of our own files, made where it is missing; a planted link, pipe or device is refused.

    The mode is what the user's umask leaves.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a plain file", str(path))
    os.set_blocking(descriptor, True)
    return descriptor


def _new_file_beside(path: Path) -> tuple[int, Path]:
    """A file that nobody else has, in the same folder."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), name


def write_bytes(path: Path, content: bytes, durable: bool = True) -> None:
    """Replaces `path` atomically; a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = _new_file_beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replaces a UTF-8 text file atomically."""
    write_bytes(path, text.encode(), durable)


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Replaces a JSON file atomically; keys keep their order."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=True) + "\n", durable)


def read_json(path: Path) -> Any | None:
    """The value in a JSON file, or None where there is no whole one."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces; what hashes are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def text_hash(text: str) -> str:
    """SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content, in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def read_tail(path: Path, limit_bytes: int = 65536) -> str:
    """The last `limit_bytes` of a file as text; bytes that are not UTF-8 become �, a missing file is empty."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit_bytes))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
