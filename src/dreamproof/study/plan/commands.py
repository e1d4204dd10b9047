"""The commands that start trainers and evaluators, and the settings file that they read."""

import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_json, real_path, write_json
from dreamproof.base.text import nearest_word, quoted
from dreamproof.data.library import EpisodeLibrary
from dreamproof.runs.layout import Cell, CheckpointFolder, RunFolder, StudyFolder
from dreamproof.runs.records import RELATIVE_SCORE, RunSettings
from dreamproof.settings.cell import CELL_SETTINGS, OfflineCell
from dreamproof.settings.recorded import RecordedData
from dreamproof.settings.strict import validate
from dreamproof.settings.study import CommandTrainer, Study, StudyCondition
from dreamproof.settings.task_list import RANDOM_RETURNS
from dreamproof.study.adapters.tensorboard import TensorboardAdapter, require_reader
from dreamproof.study.process.gpus import assign_gpus, attempts_per_gpu, gpus_here

PLACEHOLDER = re.compile(r"(?<!\$)\{(?:([A-Za-z_][\w.\-]*)|(\{[A-Za-z_][\w.\-]*\}))\}")
PLAIN = (
    "python", "run_dir", "seed", "arm", "agent_steps", "condition", "episodes", "flags", "overrides", "micro_batches",
    "checkpoint", "checkpoint_hash",
)  # fmt: skip
# Trainers that append a name of their own to their log folder must write into the run folder, not next to it.
NAMES_OWN_FOLDER = ("embodied", "auto")
MEMORY_SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"


@dataclass(frozen=True)
class Target:
    """One cell as a command sees it."""

    cell: Cell
    run: RunFolder
    agent_steps: int
    condition: str | None = None
    micro_batches: int = 1
    checkpoint: Path | None = None
    """The proven checkpoint, for an evaluation."""
    checkpoint_hash: str = ""


def override_arguments(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """key=value for every setting, as Hydra takes it; nested keys are joined with dots, lists stand in brackets."""
    arguments: list[str] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            arguments += override_arguments(value, f"{prefix}{key}.")
        else:
            arguments.append(f"{prefix}{key}={_override(value)}")
    return arguments


def _override(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(_override, value))}]"
    return _plain(value)


def flag_arguments(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """--key value for every setting; nested keys are joined with dots, true and false are written so."""
    arguments: list[str] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            arguments += flag_arguments(value, f"{prefix}{key}.")
        else:
            arguments += [f"--{prefix}{key}", _plain(value)]
    return arguments


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(_plain, value))
    return str(value)


def _setting(settings: dict[str, Any], key: str, study: Study) -> str:
    value: Any = settings
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            hint = nearest_word(key, [argument.removeprefix("--") for argument in flag_arguments(settings)[::2]])
            meant = f"; did you mean settings.{hint}?" if hint else ""
            raise BadInput(
                f"study {study.name}: the trainer's command uses {{settings.{key}}}, which is not set{meant}",
                "add it under 'settings' in the study file, then run dreamproof plan STUDY",
            )
        value = value[part]
    return _plain(value)


def fill(arguments: list[str], study: Study, target: Target) -> list[str]:
    """A command with its placeholders filled."""
    settings = study.merged_settings(target.cell.arm)
    known = {
        "python": sys.executable,
        "run_dir": str(target.run.root),
        "checkpoint": str(target.checkpoint or ""),
        "checkpoint_hash": target.checkpoint_hash,
        "seed": str(target.cell.seed),
        "arm": target.cell.arm,
        "agent_steps": str(target.agent_steps),
        "condition": target.condition or "",
        "episodes": str(study.evaluation_episodes),
        "micro_batches": str(target.micro_batches),
    }

    def value(found: re.Match[str]) -> str:
        if found[2] is not None:  # braces that the trainer itself fills
            return found[2]
        name = found[1]
        if name.startswith("settings."):
            return _setting(settings, name.removeprefix("settings."), study)
        if name not in known:
            hint = nearest_word(name, PLAIN) or "run_dir"
            raise BadInput(
                f"study {study.name}: the trainer's command uses {{{name}}}, which is not a placeholder; "
                f"did you mean {{{hint}}}? Write {{{{{name}}}}} if the trainer itself fills it",
                "fix 'trainer' in the study file, then run dreamproof plan STUDY",
            )
        return known[name]

    filled: list[str] = []
    for argument in arguments:
        if argument == "{flags}":
            filled += flag_arguments(settings)
        elif argument == "{overrides}":
            filled += override_arguments(settings)
        else:
            filled.append(PLACEHOLDER.sub(value, _inside_run_folder(study, argument)))
    return filled


