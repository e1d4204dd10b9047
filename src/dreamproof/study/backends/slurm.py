"""Attempts as elements of Slurm arrays. What it must remember lies in attempts/, submissions/ and cluster.json."""

import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dreamproof.base.files import read_json, read_tail, write_json, write_text
from dreamproof.runs.layout import AttemptFolder, StudyFolder
from dreamproof.runs.reader import read_exit
from dreamproof.settings.study import Slurm
from dreamproof.study.backends.api import Placement, Presence, Sighting
from dreamproof.study.backends.slurm_commands import Job, SlurmBusy, SlurmCommands, SlurmError
from dreamproof.study.backends.slurm_node import (
    LEASE_MARGIN_SECONDS,
    fence,
    is_settled,
    open_attempt,
    restarted_name,
)
from dreamproof.study.backends.slurm_script import Submission, memory_bytes, script_text
from dreamproof.study.diagnose import SlurmEvidence
from dreamproof.study.processes import Identity, boot_id, process_facts
from dreamproof.study.shim import claim

MOST_ELEMENTS = 1000
WAIT_SECONDS = 0.5
SILENT_CONTROLLER_SECONDS = 120.0
SETTLING_SECONDS = 5.0
ABSENT_POLLS = 2
NEVER_STARTS = ("DependencyNeverSatisfied", "launch failed requeued held", "launch_failed_requeued_held")
SLURM_WORDS_BYTES = 8192
LATE_ANSWER_SECONDS = 90.0


@dataclass
class _Known:
    """What this process remembers of one attempt."""

    array_job: str = ""
    element: int = -1
    first: str = ""
    restarts: int = 0
    submission: str = ""
    absent_polls: int = 0
    absent_since: float | None = None
    fenced_at: float | None = None
    stop_sent: bool = False
    cancel_at: float | None = None
    cancelled: bool = False

    @property
    def job(self) -> str:
        return f"{self.array_job}_{self.element}" if self.array_job else ""


