"""The words with which trainers and evaluators are started, and the settings file that they read."""

import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_json, write_json
from dreamproof.base.words import nearest_word
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.records import RunSettings
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.strict import validate
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.process.gpus import attempts_on_one, gpus_here, least_taken

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][\w.\-]*)\}")
PLAIN = ("python", "run_dir", "seed", "arm", "agent_steps", "condition", "episodes", "flags", "micro_batches")
MEMORY_SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"


@dataclass(frozen=True)
class Target:
    """One cell as a command sees it."""

    cell: Cell
    run: RunFolder
    agent_steps: int
    condition: str | None = None
    micro_batches: int = 1


def flag_words(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """--key value for every setting; nested keys are joined with dots, true and false are written so."""
    words: list[str] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            words += flag_words(value, f"{prefix}{key}.")
        else:
            words += [f"--{prefix}{key}", _plain(value)]
    return words


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
            hint = nearest_word(key, [word.removeprefix("--") for word in flag_words(settings)[::2]])
            meant = f"; did you mean settings.{hint}?" if hint else ""
            raise BadInput(
                f"study {study.name}: the trainer's command asks for {{settings.{key}}}, which no settings hold{meant}",
                "add it under 'settings' in the study file, then dreamproof plan STUDY",
            )
        value = value[part]
    return _plain(value)


def fill(words: list[str], study: Study, target: Target) -> list[str]:
    """A command with its placeholders filled."""
    settings = study.merged_settings(target.cell.arm)
    known = {
        "python": sys.executable,
        "run_dir": str(target.run.root),
        "seed": str(target.cell.seed),
        "arm": target.cell.arm,
        "agent_steps": str(target.agent_steps),
        "condition": target.condition or "",
        "episodes": str(study.evaluation_episodes),
        "micro_batches": str(target.micro_batches),
    }

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("settings."):
            return _setting(settings, name.removeprefix("settings."), study)
        if name not in known:
            hint = nearest_word(name, PLAIN) or "run_dir"
            raise BadInput(
                f"study {study.name}: the trainer's command holds {{{name}}}, which is no placeholder; "
                f"did you mean {{{hint}}}?",
                "mend 'trainer' in the study file, then dreamproof plan STUDY",
            )
        return known[name]

    filled: list[str] = []
    for word in words:
        if word == "{flags}":
            filled += flag_words(settings)
        else:
            filled.append(PLACEHOLDER.sub(value, word))
    return filled


def train_commands(study: Study, targets: list[Target]) -> list[list[str]]:
    """What trains these cells: one process for all of them."""
    if isinstance(study.trainer, CommandTrainer):
        return [fill(study.trainer.command, study, target) for target in targets]
    words = [sys.executable, "-m", "dreamproof.train", *(str(target.run.root) for target in targets)]
    if targets[0].micro_batches > 1:
        words += ["--micro-batches", str(targets[0].micro_batches)]
    return [words]


def evaluate_commands(study: Study, targets: list[Target], conditions: list[str]) -> list[list[str]]:
    """What evaluates these cells under these conditions, one command after the other."""
    if isinstance(study.trainer, CommandTrainer):
        words = study.trainer.evaluate or []
        each = [(target, condition) for target in targets for condition in conditions]
        return [
            fill(words, study, Target(target.cell, target.run, target.agent_steps, condition))
            for target, condition in each
        ]
    folders = [str(target.run.root) for target in targets]
    return [[sys.executable, "-m", "dreamproof.evaluate", *folders, "--conditions", ",".join(conditions)]]


def environment(study: Study, targets: list[Target], taken: Iterable[str] = ()) -> dict[str, str]:
    """Variables that an attempt gets beside the supervisor's own; `taken` are the GPUs of attempts that run."""
    own = study.trainer.environment if isinstance(study.trainer, CommandTrainer) else {}
    gpus = gpus_here()
    return {
        # The last words of a dying Python must reach the log.
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "DREAMPROOF_RUN_DIR": str(targets[0].run.root),
        "DREAMPROOF_MICRO_BATCHES": str(targets[0].micro_batches),
        **_module_places(),
        **least_taken(study, gpus, taken),
        **_memory_share(study, len(gpus)),
        **_quick_compiles(study, len(gpus)),
        **own,
    }


def _memory_share(study: Study, gpus: int) -> dict[str, str]:
    """Attempts of our own trainers on one GPU share its memory; the first would take most of it."""
    sharing = attempts_on_one(study, gpus) if isinstance(study.trainer, str) else 1
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
    """PYTHONPATH in full: an attempt runs beside the study file, where relative parts of it would lead nowhere."""
    parts = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {"PYTHONPATH": os.pathsep.join(parts)} if parts else {}


def working_folder(study: Study, beside: Path) -> Path:
    """Where commands run: beside the study file, or where it says."""
    if isinstance(study.trainer, CommandTrainer) and study.trainer.working_folder is not None:
        return (beside / study.trainer.working_folder).resolve()
    return beside


def can_micro_batch(study: Study) -> bool:
    """Whether the trainer takes a number of micro-batches."""
    if isinstance(study.trainer, CommandTrainer):
        return any("{micro_batches}" in word for word in study.trainer.command)
    return CELL_SETTINGS[study.trainer].supports_micro_batches


def check_commands(study: Study, beside: Path) -> None:
    """Raises BadInput where a command cannot be filled or found, before anything is started."""
    _check_variables(study)
    folder = working_folder(study, beside)
    if not folder.is_dir():
        raise BadInput(f"study {study.name}: working folder {folder} does not exist", f"ls {folder.parent}")
    for arm in study.arms:
        target = Target(Cell(arm, study.seeds[0]), RunFolder(Path("run")), study.agent_steps)
        commands = train_commands(study, [target])
        if study.conditions:
            commands += evaluate_commands(study, [target], [study.conditions[0].name])
        for words in commands:
            _check_found(study, words[0], folder)


def _check_variables(study: Study) -> None:
    """Raises BadInput where a variable that the trainer is to take over from here is not set."""
    wanted = study.trainer.from_env if isinstance(study.trainer, CommandTrainer) else []
    missing = [name for name in wanted if not os.environ.get(name)]
    if missing:
        raise BadInput(
            f"study {study.name}: trainer.from_env names {', '.join(missing)}, which is not set in this environment",
            f"export {missing[0]}=… (in this shell, not in the study file), then the same command again",
        )


def check_material(study: Study, beside: Path) -> None:
    """Raises BadInput where recorded episodes or a world model that an arm is to learn from are not there."""
    if isinstance(study.trainer, CommandTrainer):
        return
    for arm in study.arms:
        cell = validate(CELL_SETTINGS[study.trainer], study.merged_settings(arm), f"{study.name}, arm {arm}")
        for name in cell.needed_paths:
            if not (beside / name).exists():
                raise BadInput(
                    f"study {study.name}, arm {arm}: learns from {name}, which is not there (seen from {beside})",
                    "python -m dreamproof.record --help, or train what it names first; see docs/multitask.md",
                )


def _check_found(study: Study, program: str, folder: Path) -> None:
    if os.sep in program:
        place = folder / program
        found = place.is_file() and os.access(place, os.X_OK)
    else:
        found = shutil.which(program) is not None
    if not found:
        raise BadInput(
            f"study {study.name}: the command '{program}' cannot be found or run (seen from {folder})",
            f"which {program}; then mend 'trainer' in the study file",
        )


def run_settings(study: Study, cell: Cell) -> RunSettings:
    """What a trainer is told about its cell."""
    return RunSettings(
        study=study.name,
        arm=cell.arm,
        seed=cell.seed,
        task=study.task,
        trainer=study.trainer if isinstance(study.trainer, str) else "command",
        agent_steps=study.agent_steps,
        settings=study.merged_settings(cell.arm),
        conditions=[condition.model_dump(mode="json") for condition in study.conditions],
        evaluation_episodes=study.evaluation_episodes,
    )


def write_settings(study: Study, cell: Cell, run: RunFolder) -> None:
    """Writes settings.json where it does not say the same already."""
    value = run_settings(study, cell).model_dump(mode="json")
    if read_json(run.settings) != value:
        write_json(run.settings, value)