def _inside_run_folder(study: Study, argument: str) -> str:
    names_own = isinstance(study.trainer, CommandTrainer) and study.trainer.adapter in NAMES_OWN_FOLDER
    return f"{argument}/" if names_own and argument.endswith("{run_dir}") else argument


def train_commands(study: Study, targets: list[Target]) -> list[list[str]]:
    """What trains these cells: one process for all of them."""
    if isinstance(study.trainer, CommandTrainer):
        return [fill(study.trainer.command, study, target) for target in targets]
    arguments = [sys.executable, "-m", "dreamproof.train", *(str(target.run.root) for target in targets)]
    if targets[0].micro_batches > 1:
        arguments += ["--micro-batches", str(targets[0].micro_batches)]
    return [arguments]


def evaluate_commands(study: Study, targets: list[Target], conditions: list[str]) -> list[list[str]]:
    """What evaluates these cells under these conditions, one command after the other."""
    if isinstance(study.trainer, CommandTrainer):
        arguments = study.trainer.evaluate or []
        each = [(target, condition) for target in targets for condition in conditions]
        return [fill(arguments, study, replace(target, condition=condition)) for target, condition in each]
    folders = [str(target.run.root) for target in targets]
    return [[sys.executable, "-m", "dreamproof.evaluate", *folders, "--conditions", ",".join(conditions)]]


def environment(study: Study, targets: list[Target], taken: Iterable[str] = ()) -> dict[str, str]:
    """Variables that an attempt gets in addition to the supervisor's own; `taken` are the GPUs of attempts that run."""
    own = study.trainer.environment if isinstance(study.trainer, CommandTrainer) else {}
    gpus = gpus_here()
    return {
        # The last output of a dying Python must reach the log.
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "DREAMPROOF_RUN_DIR": str(targets[0].run.root),
        "DREAMPROOF_MICRO_BATCHES": str(targets[0].micro_batches),
        **_evaluated_checkpoint(targets[0]),
        **_module_places(),
        **assign_gpus(study, gpus, taken),
        **_memory_share(study, len(gpus)),
        **_quick_compiles(study, len(gpus)),
        **own,
    }


def _evaluated_checkpoint(target: Target) -> dict[str, str]:
    """The proven checkpoint and its hash, for an evaluation."""
    if target.checkpoint is None:
        return {}
    return {
        "DREAMPROOF_CHECKPOINT": str(target.checkpoint),
        "DREAMPROOF_CHECKPOINT_HASH": target.checkpoint_hash,
    }


def _memory_share(study: Study, gpus: int) -> dict[str, str]:
    """Attempts of our own trainers on one GPU share its memory; the first would take most of it."""
    sharing = attempts_per_gpu(study, gpus) if isinstance(study.trainer, str) else 1
    if sharing == 1 or MEMORY_SHARE in os.environ:
        return {}
    return {MEMORY_SHARE: f"{0.9 / sharing:.3f}"}


