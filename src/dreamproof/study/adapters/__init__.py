"""Other people's run folders, each read by one adapter."""

import functools

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import RunFolder
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.adapters.api import Adapter, TrainerFormat
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.adapters.embodied import EmbodiedAdapter
from dreamproof.study.adapters.native import NativeAdapter
from dreamproof.study.adapters.printed import BracketLinesAdapter, LinePatternAdapter
from dreamproof.study.adapters.sb3 import Sb3Adapter
from dreamproof.study.adapters.tables import CsvAdapter, JsonlAdapter
from dreamproof.study.adapters.tensorboard import TensorboardAdapter
from dreamproof.study.adapters.wandb import WandbAdapter

# `auto` takes the first that matches: those with more evidence come first.
KINDS = (
    NativeAdapter,
    EmbodiedAdapter,
    Sb3Adapter,
    JsonlAdapter,
    CsvAdapter,
    TensorboardAdapter,
    WandbAdapter,
    LinePatternAdapter,
    BracketLinesAdapter,
)


@functools.lru_cache(maxsize=64)
def make_adapters(trainer_format: TrainerFormat | None = None) -> dict[str, Adapter]:
    """Every adapter by name, for files of this format."""
    made: list[Adapter] = [kind(trainer_format) for kind in KINDS]
    return {adapter.name: adapter for adapter in [*made, AutoAdapter(made)]}


ADAPTERS = make_adapters()
DEFAULT = NativeAdapter.name


def find_adapter(name: str, trainer_format: TrainerFormat | None = None) -> Adapter:
    """The adapter with this name."""
    if name not in ADAPTERS:
        raise BadInput(f"unknown adapter '{name}' (known: {', '.join(ADAPTERS)})", "dreamproof schema")
    return make_adapters(trainer_format)[name]


def study_format(study: Study) -> TrainerFormat | None:
    """What the study declares about its trainer's files; None for our own trainers and where it declares nothing."""
    trainer = study.trainer
    if not isinstance(trainer, CommandTrainer):
        return None
    declared = TrainerFormat(trainer.step_key, trainer.line_pattern, trainer.steps_per_count)
    return declared if declared != TrainerFormat() else None


def study_adapter(study: Study) -> Adapter:
    """The adapter of the study's trainer; our own trainers write the native run folder."""
    name = study.trainer.adapter if isinstance(study.trainer, CommandTrainer) else DEFAULT
    return find_adapter(name, study_format(study))


def guess_adapter(run: RunFolder, trainer_format: TrainerFormat | None = None) -> Adapter:
    """The first adapter whose files are in a run folder; `auto`, which names what was looked for, if none is."""
    adapters = make_adapters(trainer_format)
    chosen: Adapter | None = next((one for one in adapters.values() if one.matches(run)), None)
    return chosen or adapters[AutoAdapter.name]
