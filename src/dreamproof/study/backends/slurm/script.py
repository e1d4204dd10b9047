"""The script that sbatch is given: one array, one element per attempt."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.settings.backend import Slurm

PACKAGE_PARENT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Submission:
    """What goes into the queue in one call."""

    name: str
    job_name: str
    folder: Path
    """Where the script and Slurm's output per element are."""
    attempts_folder: Path
    attempts: list[str]
    memory_bytes: int
    time_limit: str


def memory_text(size_bytes: int) -> str:
    """Bytes as sbatch takes them, rounded up to megabytes."""
    return f"{-(-size_bytes // (1 << 20))}M"


def output_pattern(folder: Path) -> str:
    """Where Slurm writes about an element; %a is its number."""
    return str(folder).replace("%", "%%") + "/%a.out"


def script_text(settings: Slurm, submission: Submission) -> str:
    """The exact script."""
    last = len(submission.attempts) - 1
    throttle = f"%{settings.array_throttle}" if last >= settings.array_throttle else ""
    options = {
        "job-name": submission.job_name,
        "comment": submission.name,
        "array": f"0-{last}{throttle}",
        "output": output_pattern(submission.folder),
        "open-mode": "append",
        "chdir": str(submission.folder),
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
        "gres": settings.gres,
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(settings.cpus_per_task),
        "mem": memory_text(submission.memory_bytes),
        "time": submission.time_limit,
    }
    for name, value in options.items():
        if value is not None and not value.isprintable():
            raise BadInput(
                f"sbatch --{name}={value!r} holds a line break or a control character", "dreamproof plan STUDY"
            )
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{name}={_quoted(value)}" for name, value in options.items() if value is not None]
    if settings.signal_seconds_before_limit:
        lines.append(f"#SBATCH --signal=B:USR1@{settings.signal_seconds_before_limit}")
    lines.append(f"#SBATCH --{'requeue' if settings.requeue else 'no-requeue'}")
    lines += [f"#SBATCH {line.removeprefix('#SBATCH').strip()}" for line in settings.extra]
    lines += ["", *settings.setup] if settings.setup else [""]
    command = [sys.executable, "-m", "dreamproof.study.backends.slurm.node", str(submission.attempts_folder)]
    lines += [
        f"attempts=({' '.join(submission.attempts)})",
        f"for path in {shlex.join([sys.executable, str(PACKAGE_PARENT), str(submission.attempts_folder)])}; do",
        '    [ -e "$path" ] || { echo "dreamproof: $path cannot be seen from node $(hostname)" >&2; exit 1; }',
        "done",
        f"cd {shlex.quote(str(PACKAGE_PARENT))} || exit 1",
        f'exec {shlex.join(command)} "${{attempts[$SLURM_ARRAY_TASK_ID]}}"'
        + ("" if settings.requeue else " --no-requeue"),
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return (
        value
        if re.fullmatch(r"[\w./%:@,+=&|*\[\]-]+", value)
        else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
