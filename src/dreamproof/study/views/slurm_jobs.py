"""Looks at a study's jobs without supervising it: for `status`, `why` and `plan --show-script`."""

import time
from dataclasses import replace

from dreamproof.base.files import read_json
from dreamproof.base.text import bytes_text
from dreamproof.runs.layout import AttemptFolder
from dreamproof.settings.backend import memory_bytes
from dreamproof.study.attempts.launch import attempt_number
from dreamproof.study.backends.api import JobPlacement
from dreamproof.study.backends.slurm.backend import job_name
from dreamproof.study.backends.slurm.commands import OVER, SlurmCommands, SlurmError
from dreamproof.study.backends.slurm.limits import find_stuck
from dreamproof.study.backends.slurm.queue import WAITING_STATES, JobTable, placement, read_snapshot
from dreamproof.study.backends.slurm.script import Submission, script_text
from dreamproof.study.ledger.lease import is_elsewhere, read_holder
from dreamproof.study.plan.gap import Gap
from dreamproof.study.plan.open_study import OpenStudy

UNSEEN = "UNSEEN"


def placements(opened: OpenStudy, supervised: bool, commands: SlurmCommands | None = None) -> dict[str, JobPlacement]:
    """The placement of every open attempt on a cluster; a running supervisor's snapshot saves a poll."""
    slurm = opened.study.backend.slurm
    attempts = opened.state.open_attempts
    if slurm is None or not attempts:
        return {}
    holder = read_holder(opened.folder.lease)
    if supervised and holder is not None and not is_elsewhere(holder):  # of another machine it is not known
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


def _placement(folder: AttemptFolder, table: JobTable) -> JobPlacement:
    job_file = read_json(folder.job)
    if not isinstance(job_file, dict):
        return JobPlacement("", state=UNSEEN, reason="not submitted, according to its folder")
    array, element = str(job_file.get("array_job")), job_file.get("element")
    if not isinstance(element, int):
        return JobPlacement("", state=UNSEEN, reason=f"{folder.job.name} of its folder is damaged")
    number = f"{array}_{element}"
    job = table.find(array, element)
    if job is None:
        return JobPlacement(number, state=UNSEEN, reason="job unknown to Slurm")
    return placement(job, number)


def live_evidence(opened: OpenStudy, attempt: str, commands: SlurmCommands | None = None) -> list[str]:
    """What Slurm reports now of an open attempt: where it is or why it waits, and its memory."""
    slurm = opened.study.backend.slurm
    if slurm is None or attempt not in opened.state.open_attempts:
        return []
    commands = commands or SlurmCommands()
    place = placements(opened, False, commands)[attempt]
    lines = [f"Slurm: {place.state}, {place_text(place)}"]
    job_file = read_json(opened.folder.attempt(attempt).job)
    job_id = job_file.get("job_id") if isinstance(job_file, dict) else None
    if place.state != "RUNNING" or not job_id:
        return lines
    try:
        peak_bytes = commands.live_peak_bytes(job_id)
    except SlurmError as error:
        return [*lines, f"Slurm: memory is not known: {error.seen}"]
    if peak_bytes is not None:
        asked = opened.state.known_cell(opened.state.attempts[attempt].cells[0]).memory_bytes
        limit = bytes_text(asked or memory_bytes(slurm.memory))
        lines.append(f"Slurm: peak memory {bytes_text(peak_bytes)} so far of {limit} asked for")
    return lines


def place_text(place: JobPlacement) -> str:
    """Job and node, or why it waits and until when, as short text."""
    job = place.job or "–"
    if place.state in WAITING_STATES:
        start = time.strftime(", expected %d %b %H:%M", time.localtime(place.expected_start or 0))
        stuck = find_stuck(place.reason)
        hint = f" ({stuck.remedy})" if stuck is not None else ""
        return f"{job} queued: {place.reason or place.state}{hint}{start if place.expected_start else ''}"
    if place.state == UNSEEN:
        return f"{job} {place.reason}"
    return f"{job} on {place.nodes}" if place.nodes else job


def liveness(place: JobPlacement) -> tuple[str, str] | None:
    """State and reason of an unsupervised attempt from the scheduler; None while it runs."""
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
    last = max(map(attempt_number, opened.state.attempts), default=0)
    folder = opened.folder
    names = [folder.attempt_name(last + 1 + place) for place in range(count)]
    made = len(list(folder.submissions.glob("s*"))) if folder.submissions.is_dir() else 0
    name = f"s{made + 1:06d}"
    cluster = read_json(folder.cluster)
    known = (
        str(cluster["job_name"])
        if isinstance(cluster, dict) and "job_name" in cluster
        else f"{opened.study.name[:40]}-XXXXXXXX"
    )
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
