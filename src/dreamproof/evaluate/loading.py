"""Trained agents from checkpoints; untrained, modified or other tasks' checkpoints are refused."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.agents.api import Agent, SeveralPolicies
from dreamproof.agents.registry import make_agent
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.text import nearest_word
from dreamproof.data.arrays import read_arrays
from dreamproof.envs.api import Env
from dreamproof.envs.registry import make_for, spec_for
from dreamproof.jaxcore.checkpoints import AGENT_FILE, fill, named_arrays, parameter_hash
from dreamproof.runs.layout import CheckpointFolder, RunFolder, StudyFolder
from dreamproof.runs.reader import (
    checkpoint_fault,
    newest_good_checkpoint,
    read_checkpoint,
    read_settings,
    selected_agent_steps,
)
from dreamproof.runs.records import CheckpointRecord, RunSettings
from dreamproof.settings.cell import CELL_SETTINGS, CellSettings, OfflineCell
from dreamproof.settings.resolved import under_current_names
from dreamproof.settings.several_tasks import merge
from dreamproof.settings.strict import validate
from dreamproof.settings.traced import static_key, traced_values


@dataclass(frozen=True)
class Loaded:
    """One agent ready to act; one with several policies has no env, and `of_task` gives the policy of one of them.

    is_calibrated: the offset of its certificate is that of an evaluation; otherwise that of a validation in training.
    """

    run: RunSettings
    record: CheckpointRecord
    agent: Agent
    task_env: Env | None
    state: Any
    scalars: Any
    is_calibrated: bool = False

    @property
    def env(self) -> Env:
        """The environment of its task."""
        if self.task_env is None:
            raise BadInput(
                f"{self.run.arm}/{self.run.seed} has policies of several tasks: {', '.join(self.tasks)}",
                f"name one of them: --task {self.tasks[0]}, in Python task='{self.tasks[0]}'",
            )
        return self.task_env

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of an agent with several policies; otherwise none."""
        cell = _cell_of(self.run)
        return cell.data.policies if isinstance(cell, OfflineCell) and self.task_env is None else ()

    @property
    def model_updates(self) -> int:
        """Updates from recorded episodes in which the world model learns alone; 0 for an agent that acts to learn."""
        cell = _cell_of(self.run)
        return cell.model_updates if isinstance(cell, OfflineCell) else 0

    def of_task(self, task: str) -> "Loaded":
        """The policy of one task of an agent with several; of an agent of this task alone the agent itself."""
        if not isinstance(self.agent, SeveralPolicies):
            if task != self.run.task:
                raise BadInput(
                    f"{self.run.arm}/{self.run.seed} was trained on '{self.run.task}' alone, not on '{task}'",
                    "leave the task out",
                )
            return self
        cell = _cell_of(self.run)
        assert isinstance(cell, OfflineCell)
        if task not in self.tasks:
            near = nearest_word(task, cell.data.policies)
            hint = f"did you mean '{near}'?" if near else f"known: {', '.join(cell.data.policies)}"
            cell_name = f"{self.run.arm}/{self.run.seed}"
            raise BadInput(f"{cell_name} has no policy for the task '{task}'; {hint}", "name one of its tasks")
        data = cell.data.model_copy(update={"policies": ()})
        alone = cell.model_copy(update={"data": data})
        settings = merge(self.run.settings, {"data": {"policies": []}})
        run = self.run.model_copy(update={"task": task, "settings": settings})
        agent, env, _ = _made(run, alone)
        state = self.agent.policy_of(self.state, cell.data.policies.index(task))
        return replace(self, run=run, agent=agent, task_env=env, state=state)


def load(run: RunFolder, which: str, changes: dict[str, Any] | None = None) -> Loaded | None:
    """The `final` or the `selected` agent of a run; None if the selected one is the final one.

    changes: settings merged over those it was trained with; they must not change shapes of networks.
    """
    settings = read_settings(run)
    if settings is None:
        raise BadInput(f"{run.settings}: missing or not readable", "dreamproof run STUDY")
    below, above = (under_current_names(settings.trainer, each) for each in (settings.settings, changes or {}))
    settings = settings.model_copy(update={"settings": merge(below, above)})
    final = newest_good_checkpoint(run, AGENT_FILE)
    if final is None:
        newest = run.checkpoint_folders()[-1:]
        why = "".join(f" ({each.root.name}: {checkpoint_fault(each, needed=AGENT_FILE)})" for each in newest)
        hint = "dreamproof run STUDY"
        if StudyFolder(run.root.parent.parent).is_export:
            hint = "this is an export; ask for one with weights: dreamproof export STUDY TARGET --checkpoints"
        raise BadInput(f"{run.root}: no complete checkpoint to evaluate{why}", hint)
    folder = final if which == "final" else _selected(run)
    if folder is None or (which == "selected" and folder == final):
        return None
    return _open(settings, folder)


