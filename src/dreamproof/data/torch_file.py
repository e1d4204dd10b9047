"""Tensors of a PyTorch file without PyTorch: their description is not executed, their values are mapped."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dreamproof.data.members import StoredMember, refusal, stored_members
from dreamproof.data.safe_pickle import Description, Name, Refused, read_pickle

STORAGES: dict[str, type[np.generic]] = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


class Storage(NamedTuple):
    """A run of equal numbers in a file."""

    kind: np.dtype[Any]
    member: StoredMember


def read_torch_file(path: Path) -> Any:
    """What the file holds: mappings, sequences and Descriptions, with a read-only mapped array for every tensor."""
    members = stored_members(path)
    root = next(iter(members), "").split("/")[0]
    description = members.get(f"{root}/data.pkl")
    if description is None:
        raise refusal(path, "it has no data.pkl, so it is not a file that torch.save of version 1.6 or later wrote")
    if _content(path, members.get(f"{root}/byteorder")) not in (b"", b"little"):
        raise refusal(path, "its numbers are not in little-endian order")
    reader = _Reader(path, {name.removeprefix(f"{root}/data/"): member for name, member in members.items()})
    try:
        return read_pickle(_content(path, description), reader.make, reader.load_storage)
    except Refused as error:
        raise refusal(path, str(error)) from None


def _content(path: Path, member: StoredMember | None) -> bytes:
    if member is None:
        return b""
    with path.open("rb") as file:
        file.seek(member.start)
        return file.read(member.size)


class _Reader:
    """Makes the tensors that a description names."""

    def __init__(self, path: Path, storages: dict[str, StoredMember]) -> None:
        self.path, self.storages = path, storages

    def load_storage(self, identity: Any) -> Storage:
        """The storage of a persistent id: ('storage', type, key, device, count)."""
        match identity:
            case ("storage", Name("torch", type_name), str(key), _, int(count)):
                pass
            case _:
                raise Refused("it names a storage in an unknown way")
        kind, member = STORAGES.get(type_name), self.storages.get(key)
        if kind is None:
            raise Refused(f"its tensors are of the type {type_name.removesuffix('Storage')}, which is not read here")
        if member is None:
            raise Refused(f"its storage {key} is missing")
        if member.size != count * np.dtype(kind).itemsize:
            raise Refused(f"its storage {key} has {member.size:,} bytes for {count:,} numbers of {type_name}")
        return Storage(np.dtype(kind), member)

    def make(self, called: Name, arguments: tuple[Any, ...]) -> Any:
        """A tensor as a mapped array; a plain container as such; everything else as a Description."""
        if called.name == "_rebuild_tensor_v2":
            return self._tensor(arguments)
        if called.name == "_rebuild_parameter":
            return arguments[0]
        if called == ("torch", "Size"):
            return tuple(arguments[0])
        if called.name == "_reconstructor":
            return Description(arguments[0])
        return Description(called, arguments)

    def _tensor(self, arguments: tuple[Any, ...]) -> np.ndarray:
        storage, offset, shape, strides, *_ = arguments
        if not isinstance(storage, Storage) or not _are_sizes([offset, *shape, *strides]):
            raise Refused("it describes a tensor by what are no sizes")
        count = math.prod(shape)
        if count and not _is_packed(shape, strides):
            raise Refused(f"a tensor of the shape {tuple(shape)} is a view with strides {tuple(strides)}, not whole")
        place = storage.member.start + offset * storage.kind.itemsize
        if place + count * storage.kind.itemsize > storage.member.end:
            raise Refused(f"a tensor of the shape {tuple(shape)} reaches beyond its storage")
        if not count:
            return np.zeros(shape, storage.kind)
        return np.memmap(self.path, storage.kind, "r", place, tuple(shape))


def _are_sizes(values: list[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48 for value in values)


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a tensor has no gaps; the stride of an axis of length 1 may be anything."""
    packed = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return len(strides) == len(shape) and all(
        size == 1 or stride == wanted for size, stride, wanted in zip(shape, strides, packed, strict=True)
    )


def mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    """Every mapping inside a value, the outer ones first."""
    waiting, seen = deque([value]), set()
    while waiting:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Description):
            waiting += [one.items, one.arguments, one.state]
        elif isinstance(one, Mapping):
            yield one
            waiting += list(one.values())
        elif isinstance(one, list | tuple):
            waiting += list(one)
