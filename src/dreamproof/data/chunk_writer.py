"""Writes recorded episodes as a chunk of TD-MPC2: a PyTorch file of one TensorDict, made with NumPy alone."""

import os
import struct
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import sync_folder
from dreamproof.data.recordings import CHUNK_ENDINGS, Recording, check_arrays, check_output, filled_arrays

ROOT = "chunk"
ALIGNMENT_BYTES = 64
PADDING_FIELD = 0x4246
"""The extra field of a member's header by which PyTorch aligns tensors too."""
LOCAL_HEADER_BYTES, ZIP64_FIELD_BYTES = 30, 20
STORAGE_NAMES = {"float32": "FloatStorage", "int32": "IntStorage"}


def write_chunk(path: Path, recording: Recording) -> None:
    """Replaces a file atomically; torch.load gives a TensorDict of obs, action, reward and task (E, T, ...).

    Observations, actions and rewards are written as float32, whatever numbers they are.
    """
    check_output(path, CHUNK_ENDINGS)
    filled = filled_arrays(recording)
    check_arrays(path, filled)
    short = int((filled["rows"] < filled["reward"].shape[1]).sum())
    if short:
        raise BadInput(f"{path}: a chunk cannot record that episodes end early ({short:,} do)", "write an .npz")
    if filled["terminated"].any():
        raise BadInput(f"{path}: a chunk cannot record that episodes end by termination", "write an .npz")
    arrays = {name: filled[name].astype(np.float32, copy=False) for name in ("obs", "action", "reward")}
    arrays["task"] = filled["task"]
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            write_members(file, arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_members(file: IO[bytes], arrays: dict[str, np.ndarray]) -> None:
    """Writes the whole chunk into a file, episode by episode; without times, so equal episodes are equal bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{ROOT}/data.pkl"), describe(arrays))
        archive.writestr(zipfile.ZipInfo(f"{ROOT}/byteorder"), "little")
        for number, array in enumerate(arrays.values()):
            member = zipfile.ZipInfo(f"{ROOT}/data/{number}")
            before = file.seek(0, os.SEEK_CUR) + LOCAL_HEADER_BYTES + len(member.filename) + ZIP64_FIELD_BYTES + 4
            padding = -before % ALIGNMENT_BYTES
            member.extra = struct.pack("<HH", PADDING_FIELD, padding) + b"Z" * padding
            with archive.open(member, "w", force_zip64=True) as stream:
                for episode in array:
                    stream.write(np.ascontiguousarray(episode).view(np.uint8).data)
        archive.writestr(zipfile.ZipInfo(f"{ROOT}/version"), "3\n")


def describe(arrays: dict[str, np.ndarray]) -> bytes:
    """The pickle of a TensorDict as version 0.15 of tensordict writes it, with the arrays' values stored apart."""
    tensors = b"".join(_text(name) + _tensor(number, array) for number, (name, array) in enumerate(arrays.items()))
    episodes, rows = arrays["reward"].shape
    size = _name("torch", "Size") + b"(" + _whole(episodes) + _whole(rows) + b"t\x85R"
    state = (
        b"}("
        + _text("_tensordict")
        + b"}("
        + tensors
        + b"u"
        + _text("_device")
        + b"N"
        + _text("_batch_size")
        + size
        + _text("_td_dim_names")
        + b"Nu"
    )
    make = _name("tensordict._reductions", "_make_td") + _name("tensordict._td", "TensorDict")
    return b"\x80\x02" + make + state + b"\x86R."


def _tensor(number: int, array: np.ndarray) -> bytes:
    """A call of torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)."""
    kind = _name("torch", STORAGE_NAMES[array.dtype.name])
    storage = b"(" + _text("storage") + kind + _text(str(number)) + _text("cpu") + _whole(array.size) + b"tQ"
    strides = [int(np.prod(array.shape[axis + 1 :], dtype=np.int64)) for axis in range(array.ndim)]
    sizes = b"".join(b"(" + b"".join(map(_whole, values)) + b"t" for values in (array.shape, strides))
    hooks = _name("collections", "OrderedDict") + b")R"
    return _name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + _whole(0) + sizes + b"\x89" + hooks + b"tR"


def _name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _whole(number: int) -> bytes:
    digits = number.to_bytes(8, "little", signed=True)
    return b"\x8a" + bytes([len(digits)]) + digits
