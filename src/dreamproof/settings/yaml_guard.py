"""Refuses YAML that would take for ever or too much memory: huge files, deep nesting, aliases that multiply."""

import os
import stat
from pathlib import Path

import yaml

from dreamproof.base.errors import BadInput

MOST_BYTES = 4 << 20
DEEPEST = 50
MOST_NODES = 200_000
"""Nodes of a file with its aliases written out."""
# The parser in C reads the same language about ten times faster.
PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_small_text(path: Path) -> str:
    """The text of a plain file of a size that a person could have written; UTF-8."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path}: is not a plain file", f"ls -l {path}")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise BadInput(f"{path}: is larger than {MOST_BYTES >> 20} MiB, too large for a YAML file", f"ls -lh {path}")
    return content.decode("utf-8")


def check_yaml(text: str, path: Path) -> None:
    """Raises BadInput with the line where a YAML text nests too deep or its aliases grow too large."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, Loader=PARSER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            if len(open_nodes) > DEEPEST + 1:
                raise BadInput(f"{path}:{line}: nested more than {DEEPEST} levels deep", _look(path, line))
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_nodes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size = event.anchor, 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in sizes:
                anchor, size = None, sizes[event.anchor]
            elif any(event.anchor == name for name, _ in open_nodes):
                raise BadInput(f"{path}:{line}: the alias *{event.anchor} contains itself", _look(path, line))
            else:
                anchor, size = None, 1  # an unknown alias, which the parser names
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        before = open_nodes[-1]
        open_nodes[-1] = (before[0], before[1] + size)
        if open_nodes[-1][1] > MOST_NODES:
            raise BadInput(
                f"{path}:{line}: has more than {MOST_NODES:,} values when its aliases are written out",
                _look(path, line),
            )


def _look(path: Path, line: int) -> str:
    return f"sed -n {max(1, line - 2)},{line + 2}p {path}"