def load_at(run: RunFolder, agent_steps: int) -> Loaded:
    """The agent of one kept checkpoint of a run."""
    settings = read_settings(run)
    if settings is None:
        raise BadInput(f"{run.settings}: missing or not readable", "dreamproof run STUDY")
    settings = settings.model_copy(update={"settings": under_current_names(settings.trainer, settings.settings)})
    return _open(settings, run.checkpoint(agent_steps))


def _selected(run: RunFolder) -> CheckpointFolder | None:
    chosen = selected_agent_steps(run)
    folder = None if chosen is None else run.checkpoint(chosen)
    return folder if folder is not None and folder.root.is_dir() else None


def _open(settings: RunSettings, folder: CheckpointFolder) -> Loaded:
    record = check_record(settings, folder)
    arrays = read_arrays(folder.root / AGENT_FILE)
    if parameter_hash(arrays) != record.parameter_hash:
        raise BrokenEvidence(f"{folder.root}: the parameters do not match its record", "dreamproof verify STUDY")
    return assemble(settings, record, arrays, str(folder.root))


def assemble(
    settings: RunSettings, record: CheckpointRecord, arrays: dict[str, np.ndarray], source: str, partial: bool = False
) -> Loaded:
    """The agent of a run with these arrays; with `partial` those that are missing are 0."""
    cell = _cell_of(settings)
    agent, env, template = _made(settings, cell)
    blank = named_arrays(template)
    found = fill(blank, blank | arrays if partial else arrays, source)
    scalars = jax.tree.map(jnp.asarray, traced_values(cell.agent))
    return Loaded(settings, record, agent, env, fill(template, jax.tree.map(jnp.asarray, found), source), scalars)


def _cell_of(settings: RunSettings) -> CellSettings:
    return validate(CELL_SETTINGS[settings.trainer], settings.settings, f"settings of {settings.arm}/{settings.seed}")


_MADE: dict[tuple[str, str, str], tuple[Agent, Env | None, Any]] = {}


def _made(settings: RunSettings, cell: CellSettings) -> tuple[Agent, Env | None, Any]:
    """Agent, env and a blank state; cells that can share a compile share them."""
    key = (settings.trainer, settings.task, static_key(cell))
    if key not in _MADE:
        spec = spec_for(settings.task, cell)
        agent = make_agent(cell.agent_name, spec, cell.agent)
        env = None if spec.policies else make_for(settings.task, cell)
        _MADE[key] = (agent, env, _blank_state(agent))
    return _MADE[key]


def _blank_state(agent: Agent) -> Any:
    """A learning state of zeros: initialising it would take a long compile, and all values are replaced."""
    shapes = eqx.filter_eval_shape(agent.init_state, jax.random.key(0))

    def blank(leaf: Any) -> Any:
        return np.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf

    return jax.tree.map(blank, shapes)


def check_record(settings: RunSettings, folder: CheckpointFolder) -> CheckpointRecord:
    """The record of a checkpoint that may be evaluated."""
    fault = checkpoint_fault(folder, needed=AGENT_FILE)
    record = read_checkpoint(folder)
    if fault is not None or record is None:
        raise BrokenEvidence(f"{folder.root}: {fault}", "dreamproof verify STUDY")
    if record.gradient_steps <= 0:
        raise BadInput(f"{folder.root}: was never trained (0 updates)", "dreamproof run STUDY")
    if record.task != settings.task:
        raise BadInput(
            f"{folder.root}: was trained on '{record.task}', not on '{settings.task}'", "dreamproof why STUDY CELL"
        )
    if not record.finite:
        raise BadInput(f"{folder.root}: holds non-finite values, or its replica was frozen", "dreamproof why")
    return record
