"""Other people's run folders, each read by one adapter."""

from dreamproof.base.errors import BadInput
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.bracket_lines import BracketLinesAdapter
from dreamproof.study.adapters.embodied import EmbodiedAdapter
from dreamproof.study.adapters.jsonl import JsonlAdapter
from dreamproof.study.adapters.native import NativeAdapter

ADAPTERS: dict[str, Adapter] = {
    adapter.name: adapter for adapter in (NativeAdapter(), EmbodiedAdapter(), BracketLinesAdapter(), JsonlAdapter())
}


def find_adapter(name: str) -> Adapter:
    """The adapter of that name."""
    if name not in ADAPTERS:
        raise BadInput(f"there is no adapter '{name}' (there are {', '.join(ADAPTERS)})", "dreamproof schema")
    return ADAPTERS[name]
