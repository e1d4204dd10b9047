"""What an element of an array does on its node: takes its attempt, keeps it as everywhere, goes back into the queue.

Started as `python -m dreamproof.study.backends.slurm.node ATTEMPTS_FOLDER ATTEMPT` by the script that sbatch was given.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from dreamproof.base.files import read_json, write_json
from dreamproof.runs.layout import AttemptFolder
from dreamproof.study.backends.slurm.commands import SlurmCommands, SlurmError
from dreamproof.study.process import shim

LEASE_MARGIN_SECONDS = 5.0
LOOK_SECONDS = 0.5
END_SECONDS = 60.0
ALREADY_TAKEN = 0


def restarted_name(first: str, restarts: int) -> str:
    """The attempt that a job makes when it runs for the `restarts`-th time again."""
    return f"{first}r{restarts}" if restarts else first


def marker(attempt: str) -> str:
    """The line that begins an attempt in what Slurm keeps of its job; a job that runs again appends."""
    return f"dreamproof: {attempt} begins\n"


def open_attempt(attempts: Path, first: str, restarts: int) -> AttemptFolder:
    """The folder of an attempt; that of a restart is made by the job or the supervisor, whichever comes first."""
    folder = AttemptFolder(attempts / restarted_name(first, restarts))
    if restarts and not folder.order.exists():
        order = json.loads(AttemptFolder(attempts / first).order.read_bytes())
        order["attempt"] = folder.root.name
        order["event"] = {**order.get("event", {}), "attempt": folder.root.name}
        folder.root.mkdir(exist_ok=True)
        order["place"] = os.stat(folder.root).st_ino
        write_json(folder.lease, {"holder": folder.root.name}, durable=False)
        write_json(folder.order, order)
    return folder


def fence(folder: AttemptFolder, reason: str) -> None:
    """Takes the right to write away from an attempt that may still run somewhere."""
    lease = read_json(folder.lease)
    if not isinstance(lease, dict) or "fenced" not in lease:
        write_json(folder.lease, {"fenced": reason})


def is_settled(folder: AttemptFolder) -> bool:
    """Whether an attempt never began or recorded its end, so that nothing of it can write."""
    return folder.exit.exists() or not folder.shim.exists()


def wait_until_fenced(folder: AttemptFolder, lease_seconds: float) -> None:
    """Returns when an earlier attempt can write no more: its end is on record, or its lease must have run out."""
    fence(folder, "the job was started again")
    until = time.monotonic() + lease_seconds + LEASE_MARGIN_SECONDS
    while not is_settled(folder) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def own_job(first: str, restarts: int) -> dict[str, Any]:
    """Which job this process is, from the variables Slurm sets."""
    get = os.environ.get
    return {
        "job_id": get("SLURM_JOB_ID", ""),
        "array_job": get("SLURM_ARRAY_JOB_ID", get("SLURM_JOB_ID", "")),
        "element": int(get("SLURM_ARRAY_TASK_ID", "0")),
        "first": first,
        "restarts": restarts,
        "node": get("SLURMD_NODENAME", socket.gethostname()),
    }


def work(attempts: Path, first: str, requeue: bool = True) -> int:
    """Keeps one attempt; returns the exit code with which the job ends."""
    # A signal of Slurm must wait for the shim, which hears it, not kill this process before.
    signal.pthread_sigmask(signal.SIG_BLOCK, shim.LISTENED)
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    folder = open_attempt(attempts, first, restarts)
    print(marker(folder.root.name), end="", flush=True)
    job = own_job(first, restarts)
    write_json(folder.job, job, durable=False)
    if restarts:
        order = json.loads(folder.order.read_bytes())
        before = AttemptFolder(attempts / restarted_name(first, restarts - 1))
        wait_until_fenced(before, float(order.get("lease_seconds") or 0.0))
    own_shim = shim.run_attempt(folder)
    if own_shim is None:
        print(f"{folder.root.name} was already started or abandoned; nothing to do", flush=True)
        return ALREADY_TAKEN
    if own_shim.limit_is_near and requeue:
        requeue_job(f"{job['array_job']}_{job['element']}")
    return 128 + os.WTERMSIG(own_shim.status) if os.WIFSIGNALED(own_shim.status) else os.WEXITSTATUS(own_shim.status)


def requeue_job(job: str) -> None:
    """Requeues the job; if that is not allowed, the supervisor submits a new one."""
    try:
        SlurmCommands().requeue(job)
    except SlurmError as error:
        print(error.seen, flush=True)
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    time.sleep(END_SECONDS)  # Slurm ends this process now


def main() -> None:
    """Works on the attempt that the arguments name."""
    sys.exit(work(Path(sys.argv[1]), sys.argv[2], "--no-requeue" not in sys.argv))


if __name__ == "__main__":
    main()
