"""A pretrained world model: of a run folder, or of a file that TD-MPC2 or PWM saved."""

from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import file_hash
from dreamproof.data.arrays import read_arrays
from dreamproof.data.released_model import read_released_model, settings_of
from dreamproof.jaxcore.checkpoints import AGENT_FILE, fill, named_arrays
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import checkpoint_fault, newest_good_checkpoint, read_checkpoint, read_settings
from dreamproof.settings.recorded import RecordedData

NEVER_LOGIT = -30.0
"""Of the termination head of a released model, which has none: its episodes never end early."""
NOT_RELEASED = ("model/termination_head/", "rewards/")
"""Arrays that a released model lacks. Its rewards are not scaled, as those of a new run."""


def read_world_model(place: Path, template: Any, data: RecordedData) -> tuple[Any, str]:
    """A world model in the structure of `template` (without replicas), and a hash that names it."""
    return _of_file(place, template) if place.is_file() else _of_run(place, template, data)


def _of_file(path: Path, template: Any) -> tuple[Any, str]:
    """Takes over a released model; what it lacks stays as in a new run, and nothing terminates."""
    arrays = read_released_model(path)
    own = {name: value for name, value in named_arrays(template).items() if name.startswith(NOT_RELEASED)}
    bias = "model/termination_head/last/bias"
    own[bias] = np.full_like(own[bias], NEVER_LOGIT)
    try:
        return fill(template, own | arrays, str(path)), file_hash(path)
    except BrokenEvidence as error:
        raise BadInput(error.seen, f"the settings that fit it: {settings_of(arrays)}") from None


def _of_run(place: Path, template: Any, data: RecordedData) -> tuple[Any, str]:
    """The world model of a trained run, and its parameter hash."""
    folder, run = _checkpoint(place)
    fault = checkpoint_fault(folder)
    record = read_checkpoint(folder)
    if fault is not None or record is None:
        raise BrokenEvidence(f"{folder.root}: {fault}", "dreamproof verify STUDY")
    if record.gradient_steps <= 0 or not record.finite:
        raise BadInput(f"{folder.root}: was never trained, or holds non-finite values", "dreamproof why")
    trained = read_settings(run)
    if trained is None:
        raise BadInput(f"{run.settings}: missing or not readable, so its tasks are unknown", f"ls {run.root}")
    tasks = tuple(trained.settings.get("data", {}).get("tasks", [trained.task]))
    if tasks != data.tasks:
        raise BadInput(
            f"{place}: its world model knows the tasks {', '.join(tasks)}, not {', '.join(data.tasks)}",
            "set data.tasks to the same names in the same order",
        )
    try:
        return fill(template, read_arrays(folder.root / AGENT_FILE), str(folder.root)), record.parameter_hash
    except BrokenEvidence as error:
        raise BadInput(error.seen, "use the agent settings and data sizes of that run") from None


def _checkpoint(place: Path) -> tuple[CheckpointFolder, RunFolder]:
    """The checkpoint of a path, and its run."""
    if CheckpointFolder(place).record.is_file():
        return CheckpointFolder(place), RunFolder(place.parent.parent)
    newest = newest_good_checkpoint(RunFolder(place))
    if newest is None:
        raise BadInput(
            f"{place}: no complete checkpoint with a world model (relative to {Path.cwd()})",
            f"ls {place}; or train it first: dreamproof run STUDY",
        )
    return newest, RunFolder(place)
