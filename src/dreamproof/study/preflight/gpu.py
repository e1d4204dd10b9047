"""Whether the trainer's library can use the GPU: a run that silently falls back to the CPU wastes the whole night."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamproof.base.files import parse_json
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.plan.commands import working_folder
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process import machine

ASK_SECONDS = 180.0
PYTHON = re.compile(r"python[0-9.]*")
# Runs in the trainer's own environment; prints one line of JSON.
QUESTION = """
import importlib.util, json
found = {}
def ask(name, sees):
    try:
        if importlib.util.find_spec(name) is not None:
            module = __import__(name)
            found[name] = {"version": module.__version__, "gpu": bool(sees(module))}
    except Exception as error:
        found[name] = {"version": "", "gpu": False, "error": str(error)[:200]}
ask("jax", lambda jax: any(device.platform != "cpu" for device in jax.devices()))
ask("torch", lambda torch: torch.cuda.is_available())
ask("tensorflow", lambda tf: tf.config.list_physical_devices("GPU"))
print(json.dumps(found))
"""
CURES = {"jax": "'jax[cuda12]=={version}'", "torch": "--force-reinstall torch", "tensorflow": "'tensorflow[and-cuda]'"}


@dataclass(frozen=True)
class LibraryAnswer:
    """What one installed library says of the GPU."""

    name: str
    version: str
    sees_gpu: bool
    error: str = ""


def gpu_faults(opened: OpenStudy, facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Faults and warnings about the GPU that the study requires, or that our own trainers would leave unused."""
    study = opened.study
    if study.backend.slurm is not None:
        return _cluster_faults(study), []
    devices = facts["gpu"]["devices"]
    if not isinstance(study.trainer, CommandTrainer):
        unused = machine.unused_gpu(facts)
        if unused is not None:
            return [f"{unused} (or set JAX_PLATFORMS=cpu to train on the CPU)"], []
    if not study.require.gpu:
        return [], []
    if not devices:
        reason = facts["gpu"].get("reason", "none found")
        return [f"require.gpu: no NVIDIA GPU on this machine ({reason}); check with nvidia-smi"], []
    if not isinstance(study.trainer, CommandTrainer):
        return [], []
    return _judge(study, devices[0]["name"], *ask_libraries(opened, study.trainer))


def _cluster_faults(study: Study) -> list[str]:
    """The node decides on a cluster: here only the request can be checked."""
    slurm = study.backend.slurm
    asked = slurm is not None and "gpu" in (slurm.gres or "")
    return [] if asked or not study.require.gpu else ["require.gpu: backend.slurm.gres asks for no GPU, e.g. gpu:1"]


def _judge(study: Study, gpu: str, python: list[str], answers: list[LibraryAnswer]) -> tuple[list[str], list[str]]:
    wanted = study.require.library
    asked = [one for one in answers if wanted in (None, one.name)]
    if not python:
        return [], [f"require.gpu: {gpu} is there; which Python the trainer uses is not known, so it was not asked"]
    if not asked:
        which = wanted or "jax, torch or tensorflow"
        return [f"require.gpu: {' '.join(python)} has no {which} that could use {gpu}"], []
    blind = [f"{_blind_text(one, gpu)}: {_cure(one, python)}" for one in asked if not one.sees_gpu]
    if any(one.sees_gpu for one in asked):
        return [], [f"require.gpu: {text}" for text in blind]
    return [f"require.gpu: {text}" for text in blind], []


def _blind_text(answer: LibraryAnswer, gpu: str) -> str:
    error = f" ({answer.error})" if answer.error else ""
    return f"{answer.name} {answer.version} cannot see {gpu}{error}"


def _cure(answer: LibraryAnswer, python: list[str]) -> str:
    """The line that installs the library with CUDA into the trainer's own environment."""
    package = CURES[answer.name].format(version=answer.version)
    return f"{' '.join(python)} -m pip install --upgrade {package}"


def interpreter(command: list[str]) -> list[str]:
    """The words of a command up to its Python, e.g. `conda run -n env python`; none if it starts no Python itself."""
    for place, word in enumerate(command):
        if word == "{python}":
            return [*command[:place], sys.executable]
        if PYTHON.fullmatch(Path(word).name):
            return command[: place + 1]
    return []


def ask_libraries(opened: OpenStudy, trainer: CommandTrainer) -> tuple[list[str], list[LibraryAnswer]]:
    """The trainer's Python and what the libraries in it say of the GPU; no Python if the command names none."""
    python = interpreter(trainer.command)
    if not python:
        return [], []
    folder = working_folder(opened.study, opened.base_folder)
    environment = {**os.environ, **trainer.environment}
    asked = [*python, "-c", QUESTION]
    try:
        done = subprocess.run(
            asked, cwd=folder, env=environment, capture_output=True, text=True, timeout=ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return python, []
    return python, _read_answers(done.stdout)


def _read_answers(text: str) -> list[LibraryAnswer]:
    """The answers in the last line; libraries may print lines of their own before it."""
    try:
        value = parse_json(next(iter(reversed(text.strip().splitlines())), ""))
    except ValueError:
        return []
    if not isinstance(value, dict):
        return []
    return [
        LibraryAnswer(name, str(one.get("version", "")), one.get("gpu") is True, str(one.get("error", "")))
        for name, one in value.items()
        if name in CURES and isinstance(one, dict)
    ]
