"""Refuses YAML that would take forever or too much memory: huge files, deep nesting, aliases that multiply."""

from pathlib import Path

import yaml

from dreamproof.base.errors import BadInput
from dreamproof.base.text import quoted

MAX_DEPTH = 50
MAX_NODES = 200_000
"""Nodes of a file with its aliases written out."""
# The parser in C reads the same language about ten times faster.
PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(yaml.SafeLoader):
    """Reads `on`, `off`, `yes` and `no` as words, as YAML 1.2 does; only `true` and `false` are truth values."""


BOOLEAN = "tag:yaml.org,2002:bool"
Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in found if tag != BOOLEAN or letter in "tTfF"]
    for letter, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def check_yaml(text: str, path: Path) -> None:
    """Raises BadInput with the line where a YAML text nests too deep or its aliases grow too large."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, Loader=PARSER):
        line = 1 + (event.start_mark.line if event.start_mark is not None else 0)
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            if len(open_nodes) > MAX_DEPTH + 1:
                raise BadInput(f"{path}:{line}: nested more than {MAX_DEPTH} levels deep", _look(path, line))
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
        if open_nodes[-1][1] > MAX_NODES:
            raise BadInput(
                f"{path}:{line}: has more than {MAX_NODES:,} values when its aliases are written out",
                _look(path, line),
            )


def _look(path: Path, line: int) -> str:
    return f"sed -n {max(1, line - 2)},{line + 2}p {quoted(path)}"