def _quick_compiles(study: Study, gpus: int) -> dict[str, str]:
    """XLA's flags where a study asks for quick compiles; kernels of a GPU are never left without optimisers."""
    if not study.backend.quick_compiles or gpus or not isinstance(study.trainer, str):
        return {}
    flags = [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=1"]
    major, minor = metadata.version("jax").split(".")[:2]
    if (int(major), int(minor)) < (0, 11):  # later versions have no such option, and XLA ends at one it does not know
        flags.append("--xla_cpu_use_fusion_emitters=false")
    return {"XLA_FLAGS": " ".join(flags).strip()}


def _module_places() -> dict[str, str]:
    """PYTHONPATH with absolute paths: an attempt runs in another folder than this process."""
    parts = [os.path.realpath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}


def working_folder(study: Study, base_folder: Path) -> Path:
    """Where commands run: the folder of the study file, or trainer.working_folder."""
    if isinstance(study.trainer, CommandTrainer) and study.trainer.working_folder is not None:
        return real_path(base_folder / study.trainer.working_folder)
    return base_folder


def can_micro_batch(study: Study) -> bool:
    """Whether the trainer takes a number of micro-batches."""
    if isinstance(study.trainer, CommandTrainer):
        return any("{micro_batches}" in argument for argument in study.trainer.command)
    return CELL_SETTINGS[study.trainer].supports_micro_batches


def check_commands(study: Study, base_folder: Path) -> None:
    """Raises BadInput if a command cannot be filled or found, before anything is started."""
    _check_variables(study)
    if isinstance(study.trainer, CommandTrainer) and study.trainer.adapter == TensorboardAdapter.name:
        require_reader()
    folder = working_folder(study, base_folder)
    if not folder.is_dir():
        raise BadInput(f"study {study.name}: working folder {folder} does not exist", f"ls {quoted(folder.parent)}")
    for arguments in example_commands(study):
        _check_found(study, arguments[0], folder)


def example_commands(study: Study) -> list[list[str]]:
    """Commands of the first seed of every arm; raises BadInput if one has a placeholder that there is not."""
    commands = []
    for arm in study.arms:
        target = Target(Cell(arm, study.seeds[0]), RunFolder(Path("run")), study.agent_steps)
        commands += train_commands(study, [target])
        if study.conditions:
            commands += evaluate_commands(study, [target], [study.conditions[0].name])
    return commands


def _check_variables(study: Study) -> None:
    """Raises BadInput if a variable that the trainer is to take over from here is not set."""
    wanted = study.trainer.from_env if isinstance(study.trainer, CommandTrainer) else []
    _check_notify(study)
    missing = [name for name in wanted if not os.environ.get(name)]
    if missing:
        raise BadInput(
            f"study {study.name}: trainer.from_env names {', '.join(missing)}, which is not set in this environment",
            f"export {missing[0]}=… (in this shell, not in the study file), then run the same command again",
        )


def _check_notify(study: Study) -> None:
    """Raises BadInput if a notification needs a variable that is not set, or a command that is not there."""
    for one in study.notify:
        missing = [name for name in one.variables if not os.environ.get(name)]
        if missing:
            raise BadInput(
                f"study {study.name}: notify names {missing[0]}, which is not set in this environment",
                f"export {missing[0]}=… (in this shell, not in the study file), then run the same command again",
            )
        if one.command is not None and shutil.which(one.command[0]) is None:
            raise BadInput(f"study {study.name}: notify: command '{one.command[0]}' not found", "which PROGRAM")


def check_training(study: Study, base_folder: Path) -> None:
    """Raises BadInput if an arm could not learn: what it starts from is not there, or it is too short."""
    if isinstance(study.trainer, CommandTrainer):
        return
    recorded: list[RecordedData] = []
    for arm in study.arms:
        place = f"{study.name}, arm {arm}"
        cell = validate(CELL_SETTINGS[study.trainer], study.merged_settings(arm), place)
        for name in cell.needed_paths:
            _check_start(f"study {place}: ", name, base_folder)
        if isinstance(cell, OfflineCell) and cell.data not in recorded:
            recorded.append(cell.data)
            _check_recorded(study, study.task_of(arm), cell, base_folder)
        model_only = isinstance(cell, OfflineCell) and not study.conditions
        if trains_no_policy(study, arm) and not model_only:
            waiting = cell.agent_steps_before_policy
            listed = " + ".join(f"{steps:,} ({name})" for name, steps in waiting.items())
            raise BadInput(
                f"study {place}: the policy would never learn: agent_steps is {study.agent_steps:,}, and its first "
                f"update comes after {listed}",
                f"set agent_steps above {sum(waiting.values())}, or lower {next(iter(waiting))}",
            )


def trains_no_policy(study: Study, arm: str) -> bool:
    """Whether a cell of an arm ends before the first update of its policy."""
    if isinstance(study.trainer, CommandTrainer):
        return False
    cell = validate(CELL_SETTINGS[study.trainer], study.merged_settings(arm), f"{study.name}, arm {arm}")
    return sum(cell.agent_steps_before_policy.values()) >= study.agent_steps


def _check_start(place: str, name: str, base_folder: Path) -> None:
    """Raises BadInput if recorded episodes or a world model are not there, or a folder has none."""
    found = base_folder / name
    if not found.exists():
        home = "'~' is not expanded, write the whole path; or " if name.startswith("~") else ""
        raise BadInput(
            f"{place}needs {name}, which does not exist (relative to {base_folder})",
            f"{home}make it first: docs/multitask.md says how to record episodes, docs/pwm.md how to train a model",
        )
    if found.is_dir() and not (RunFolder(found).settings.is_file() or CheckpointFolder(found).record.is_file()):
        runs = sorted(StudyFolder(found).runs.glob("*/settings.json"))
        inside = f"name one of its runs, e.g. {runs[0].parent}" if runs else f"ls {quoted(found)}"
        raise BadInput(
            f"{place}{name} is a folder, but neither of a run nor of a checkpoint (relative to {base_folder})", inside
        )


def _check_recorded(study: Study, task: str, cell: OfflineCell, base_folder: Path) -> None:
    """Raises BadInput if recorded episodes do not suffice for a policy of every task, or for the deciding metric."""
    data = cell.data
    files = tuple(str(base_folder / name) for name in data.files)
    library = EpisodeLibrary(data.model_copy(update={"files": files}))
    policies = data.policies or (task,)
    library.require([data.number_of(name) for name in policies], cell.train.window)
    if study.metric.name != RELATIVE_SCORE:
        return
    returns = library.returns()
    for name in policies:
        random = RANDOM_RETURNS.get(name)
        if random is not None and returns[name][1] <= random:
            raise BadInput(
                f"study {study.name}: {RELATIVE_SCORE} is undefined for '{name}': the best recorded return, "
                f"{returns[name][1]:.4g}, is not above {random:.4g}, that of random actions",
                "record better episodes, or decide by metric: {name: score}",
            )


def _check_found(study: Study, program: str, folder: Path) -> None:
    if os.sep in program:
        place = folder / program
        found = place.is_file() and os.access(place, os.X_OK)
    else:
        found = shutil.which(program) is not None
    if not found:
        raise BadInput(
            f"study {study.name}: command '{program}' not found or not executable (relative to {folder})",
            f"which {program}; then fix 'trainer' in the study file",
        )


def run_settings(study: Study, cell: Cell) -> RunSettings:
    """The settings that a trainer gets for its cell."""
    return RunSettings(
        study=study.name,
        arm=cell.arm,
        seed=cell.seed,
        task=study.task_of(cell.arm),
        trainer=study.trainer if isinstance(study.trainer, str) else "command",
        agent_steps=study.agent_steps,
        settings=study.merged_settings(cell.arm),
        conditions=[_condition_settings(study, condition) for condition in study.conditions],
        evaluation_episodes=study.evaluation_episodes,
    )


def _condition_settings(study: Study, condition: StudyCondition) -> dict[str, Any]:
    """A condition as an evaluator reads it. Our own evaluators know the kind of a shift; a command is given one:

    settings of its own make a condition a proxy, unless the study says that the environment itself changes.
    """
    value = condition.model_dump(mode="json")
    if condition.kind is None and isinstance(study.trainer, CommandTrainer):
        value["kind"] = "proxy" if condition.settings else "in_distribution"
    return value


def write_settings(study: Study, cell: Cell, run: RunFolder) -> None:
    """Writes settings.json unless it holds the same already."""
    value = run_settings(study, cell).model_dump(mode="json")
    if read_json(run.settings) != value:
        write_json(run.settings, value)
