"""Who imports whom: packages (rooms), the arrows between them, imports against the order, and circles."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1]
ALLOWED = {
    "base": set(),
    "settings": {"base"},
    "runs": {"base", "settings"},
    "data": {"base", "settings"},
    "jaxcore": {"base", "settings", "runs", "data"},
    "envs": {"base", "settings", "jaxcore"},
    "nn": {"base", "settings", "jaxcore"},
    "agents": {"base", "settings", "jaxcore", "nn"},
    "train": {"base", "data", "settings", "runs", "jaxcore", "envs", "nn", "agents"},
    "evaluate": {"base", "data", "settings", "runs", "jaxcore", "envs", "nn", "agents"},
    "record": {"base", "data", "settings", "runs", "jaxcore", "envs", "nn", "agents", "evaluate"},
    "study": {"base", "data", "settings", "runs"},
    "stats": {"base"},
    "report": {"base", "settings", "runs", "study", "stats"},
    "web": {"base", "settings", "runs", "study", "stats", "report"},
    "cli": {"base", "data", "settings", "runs", "study", "stats", "report", "web"},
    "testing": {
        "base",
        "data",
        "settings",
        "runs",
        "jaxcore",
        "envs",
        "agents",
        "train",
        "study",
        "stats",
        "report",
        "web",
        "cli",
    },
}
"""What each room may import, besides itself."""
Graph = Mapping[str, set[str]]


def imported_names(path: Path) -> set[str]:
    """Absolute names of everything that a file imports, in functions and under TYPE_CHECKING too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def module_name(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_graph() -> dict[str, set[str]]:
    """Every module and the modules it imports; a package counts where a name is taken from its __init__."""
    files = {module_name(path): path for path in SOURCE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found = imported_names(path)
        parents = {one.rpartition(".")[0] for one in found if one in files}
        names_of = {one: {other for other in found if other.rpartition(".")[0] == one} for one in found & files.keys()}
        used = {one for one, inner in names_of.items() if one not in parents or inner - files.keys()}
        graph[name] = used - {name}
    return graph


def rooms_of(graph: Graph, package: str) -> dict[str, set[str]]:
    """The folders and modules directly below a package, each with the others that it imports."""
    prefix = f"{package}."
    inner = {name: name.removeprefix(prefix).split(".")[0] for name in graph if name.startswith(prefix)}
    rooms: dict[str, set[str]] = {room: set() for room in sorted(set(inner.values()))}
    for name, room in inner.items():
        rooms[room] |= {inner[one] for one in graph[name] if one in inner} - {room}
    return rooms


def arrows(rooms: Graph) -> int:
    """How many pairs of rooms import each other."""
    return sum(map(len, rooms.values()))


def upward_imports(rooms: Graph) -> list[str]:
    """Imports that the order of rooms does not allow."""
    known = {room: used & ALLOWED.keys() for room, used in rooms.items() if room in ALLOWED}
    return [f"{room} → {one}" for room, used in known.items() for one in sorted(used - ALLOWED[room])]


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that reach each other: strongly connected components of more than one node."""
    reach = {name: _reachable(graph, name) for name in graph}
    found = {tuple(sorted({name, *(one for one in reach[name] if name in reach[one])})) for name in graph}
    return sorted(list(group) for group in found if len(group) > 1)


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting: list[str] = [start]
    while waiting:
        following: Iterable[str] = graph.get(waiting.pop(), set()) - seen
        seen |= set(following)
        waiting += following
    return seen
