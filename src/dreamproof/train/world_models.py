"""A pretrained world model: of a run folder, or of a file that TD-MPC2 or PWM saved."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import file_hash
from dreamproof.base.text import quoted, split_task
from dreamproof.data.arrays import read_arrays
from dreamproof.data.released_model import read_released_model, settings_of
from dreamproof.jaxcore.checkpoints import AGENT_FILE, fill, known_names, named_arrays
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import checkpoint_fault, read_checkpoint, read_settings
from dreamproof.runs.records import CheckpointRecord, RunSettings
from dreamproof.runs.resolved import read_resolved
from dreamproof.settings.cell import CELL_SETTINGS, AnyPwmCell, OfflineCell
from dreamproof.settings.env import EnvSettings
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.strict import validate

NEVER_LOGIT = -30.0
"""Of the termination head of a released model, which has none: its episodes never end early."""
NOT_RELEASED = ("model/termination_head/", "rewards/")
"""Arrays that a released model lacks. Its rewards are not scaled, as those of a new run."""
RELEASED_MEANING: dict[str, tuple[Any, ...]] = {
    "dynamics.kind": ("mlp",),
    "world_model.group": (8,),
    "world_model.reward": ("two_hot", "scalar"),
    "world_model.reward_normalisation": ("scale",),
    "world_model.bin_reach": (10.0,),
}
"""Values with which the parameters of a released model mean what they meant there."""
OPTIONAL = "model/decoder/"
"""Arrays that a model may do without."""


class WantedModel(NamedTuple):
    """What a cell requires of a world model: the tasks that it knows, in their order, and the settings of its agent.

    env: settings of the environment that the cell acts in; None for one that learns from recorded episodes.
    terminates: whether its imagined rollouts may end early.
    """

    tasks: tuple[str, ...]
    settings: PwmSettings
    env: EnvSettings | None = None
    terminates: bool = False


Wanted = Sequence[WantedModel]


def with_world_model(agents: Any, fields: tuple[str, ...], place: Path, wanted: Wanted) -> tuple[Any, str]:
    """Agents (R, ...) whose `fields` come from the world model at `place`, and the hash that names it.

    wanted: what it must fit, for each cell.
    """
    own, static = eqx.partition({name: getattr(agents, name) for name in fields}, eqx.is_array)
    found, name = read_world_model(place, jax.tree.map(lambda x: x[0], own), wanted)
    shared = jax.tree.map(lambda mine, given: jnp.broadcast_to(jnp.asarray(given), mine.shape), own, found)
    # Replicas are updated in place, so each needs its own copy.
    copied = jax.tree.map(jnp.array, shared)
    return agents._replace(**eqx.combine(copied, static)), name


def read_world_model(place: Path, template: Any, wanted: Wanted) -> tuple[Any, str]:
    """A world model in the structure of `template` (without replicas), and a hash that names it."""
    return _of_file(place, template, wanted) if place.is_file() else _of_run(place, template, wanted)


def check_world_model(place: Path, recorded: Mapping[str, str]) -> None:
    """Refuses to resume if the world model at `place` is none of the recorded sources, under whatever name."""
    found = file_hash(place) if place.is_file() else _trained_checkpoint(place)[2].parameter_hash
    if found not in recorded.values():
        raise BadInput(
            f"{place}: is not the world model that this run started with (its hash differs)",
            f"ls -R {place}; then restore it, name the checkpoint that it started with, or use another study folder",
        )


def _of_file(path: Path, template: Any, wanted: Wanted) -> tuple[Any, str]:
    """Takes over a released model; what it lacks stays as in a new run, and nothing terminates."""
    arrays = read_released_model(path)
    for key, value in (item for each in wanted for item in each.settings.model_meaning.items()):
        if value not in RELEASED_MEANING.get(key, (value,)):
            fitting = RELEASED_MEANING[key][0]
            raise BadInput(
                f"{path}: released world models have agent.{key}: {fitting}, not {value}", f"set agent.{key}: {fitting}"
            )
    own = {name: value for name, value in named_arrays(template).items() if name.startswith(NOT_RELEASED)}
    bias = "model/termination_head/last/bias"
    own[bias] = np.full_like(own[bias], NEVER_LOGIT)
    try:
        return _whole(template, own | arrays, str(path)), file_hash(path)
    except BrokenEvidence as error:
        raise BadInput(error.seen, f"the settings that fit it: {settings_of(arrays)}") from None


def _of_run(place: Path, template: Any, wanted: Wanted) -> tuple[Any, str]:
    """The world model of a trained run, and its parameter hash."""
    folder, run, record = _trained_checkpoint(place)
    for each in wanted:
        _check_fit(place, run, each)
    try:
        return _whole(template, read_arrays(folder.root / AGENT_FILE), str(folder.root)), record.parameter_hash
    except BrokenEvidence as error:
        raise BadInput(error.seen, f"use the agent settings and sizes of that run: cat {run.settings}") from None


def _whole(template: Any, arrays: dict[str, np.ndarray], source: str) -> Any:
    """`template` filled with all arrays of a world model; one with more layers than `template` is refused."""
    filled, known = fill(template, arrays, source), known_names(template)
    fields = {name.split("/")[0] for name in known}
    for name in sorted(arrays):
        if name.split("/")[0] in fields and name not in known and not name.startswith(OPTIONAL):
            raise BrokenEvidence(
                f"{source}: the array '{name}' has no place in the model of these settings: it has other layers",
                "dreamproof verify STUDY",
            )
    return filled


def _trained_checkpoint(place: Path) -> tuple[CheckpointFolder, RunFolder, CheckpointRecord]:
    """The checkpoint of a path, its run and its record; one that is damaged or was never trained is refused."""
    folder, run = _checkpoint(place)
    fault = checkpoint_fault(folder)
    record = read_checkpoint(folder)
    if fault is not None or record is None:
        raise BrokenEvidence(f"{folder.root}: {fault}", f"ls {quoted(run.checkpoints)}; then name another checkpoint")
    if record.gradient_steps <= 0 or not record.finite:
        raise BadInput(
            f"{folder.root}: was never trained, or holds non-finite values",
            f"ls {quoted(run.checkpoints)}; then name another checkpoint, or train it first: dreamproof run STUDY",
        )
    return folder, run, record


def _checkpoint(place: Path) -> tuple[CheckpointFolder, RunFolder]:
    """The checkpoint of a path, and its run."""
    if CheckpointFolder(place).record.is_file():
        return CheckpointFolder(place), RunFolder(place.parent.parent)
    saved = RunFolder(place).checkpoint_folders()
    if not saved:
        raise BadInput(
            f"{place}: no complete checkpoint with a world model (relative to {Path.cwd()})",
            f"ls {quoted(place)}; or train it first: dreamproof run STUDY",
        )
    return saved[-1], RunFolder(place)


def _check_fit(place: Path, run: RunFolder, wanted: WantedModel) -> None:
    """Refuses the run of another agent, of other tasks, or of settings that give its parameters another meaning."""
    trained = read_settings(run)
    if trained is None:
        raise BadInput(f"{run.settings}: missing or not readable, so its tasks are unknown", f"ls {quoted(run.root)}")
    cell = _cell_of(run, trained)
    names = cell.data.tasks if isinstance(cell, OfflineCell) else (trained.task,)
    if len(names) != len(wanted.tasks) or not all(map(_same_task, names, wanted.tasks)):
        raise BadInput(
            f"{place}: its world model knows the tasks {', '.join(names)}, not {', '.join(wanted.tasks)}",
            "name a run of the same tasks; offline, set data.tasks to the same names in the same order",
        )
    theirs = {f"agent.{key}": value for key, value in cell.agent.model_meaning.items()}
    own = {f"agent.{key}": value for key, value in wanted.settings.model_meaning.items()}
    if wanted.env is not None and not isinstance(cell, OfflineCell):
        theirs |= {f"env.{key}": value for key, value in cell.env.model_dump().items()}
        own |= {f"env.{key}": value for key, value in wanted.env.model_dump().items()}
    known, count = cell.agent.world_model.tasks, wanted.settings.world_model.tasks
    if known != count:
        raise BadInput(
            f"{place}: was trained with agent.world_model.tasks: {known} (task embeddings), not {count}",
            f"set agent.world_model.tasks: {known}"
            if wanted.env is None
            else "train the model without agent.world_model.tasks, on recorded episodes of this task alone",
        )
    for key, value in own.items():
        if theirs.get(key) != value:
            raise BadInput(
                f"{place}: was trained with {key}: {theirs.get(key)}, not {value}",
                f"set {key} as in that run: cat {run.settings}",
            )
    key = "agent.world_model.termination_scale"
    if wanted.terminates and not cell.agent.world_model.termination_scale:
        raise BadInput(
            f"{place}: was trained with {key}: 0, so it does not predict when episodes of this task end",
            f"set {key}: 0, or name a run that was trained with more",
        )


def _cell_of(run: RunFolder, trained: RunSettings) -> AnyPwmCell:
    """The settings that a run was trained with; only those of a PWM agent."""
    model, resolved = CELL_SETTINGS.get(trained.trainer), read_resolved(run)
    if model is None or not issubclass(model, AnyPwmCell):
        raise BadInput(
            f"{run.root}: is a run of trainer {trained.trainer}, which has no such world model",
            "name a run of trainer: pwm or pwm_offline",
        )
    settings = trained.settings if resolved is None else resolved.resolved["settings"]
    return validate(model, settings, str(run.settings))


def _same_task(one: str, other: str) -> bool:
    """Whether two names are of one task; its file may lie elsewhere or not be named."""
    (source, name), (other_source, other_name) = split_task(one), split_task(other)
    files = {Path(each).name for each in (source, other_source) if each}
    return name == other_name and len(files) < 2
