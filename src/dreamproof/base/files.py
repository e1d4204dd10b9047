"""Files that are either whole or absent: atomic writes, and reads that give a value or the reason why there is none."""

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dreamproof.base.safe_text import printable

CHUNK_BYTES = 1 << 20
PIECE_BYTES = 1 << 16
JSON_BYTES = 64 << 20
"""The largest JSON file that is read; an evaluation with its trail takes a few hundred KiB."""
HASHED_BYTES = 1 << 40
MAX_DEPTH = 64
MAX_INT = (1 << 63) - 1
"""Whole numbers of a file fit into 64 bits, so that every program that reads them later can hold them."""


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


def new_temp_file(path: Path) -> tuple[int, Path]:
    """A new file with a random name in the same folder."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), name


def write_bytes(path: Path, content: bytes, durable: bool = True) -> None:
    """Replaces `path` atomically; a reader sees the old content or the new, never a part. An error names `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _replace(path, content, durable)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    if durable:
        sync_folder(path.parent)


def _replace(path: Path, content: bytes, durable: bool) -> None:
    descriptor, name = new_temp_file(path)
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


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replaces a UTF-8 text file atomically; what is no text (half of a surrogate pair) becomes ?."""
    write_bytes(path, text.encode("utf-8", "replace"), durable)


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Replaces a JSON file atomically; keys keep their order."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=True) + "\n", durable)


def real_path(path: Path) -> Path:
    """The absolute path without links; unlike Path.resolve it raises for no link loop and no failing disk."""
    return Path(os.path.realpath(path))


class FaultKind(StrEnum):
    """What kind of reason keeps a file from being read."""

    ABSENT = "absent"
    MALFORMED = "malformed"
    """It can be read and its content is not valid; the next write replaces it."""
    BLOCKED = "blocked"
    """The system does not give its content: a folder, a pipe, no permission, a failing disk."""


@dataclass(frozen=True)
class Unreadable:
    """Why a file gave no value."""

    path: Path
    reason: str
    fault: FaultKind

    def __str__(self) -> str:
        return f"{printable(self.path.name)}: {self.reason}"


def unreadable(path: Path, error: OSError | ValueError) -> Unreadable:
    """An error of the system as the reason why a file cannot be read; a path with a NUL is a ValueError."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        target = _missing_target(path)
        if target is not None:
            return Unreadable(path, f"is a symbolic link to {printable(target)}, which is not there", FaultKind.BLOCKED)
        return Unreadable(path, "is missing", FaultKind.ABSENT)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Unreadable(path, f"cannot be read ({reason})", FaultKind.BLOCKED)


def _missing_target(path: Path) -> str | None:
    """Where a link points that leads nowhere, as to a disk that is not mounted; None if it is no link."""
    try:
        return os.readlink(path)
    except (OSError, ValueError):
        return None


KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path, follow: bool = True) -> int | Unreadable:
    """A descriptor of a regular file; a pipe without a writer does not block, a terminal does not become ours."""
    no_link = 0 if follow else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | no_link)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENXIO:
            return Unreadable(path, "is a socket or a device, not a file", FaultKind.BLOCKED)
        return unreadable(path, error)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    except OSError as error:
        os.close(descriptor)
        # Not absent, whatever the error says: it was opened.
        return Unreadable(path, f"cannot be read ({error.strerror})", FaultKind.BLOCKED)
    if kind == stat.S_IFREG:
        return descriptor
    os.close(descriptor)
    return Unreadable(path, f"is {KINDS.get(kind, 'something else')}, not a file", FaultKind.BLOCKED)


def file_fault(path: Path) -> Unreadable | None:
    """Why a file cannot be opened for reading; None if it can, or if there is none."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return None if opened.fault is FaultKind.ABSENT else opened
    os.close(opened)
    return None


def kind_fault(path: Path, wanted: int) -> Unreadable | None:
    """Why a path is not the wanted kind, `stat.S_IFREG` or `stat.S_IFDIR`; follows no link and opens nothing."""
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
        target = os.readlink(path) if kind == stat.S_IFLNK else ""
    except (OSError, ValueError) as error:
        return unreadable(path, error)
    if kind == wanted:
        return None
    if kind == stat.S_IFLNK:
        return Unreadable(path, f"is a symbolic link to {target}, which is not followed", FaultKind.BLOCKED)
    expected = "a file" if wanted == stat.S_IFREG else "a folder"
    return Unreadable(path, f"is {KINDS.get(kind, 'a file')}, not {expected}", FaultKind.BLOCKED)


def free_name(path: Path) -> Path:
    """The path, or the first one with a number before its ending at which there is nothing."""
    found, number = path, 1
    while os.path.lexists(found):
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


def read_file(path: Path, limit_bytes: int = JSON_BYTES) -> bytes | Unreadable:
    """The content of a regular file of at most `limit_bytes`."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return opened
    pieces, left = [], limit_bytes + 1
    try:
        # Piece by piece: one read of the limit would reserve so much memory for every small file.
        while left and (piece := os.read(opened, min(left, PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        return unreadable(path, error)
    finally:
        os.close(opened)
    if not left:
        return Unreadable(path, f"is larger than {limit_bytes:,} bytes", FaultKind.MALFORMED)
    return b"".join(pieces)


def read_tail(path: Path, limit_bytes: int = 65536) -> str:
    """The last `limit_bytes` of a file as text; bytes that are not UTF-8 become �, what cannot be read is empty."""
    content = tail_bytes(path, limit_bytes)
    return "" if isinstance(content, Unreadable) else content.decode("utf-8", errors="replace")


def tail_bytes(path: Path, limit_bytes: int) -> bytes | Unreadable:
    """The last `limit_bytes` of a regular file."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return opened
    try:
        with os.fdopen(opened, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - limit_bytes))
            return file.read(limit_bytes)
    except OSError as error:
        return unreadable(path, error)


def list_folder(path: Path) -> list[os.DirEntry[str]] | Unreadable:
    """The entries of a folder by name."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except NotADirectoryError:
        is_there = os.path.lexists(path)
        return Unreadable(path, "is not a folder", FaultKind.BLOCKED if is_there else FaultKind.ABSENT)
    except (OSError, ValueError) as error:
        return unreadable(path, error)


def _whole_number(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > MAX_INT:
        raise ValueError(f"holds a whole number of {len(digits)} digits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_int=_whole_number)


def parse_json(text: str) -> Any:
    """The value of a JSON text; ValueError if it is none, too deep, or has numbers beyond 64 bits."""
    try:
        value = _DECODER.decode(text.strip())
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deeper(text, MAX_DEPTH):
        raise ValueError("is nested too deep")
    return encodable(value) if "\\u" in text else value


_ESCAPED = re.compile(r"\\.")
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _is_deeper(text: str, levels: int) -> bool:
    """Whether objects and lists of a JSON text are nested more than so many levels: empty ones are removed so often."""
    outside_strings = "".join(_ESCAPED.sub("", text).split('"')[::2])
    brackets = outside_strings.encode().translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def encodable(value: Any) -> Any:
    """A JSON value whose texts can all be written as UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else printable(value)
    if isinstance(value, dict):
        return {encodable(key): encodable(one) for key, one in value.items()}
    return [encodable(one) for one in value] if isinstance(value, list | tuple) else value


def load_json(path: Path, limit_bytes: int = JSON_BYTES) -> Any | Unreadable:
    """The value in a JSON file, or why there is none."""
    content = read_file(path, limit_bytes)
    if isinstance(content, Unreadable):
        return content
    try:
        return parse_json(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Unreadable(path, f"is not UTF-8 text (byte {error.start})", FaultKind.MALFORMED)
    except json.JSONDecodeError as error:
        return Unreadable(path, f"is not JSON ({error.msg.lower()} at byte {error.pos})", FaultKind.MALFORMED)
    except ValueError as error:
        return Unreadable(path, str(error), FaultKind.MALFORMED)


def read_json(path: Path) -> Any | None:
    """The value in a JSON file, or None if there is no whole one."""
    value = load_json(path)
    return None if isinstance(value, Unreadable) else value


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


def content_hash(path: Path) -> str | Unreadable:
    """The same of a file that may be anything, or why it has none."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return opened
    digest = hashlib.sha256()
    try:
        with os.fdopen(opened, "rb") as file:
            if os.fstat(file.fileno()).st_size > HASHED_BYTES:
                return Unreadable(path, f"is larger than {HASHED_BYTES:,} bytes", FaultKind.MALFORMED)
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
    except OSError as error:
        return unreadable(path, error)
    return digest.hexdigest()
