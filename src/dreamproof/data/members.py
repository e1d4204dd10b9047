"""Where the members of an uncompressed zip file lie, so that arrays can be mapped from the file instead of read."""

import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dreamproof.base.errors import BadInput
from dreamproof.base.safe_text import printable

LOCAL_HEADER = struct.Struct("<4s5H3I2H")
LOCAL_SIGNATURE = b"PK\x03\x04"
ENCRYPTED = 0x1
MAX_MEMBERS = 100_000
PIECE_BYTES = 1 << 20
HINT = "check where the file came from; see docs/multitask.md"


class StoredMember(NamedTuple):
    """Where the bytes of a member begin in the file, and how many they are."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.start + self.size


def refusal(path: Path, reason: str) -> BadInput:
    """The error for a file that is not what it must be."""
    return BadInput(printable(f"{path}: refused: {reason}"), HINT)


def stored_members(path: Path) -> dict[str, StoredMember]:
    """All members by name; a file that is compressed, encrypted, overlapping or inconsistent is refused."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            found = archive.infolist()
            if len(found) > MAX_MEMBERS:
                raise refusal(path, f"it has {len(found):,} members, more than {MAX_MEMBERS:,}")
            directory = archive.start_dir
            places = [(info.filename, info.header_offset, _member(path, file, info)) for info in found]
    except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, EOFError, OSError) as error:
        raise refusal(path, f"it is not a readable zip file ({error}); was the download complete?") from None
    _check_order(path, places, directory)
    members = {name: member for name, _, member in places}
    if len(members) != len(places):
        raise refusal(path, "two members have the same name")
    return members


def wrong_checksums(path: Path) -> list[str]:
    """A sentence for every member whose bytes do not match the checksum that the file records."""
    members, wrong = stored_members(path), []
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            place, checksum = members[info.filename], 0
            file.seek(place.start)
            for start in range(0, place.size, PIECE_BYTES):
                checksum = zlib.crc32(file.read(min(PIECE_BYTES, place.size - start)), checksum)
            if checksum != info.CRC:
                reason = "they changed, or it was saved without one"
                wrong.append(f"{path}: the bytes of its member {info.filename} do not match its checksum; {reason}")
    return wrong


def _member(path: Path, file: BinaryIO, info: zipfile.ZipInfo) -> StoredMember:
    name = info.filename
    if name != info.orig_filename or "\\" in name or os.path.isabs(name) or ".." in name.split("/"):
        raise refusal(path, f"the name of its member {name!r} leads out of the file")
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise refusal(path, f"its member {name} is compressed and cannot be mapped; save it with numpy.savez")
    file.seek(info.header_offset)
    signature, _, flags, method, *_, name_size, extra_size = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    if (info.flag_bits | flags) & ENCRYPTED:
        raise refusal(path, f"its member {name} is encrypted")
    local_name = file.read(name_size)
    if (
        signature != LOCAL_SIGNATURE
        or method != 0
        or local_name not in (name.encode(), name.encode("cp437", "replace"))
    ):
        raise refusal(path, f"the header of its member {name} contradicts the directory")
    return StoredMember(info.header_offset + LOCAL_HEADER.size + name_size + extra_size, info.file_size)


def _check_order(path: Path, places: list[tuple[str, int, StoredMember]], directory: int) -> None:
    """Every member begins where the one before it has ended, the first at the beginning of the file."""
    end = 0
    for name, header, member in sorted(places, key=lambda place: place[1]):
        if header < end:
            raise refusal(path, f"its member {name} overlaps another one")
        if end == 0 and header != 0:
            raise refusal(path, "something stands before its first member")
        end = member.end
    if end > directory:
        raise refusal(path, "a member reaches into the directory of the file")
