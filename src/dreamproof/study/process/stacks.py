"""The stacks of a process: its faulthandler, py-spy if installed, and the kernel's view of its threads."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dreamproof.base.files import write_text
from dreamproof.study.process.processes import family

# The supervisor waits for the answer, so both are short.
PY_SPY_SECONDS = 3.0
FAULTHANDLER_SECONDS = 1.0
LOOK_SECONDS = 0.05
MAX_PROCESSES = 8
MAX_THREADS = 64
LONGEST_DUMP_BYTES = 65536
ANSWERED = "faulthandler of process"


def dump_stacks(process_id: int, path: Path, output: Path | None = None) -> None:
    """Writes the stacks of a process and its children; what cannot be read is reported in its place.

    `output` is given only for trainers that honour the native contract: they answer SIGUSR1 by printing their stacks.
    """
    parts = [_faulthandler(process_id, output)] if output is not None else []
    if not any(part.startswith(ANSWERED) for part in parts):
        parts.append(_py_spy(process_id))
    parts += [_kernel_view(member) for member in [process_id, *family(process_id)][:MAX_PROCESSES]]
    write_text(path, "\n\n".join(parts) + "\n", durable=False)


def _faulthandler(process_id: int, output: Path, sleep: Callable[[float], None] = time.sleep) -> str:
    """What the process prints when it is asked; it is asked only if it catches the signal, which else would kill it."""
    if not catches(process_id, signal.SIGUSR1):
        return "faulthandler: the process does not catch SIGUSR1"
    if _state(process_id).startswith("State:\tT"):
        return "faulthandler: the process is stopped and cannot answer"
    try:
        before = output.stat().st_size
        os.kill(process_id, signal.SIGUSR1)
    except OSError as error:
        return f"faulthandler: {error}"
    size = before
    for _ in range(int(FAULTHANDLER_SECONDS / LOOK_SECONDS)):
        sleep(LOOK_SECONDS)
        grown = output.stat().st_size
        if grown > before and grown == size:
            break
        size = grown
    with output.open("rb") as file:
        file.seek(before)
        text = file.read(LONGEST_DUMP_BYTES).decode("utf-8", errors="replace").strip()
    return f"{ANSWERED} {process_id}:\n{text}" if text else "faulthandler: the process gave no answer"


def catches(process_id: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal."""
    for line in _read(Path(f"/proc/{process_id}/status")).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _py_spy(process_id: int) -> str:
    beside_python = Path(sys.executable).with_name("py-spy")
    program = str(beside_python) if beside_python.exists() else shutil.which("py-spy")
    if program is None:
        return "Python stacks: py-spy is not installed"
    command = [program, "dump", "--nonblocking", "--pid", str(process_id)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PY_SPY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "Python stacks: py-spy gave no answer"
    return (done.stdout or done.stderr).decode("utf-8", errors="replace").rstrip()


def _kernel_view(process_id: int) -> str:
    lines = [f"Kernel's view of process {process_id}:"]
    try:
        threads = sorted(os.listdir(f"/proc/{process_id}/task"), key=int)
    except OSError:
        return f"Process {process_id} is gone."
    for thread in threads[:MAX_THREADS]:
        folder = Path(f"/proc/{process_id}/task/{thread}")
        state = " ".join(_state(int(thread)).split()) or "State: ?"
        waits = _read(folder / "wchan").strip()
        lines.append(f"thread {thread} ({_read(folder / 'comm').strip()}): {state}; waits in {waits or '?'}")
        stack = _read(folder / "stack").strip()
        lines += [f"    {line}" for line in stack.splitlines()[:12]]
    return "\n".join(lines)


def _state(process_id: int) -> str:
    status = _read(Path(f"/proc/{process_id}/status"))
    return next((line for line in status.splitlines() if line.startswith("State:")), "")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