class SlurmBackend:
    """Submits attempts in arrays, asks about all of them in one call, and believes only what Slurm or a shim recorded."""

    def __init__(
        self,
        settings: Slurm,
        place: StudyFolder,
        study_name: str = "study",
        commands: SlurmCommands | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.commands = commands or SlurmCommands()
        self.job_name = cluster_name(place, study_name)
        self._place = place
        self._monotonic = monotonic
        self._boot = boot_id()
        self._queue: list[AttemptFolder] = []
        self._known: dict[Path, _Known] = {}
        self._unsure: dict[str, float] = {}
        """Submissions of which it is not known whether they arrived, and since when."""
        self._refused: dict[Path, str] = {}
        self._jobs: dict[tuple[str, str], Job] = {}
        self._comments: dict[str, str] = {}
        self._polls = 0
        self._poll_at = float("-inf")
        self._last_answer = monotonic()
        self._to_signal: list[str] = []
        self._to_cancel: list[str] = []

    def start(self, folder: AttemptFolder) -> None:
        """Puts the attempt on the list; everything on it goes to sbatch together at the next wait."""
        if not folder.lease.exists():
            write_json(folder.lease, {"holder": folder.root.name}, durable=False)
        self._known.setdefault(folder.root, _Known(first=folder.root.name))
        self._queue.append(folder)

    def look(self, folder: AttemptFolder) -> Sighting:
        """How the attempt stands, by its shim's record and the newest answer of the controller."""
        self._poll_if_due()
        known = self._remember(folder)
        if folder.root in self._refused:
            return self._give_up(folder, known, SlurmEvidence("REFUSED", reason=self._refused[folder.root]))
        if not known.array_job:
            return self._look_before_job(folder, known)
        job = self._job(known)
        if job is None:
            return self._look_without_job(folder, known)
        known.absent_polls, known.absent_since = 0, None
        if job.restarts > known.restarts:
            return self._look_at_requeued(folder, known, job)
        if job.over:
            return self._settle(folder, known, job)
        if job.state == "PENDING":
            return self._look_at_pending(folder, known, job)
        self._hurry_cancel(folder, known)
        return self._look_at_running(folder, known, job)

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        """Leaves the reason for the shim and signals it; what has not begun is cancelled at once."""
        known = self._remember(folder)
        if not folder.stop.exists():
            write_json(folder.stop, {"reason": reason, "grace_seconds": grace_seconds}, durable=False)
        if folder in self._queue:
            self._queue.remove(folder)
            self._refused[folder.root] = "stopped before it was submitted"
            return
        job = self._job(known) if known.array_job else None
        if job is not None and job.state == "PENDING":
            self._cancel(known)
        elif known.array_job and not known.stop_sent:
            known.stop_sent = True
            known.cancel_at = self._monotonic() + grace_seconds + SETTLING_SECONDS
            self._to_signal.append(known.job)

    def wait(self, seconds: float) -> None:
        """Hands in what was started, sends what is to be sent, sleeps; a shared disk wakes nobody, so it is short."""
        self._submit_queue()
        self._send()
        time.sleep(max(WAIT_SECONDS, seconds) if seconds >= 0 else WAIT_SECONDS)

    def close(self) -> None:
        """Hands in what was started and forgets; attempts run on."""
        self._submit_queue()
        self._send()
        self._known.clear()

    # What the scheduler is told

    def _submit_queue(self) -> None:
        while self._queue and not self.commands.is_quiet():
            asked = self._request(self._queue[0])
            batch = [folder for folder in self._queue if self._request(folder) == asked][:MOST_ELEMENTS]
            self._queue = [folder for folder in self._queue if folder not in batch]
            try:
                self._submit(batch, *asked)
            except SlurmBusy:
                return

    def _request(self, folder: AttemptFolder) -> tuple[int, str]:
        """Memory and time limit to ask for."""
        order = read_json(folder.order) or {}
        limit = order.get("time_limit") or self.settings.time_limit
        return int(order.get("request_bytes") or memory_bytes(self.settings.memory)), str(limit)

    def _submit(self, batch: list[AttemptFolder], request_bytes: int, time_limit: str) -> None:
        """One call of sbatch; what it is about is on disk before, so that no answer can be lost with us."""
        name, folder = self._new_submission()
        attempts = [attempt.root.name for attempt in batch]
        submission = Submission(
            name, self.job_name, folder, batch[0].root.parent, attempts, request_bytes, time_limit
        )
        script = folder / "script.sh"
        write_text(folder / "attempts.txt", "\n".join(attempts) + "\n")
        write_text(script, script_text(self.settings, submission))
        for element, attempt in enumerate(batch):
            known = self._remember(attempt)
            known.submission, known.element, known.array_job = name, element, ""
        try:
            array_job = self.commands.submit(script)
        except SlurmBusy:
            self._unsure[name] = self._monotonic()
            raise
        except SlurmError as error:
            self._refused.update({attempt.root: error.seen for attempt in batch})
            return
        self._note_jobs(name, array_job)
        self._poll_at = min(self._poll_at, self._monotonic() + self.commands.next_poll_seconds(1.0))

    def _new_submission(self) -> tuple[str, Path]:
        self._place.submissions.mkdir(parents=True, exist_ok=True)
        numbers = [int(name[1:]) for name in os.listdir(self._place.submissions) if re.fullmatch(r"s\d+", name)]
        number = max(numbers, default=0) + 1
        name = f"s{number:06d}"
        folder = self._place.submissions / name
        folder.mkdir()
        return name, folder

    def _note_jobs(self, submission: str, array_job: str) -> None:
        """Writes down which job each attempt of a submission is."""
        self._unsure.pop(submission, None)
        for root, known in self._known.items():
            if known.submission == submission and not known.array_job:
                known.array_job = array_job
                value = {"array_job": array_job, "element": known.element, "first": known.first, "restarts": 0}
                write_json(AttemptFolder(root).job, value, durable=False)

    def _cancel(self, known: _Known) -> None:
        if not known.cancelled:
            known.cancelled = True
            self._to_cancel.append(known.job)

    def _hurry_cancel(self, folder: AttemptFolder, known: _Known) -> None:
        """Cancels what did not end within its grace, and what another supervisor asked to stop before it died."""
        if known.cancel_at is not None and self._monotonic() >= known.cancel_at and not folder.exit.exists():
            self._cancel(known)

    def _send(self) -> None:
        """Sends stops and cancels, each kind in one call; they stay on the list while the controller is busy."""
        if self.commands.is_quiet():
            return
        try:
            if self._to_signal:
                self.commands.signal(self.job_name, self._to_signal)
                self._to_signal = []
            if self._to_cancel:
                self.commands.cancel(self.job_name, self._to_cancel)
                self._to_cancel = []
                self._poll_at = min(self._poll_at, self._monotonic() + 1.0)
        except SlurmBusy:
            return

    # What the scheduler says

    def _poll_if_due(self) -> None:
        now = self._monotonic()
        if now < self._poll_at or self.commands.is_quiet() or not self._wants_poll():
            return
        try:
            jobs = self.commands.jobs(self.job_name)
        except SlurmBusy:
            self._poll_at = self._monotonic() + 1.0
            return
        self._polls += 1
        self._last_answer = self._monotonic()
        self._poll_at = self._last_answer + self.commands.next_poll_seconds(self.settings.poll_seconds)
        self._jobs = {(job.array_job, job.element): job for job in jobs}
        self._comments = {job.comment: job.array_job for job in jobs}
        self._waiting_arrays = {job.array_job: job for job in jobs if job.state == "PENDING" and not job.element.isdigit()}
        for name in [*self._unsure]:
            if name in self._comments:
                self._note_jobs(name, self._comments[name])
        self._write_snapshot(jobs)

    def _wants_poll(self) -> bool:
        return bool(self._unsure) or any(known.array_job or known.submission for known in self._known.values())

    def _write_snapshot(self, jobs: list[Job]) -> None:
        """Leaves the answer for `status`, which then need not ask the controller itself."""
        open_jobs = [known for known in self._known.values() if known.array_job]
        rows = {known.first: placement(job).__dict__ for known in open_jobs if (job := self._job(known)) is not None}
        write_json(self._place.queue, {"unix_seconds": time.time(), "jobs": rows}, durable=False)

    def _job(self, known: _Known) -> Job | None:
        """The newest word about an element; those that wait together are told in one line."""
        found = self._jobs.get((known.array_job, str(known.element)))
        if found is not None:
            return found
        return self._waiting_arrays.get(known.array_job) if self._polls else None

    _waiting_arrays: dict[str, Job] = {}  # noqa: RUF012 - replaced, never changed
