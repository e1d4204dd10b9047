"""Named arrays as plain .npz files: no pickle, no code."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.data.members import StoredMember, refusal, stored_members

PIECES: dict[str, Any] = {
    "flags": ["external_loop", "buffered", "zerosize_ok"],
    "op_flags": ["readonly", "contig"],
    "buffersize": 1 << 14,
}


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes one uncompressed .npz in small pieces; refuses what would need pickle.

    np.savez copies up to 16 MB at once, which fragments host memory while a replay grows.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            header = np.lib.format.header_data_from_array_1_0(array)
            with archive.open(name.replace("/", "|") + ".npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, header)
                pieces: Any = np.nditer(array, order="F" if header["fortran_order"] else "C", **PIECES)
                for piece in pieces:
                    file.write(piece.view(np.uint8))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Reads what write_arrays wrote; refuses pickled content."""
    with np.load(path, allow_pickle=False) as file:
        return {name.replace("|", "/"): file[name] for name in file.files}


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """The same, mapped from the file instead of read: only what is looked at is loaded."""
    members = {name.removesuffix(".npy"): member for name, member in stored_members(path).items()}
    return {name.replace("|", "/"): _mapped(path, name, member) for name, member in members.items()}


def _mapped(path: Path, name: str, member: StoredMember) -> np.ndarray:
    with path.open("rb") as file:
        file.seek(member.start)
        try:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, is_fortran, kind = read_header[version](file)
        except (ValueError, KeyError) as error:
            raise refusal(path, f"its member {name} is no array ({error})") from None
        start = file.seek(0, os.SEEK_CUR)
    size = int(np.prod(shape, dtype=object)) * kind.itemsize
    if kind.hasobject:
        raise refusal(path, f"the array {name} holds objects, not numbers")
    if start + size != member.end:
        raise refusal(path, f"the array {name} does not have the size that it declares")
    if not size:
        return np.zeros(shape, kind)
    return np.memmap(path, kind, "r", start, shape, "F" if is_fortran else "C")
