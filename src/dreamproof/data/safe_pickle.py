"""Reads what a pickle describes without executing any of it.

A small machine of its own interprets the operations that files of tensors need. Nothing is imported or called: what the
pickle would call becomes a Description, and only the names that are known to describe tensors are accepted.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_BYTES = 64 << 20
CONTAINERS = ("tensordict",)
"""Packages whose objects may appear; they hold tensors and are described, never made."""
NAMES = frozenset(
    {
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch._utils", "_rebuild_parameter"),
        ("torch._utils", "_rebuild_meta_tensor_no_storage"),
        ("torch", "float32"),
        ("torch", "Size"),
        ("torch", "device"),
        ("collections", "OrderedDict"),
        ("copyreg", "_reconstructor"),
        ("copy_reg", "_reconstructor"),
        ("builtins", "object"),
        ("builtins", "set"),
        ("builtins", "dict"),
        ("builtins", "list"),
        ("__builtin__", "object"),
        ("__builtin__", "set"),
        ("__builtin__", "dict"),
        ("__builtin__", "list"),
    }
)


class Refused(ValueError):
    """What a pickle holds that is not accepted."""


class Name(NamedTuple):
    """Something that the pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Description:
    """An object that the pickle would make: by what, from which arguments, with which state."""

    made_by: Any
    arguments: Any = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    """Entries that are set after it is made, as those of a dictionary."""


Make = Callable[[Name, tuple[Any, ...]], Any]
LoadStorage = Callable[[Any], Any]


def read_pickle(content: bytes, make: Make, load_storage: LoadStorage) -> Any:
    """The value of a pickle; `make` is given what it would call, `load_storage` its persistent ids."""
    if len(content) > MAX_BYTES:
        raise Refused(f"its description has {len(content):,} bytes, more than {MAX_BYTES:,}")
    machine = _Machine(make, load_storage)
    try:
        for operation, argument, _ in pickletools.genops(content):
            if operation.name == "STOP":
                break
            machine.step(operation.name, argument)
    except (IndexError, KeyError, TypeError, RecursionError, MemoryError, UnicodeError) as error:
        raise Refused(f"its pickle is broken ({error})") from None
    except ValueError as error:
        raise error if isinstance(error, Refused) else Refused(f"its pickle is broken ({error})") from None
    if len(machine.stack) != 1 or machine.marks:
        raise Refused("its pickle does not end with one value")
    return machine.stack[0]


class _Machine:
    def __init__(self, make: Make, load_storage: LoadStorage) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}
        self.make, self.load_storage = make, load_storage

    def step(self, operation: str, argument: Any) -> None:
        if operation in PUSHED:
            self.stack.append(argument)
        elif operation in CONSTANTS:
            self.stack.append(CONSTANTS[operation]())
        elif operation not in IGNORED:
            act = ACTS.get(operation)
            if act is None:
                raise Refused(f"its pickle has the operation {operation}, which files of tensors do not need")
            act(self, argument)

    def pop(self) -> Any:
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise Refused("its pickle takes more values than it has")
        return self.stack.pop()

    def pop_marked(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def put(self, index: Any) -> None:
        self.memory[len(self.memory) if index is None else index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memory[index])

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)][::-1]
        self.stack.append(tuple(values))

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise Refused("its pickle appends to something that is no list")
        target += values

    def set_items(self, values: list[Any]) -> None:
        found = self.stack[-1]
        target = found.items if isinstance(found, Description) else found
        if not isinstance(target, dict) or len(values) % 2:
            raise Refused("its pickle sets items of something that has none")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise Refused("its pickle has a key that is neither text nor a number")
            target[key] = value

    def set_item(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("its pickle names something by what is no text")
        found = Name(module, name)
        storage = module == "torch" and name.endswith("Storage")
        if found not in NAMES and not storage and module.split(".")[0] not in CONTAINERS:
            raise Refused(f"its pickle would import {found}")
        self.stack.append(found)

    def stack_name(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        self.name(module, name)

    def reduce(self, _: Any) -> None:
        arguments, called = self.pop(), self.pop()
        if not isinstance(called, Name) or not isinstance(arguments, tuple):
            raise Refused("its pickle calls something that is no name")
        self.stack.append(self.make(called, arguments))

    def build(self, _: Any) -> None:
        state, target = self.pop(), self.stack[-1]
        if not isinstance(target, Description):
            raise Refused("its pickle sets the state of something that has none")
        target.state = state

    def load(self, _: Any) -> None:
        self.stack.append(self.load_storage(self.pop()))


IGNORED = frozenset({"PROTO", "FRAME"})
PUSHED = frozenset(
    {
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
    }
)
CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,
}
ACTS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_marked())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_marked()),
    "ADDITEMS": lambda machine, _: machine.append(machine.pop_marked()),
    "SETITEM": _Machine.set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_marked()),
    "GLOBAL": lambda machine, text: machine.name(*text.split(" ", 1)),
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.load,
}
