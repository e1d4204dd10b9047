"""Other people's run folders, each read by one adapter."""

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import RunFolder
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.bracket_lines import BracketLinesAdapter
from dreamproof.study.adapters.embodied import EmbodiedAdapter
from dreamproof.study.adapters.jsonl import JsonlAdapter
from dreamproof.study.adapters.native import NativeAdapter

ADAPTERS: dict[str, Adapter] = {
    adapter.name: adapter for adapter in (NativeAdapter(), EmbodiedAdapter(), JsonlAdapter(), BracketLinesAdapter())
}
DEFAULT = NativeAdapter.name


def find_adapter(name: str) -> Adapter:
    """The adapter with this name."""
    if name not in ADAPTERS:
        raise BadInput(f"unknown adapter '{name}' (known: {', '.join(ADAPTERS)})", "dreamproof schema")
    return ADAPTERS[name]


def study_adapter(study: Study) -> Adapter:
    """The adapter of the study's trainer; our own trainers write the native run folder."""
    return find_adapter(study.trainer.adapter if isinstance(study.trainer, CommandTrainer) else DEFAULT)


def guess_adapter(run: RunFolder) -> Adapter:
    """The first adapter whose files are in a run folder; the last one reads any output."""
    return next(adapter for adapter in ADAPTERS.values() if adapter.matches(run))
