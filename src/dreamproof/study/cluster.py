"""Looks at a study's jobs without supervising it: for `status`, `why` and `plan --show-script`."""

import time
from dataclasses import replace

from dreamproof.base.files import read_json
from dreamproof.runs.layout import AttemptFolder
from dreamproof.settings.study import memory_bytes
from dreamproof.study.backends.api import Placement
from dreamproof.study.backends.slurm import job_name
from dreamproof.study.backends.slurm_commands import OVER, SlurmCommands, SlurmError
from dreamproof.study.backends.slurm_queue import WAITING_STATES, JobTable, placement, read_snapshot
from dreamproof.study.backends.slurm_script import Submission, script_text
from dreamproof.study.opening import OpenStudy
from dreamproof.study.plan import Gap

UNSEEN = "UNSEEN"


def placements(opened: OpenStudy, supervised: bool, commands: SlurmCommands | None = None) -> dict[str, Placement]:
    """Where every open attempt of a study on a cluster stands; a living supervisor's answer spares the controller."""
    slurm = opened.study.backend.slurm
    attempts = opened.state.open_attempts
    if slurm is None or not attempts:
        return {}
    if supervised:
        return {name: one for name, one in read_snapshot(opened.folder.queue).items() if name in attempts}
    commands = commands or SlurmCommands()
    table = JobTable(commands, job_name(opened.folder, opened.study.name), slurm.poll_seconds)
    try:
        answered = commands.available and table.refresh()
    except SlurmError:
        answered = False
    found = {name: _placement(opened.folder.attempt(name), table) for name in attempts}
    if answered:
        return found
    return {name: replace(one, state=UNSEEN, reason="the controller does not answer") for name, one in found.items()}


def _placement(folder: AttemptFolder, table: JobTable) -> Placement:
    told = read_json(folder.job)
    if not isinstance(told, dict):
        return Placement("", state=UNSEEN, reason="not handed in as far as its folder tells")
    number = f"{told['array_job']}_{told['element']}"
    job = table.find(str(told["array_job"]), int(told["element"]))
    if job is None:
        return Placement(number, state=UNSEEN, reason="Slurm does not speak of it")
    return placement(job, number)


def place_words(place: Placement) -> str:
    """Job and node, or why it waits and until when, in a few words."""
    words = place.job or "–"
    if place.state in WAITING_STATES:
        start = time.strftime(", expected %d %b %H:%M", time.localtime(place.expected_start or 0))
        return f"{words} queued: {place.reason or place.state}{start if place.expected_start else ''}"
    if place.state == UNSEEN:
        return f"{words} {place.reason}"
    return f"{words} on {place.nodes}" if place.nodes else words


def liveness(place: Placement) -> tuple[str, str] | None:
    """State and reason of an attempt that nobody supervises, by the scheduler's word; None while it runs."""
    if place.state in OVER:
        return "ended", f"Slurm: {place.state}; the next run records how it ended"
    if place.state in WAITING_STATES:
        return "queued", place.reason
    return ("unseen", place.reason) if place.state == UNSEEN else None


def script_of(opened: OpenStudy, gap: Gap) -> str:
    """The script that the next `run` would hand to sbatch; attempts get their names when they are made."""
    slurm = opened.study.backend.slurm
    assert slurm is not None
    size = 1 if not isinstance(opened.study.trainer, str) else opened.study.pack_cells
    count = max(1, min(-(-len(gap.train) // size), opened.study.backend.slots))
    last = max((int(name[1:].partition("r")[0]) for name in opened.state.attempts), default=0)
    folder = opened.folder
    names = [folder.attempt_name(last + 1 + place) for place in range(count)]
    made = len(list(folder.submissions.glob("s*"))) if folder.submissions.is_dir() else 0
    name = f"s{made + 1:06d}"
    told = read_json(folder.cluster)
    known = str(told["job_name"]) if isinstance(told, dict) else f"{opened.study.name[:40]}-XXXXXXXX"
    submission = Submission(
        name,
        known,
        folder.submissions / name,
        folder.attempts,
        names,
        memory_bytes(slurm.memory),
        slurm.time_limit,
    )
    return script_text(slurm, submission)
