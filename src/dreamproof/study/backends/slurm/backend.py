"""Attempts as elements of Slurm arrays. Its state is in attempts/, submissions/ and cluster.json."""

import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dreamproof.base.files import read_json, read_tail, write_json, write_text
from dreamproof.runs.layout import AttemptFolder, StudyFolder
from dreamproof.runs.reader import read_exit
from dreamproof.settings.backend import Slurm, gpus_of, memory_bytes
from dreamproof.study.backends.api import JobPlacement, Presence, Sighting
from dreamproof.study.backends.slurm.commands import SlurmBusy, SlurmCommands, SlurmError, SlurmJob
from dreamproof.study.backends.slurm.limits import Request, Site, find_stuck, never_starts
from dreamproof.study.backends.slurm.node import (
    LEASE_MARGIN_SECONDS,
    fence,
    is_settled,
    marker,
    open_attempt,
    restarted_name,
)
from dreamproof.study.backends.slurm.queue import WAITING_STATES, JobTable, placement, write_snapshot
from dreamproof.study.backends.slurm.script import Submission, script_text
from dreamproof.study.diagnosis.diagnose import SlurmEvidence
from dreamproof.study.diagnosis.liveness import Activity
from dreamproof.study.process.processes import ProcessIdentity, boot_id, process_facts
from dreamproof.study.process.shim import claim

MAX_ELEMENTS = 1000
MAX_ACCOUNTED = 200
MIN_WAIT_SECONDS = 1.0
SETTLING_SECONDS = 5.0
SILENT_CONTROLLER_SECONDS = 120.0
ABSENT_POLLS = 3
LOST_STATES = ("NODE_FAIL", "BOOT_FAIL")
SLURM_OUTPUT_BYTES = 65536


@dataclass
class _SlurmAttempt:
    """What this process remembers of one attempt."""

    first: str
    array_job: str = ""
    element: int = -1
    restarts: int = 0
    submission: str = ""
    since_poll: int = 0
    """Polls that were made before the last time it was seen in an answer."""
    over_since: float | None = None
    fenced_at: float | None = None
    cancel_at: float | None = None
    signalled: bool = False
    cancelled: bool = False

    @property
    def job(self) -> str:
        return f"{self.array_job}_{self.element}"


class SlurmBackend:
    """Submits in arrays, asks about all jobs in one call, and believes only what Slurm or a shim recorded."""

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
        self.job_name = job_name(place, study_name)
        self.table = JobTable(self.commands, self.job_name, settings.poll_seconds, monotonic)
        self._place = place
        self._monotonic = monotonic
        self._boot = boot_id()
        self._queue: list[AttemptFolder] = []
        self._known: dict[Path, _SlurmAttempt] = {}
        self._refused: dict[Path, str] = {}
        self._accounts: dict[str, SlurmJob] = {}
        self._to_account: list[str] = []
        self._to_signal: list[str] = []
        self._to_cancel: list[str] = []
        self._site: Site | None = None

    def start(self, folder: AttemptFolder) -> None:
        """Queues the attempt; all queued attempts go to sbatch together at the next wait."""
        if not folder.lease.exists():
            write_json(folder.lease, {"holder": folder.root.name}, durable=False)
        self._known[folder.root] = _SlurmAttempt(folder.root.name)
        self._queue.append(folder)

    def look(self, folder: AttemptFolder) -> Sighting:
        """The status of the attempt, from its shim's record and the newest answer of the controller."""
        known = self._remember(folder)
        if folder in self._queue:
            return Sighting(Presence.WAITING)
        if folder.root in self._refused:
            state = "CANCELLED" if folder.stop.exists() else "REFUSED"
            return self._give_up(folder, known, SlurmEvidence(state, reason=self._refused[folder.root]))
        if self.table.refresh():
            self._take_answer()
        if not known.array_job:
            return self._look_before_job(folder, known)
        job = self.table.find(known.array_job, known.element)
        if job is None:
            return self._look_without_job(folder, known)
        known.since_poll = self.table.polls
        return self._look_at(folder, known, job)

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        """Leaves the reason for the shim and signals it; what has not begun is cancelled."""
        known = self._remember(folder)
        if folder.root.is_dir() and not folder.stop.exists():
            write_json(folder.stop, {"reason": reason, "grace_seconds": grace_seconds}, durable=False)
        if folder in self._queue:
            self._queue.remove(folder)
            self._refused[folder.root] = "stopped before it was submitted"
            return
        job = self.table.find(known.array_job, known.element)
        if job is not None and job.state in WAITING_STATES:
            self._cancel(known)
        elif known.cancel_at is None:
            known.cancel_at = self._monotonic() + grace_seconds + SETTLING_SECONDS

    def activity(self, folder: AttemptFolder) -> Activity | None:
        """Unknown: the processes run on another machine."""
        return None

    def wait(self, seconds: float) -> None:
        """Submits queued attempts, sends signals, and sleeps; a shared disk has no wake-up events."""
        self._submit_queued()
        self._send()
        self._ask_accounting()
        time.sleep(max(MIN_WAIT_SECONDS, seconds))

    def close(self) -> None:
        """Submits queued attempts and forgets them; attempts keep running."""
        self._submit_queued()
        self._send()
        self._known.clear()

    def _submit_queued(self) -> None:
        while self._queue and not self.commands.is_backing_off():
            asked = self._request(self._queue[0])
            batch = [folder for folder in self._queue if self._request(folder) == asked][:MAX_ELEMENTS]
            taken = {folder.root for folder in batch}
            self._queue = [folder for folder in self._queue if folder.root not in taken]
            self._submit(batch, *asked)

    def _request(self, folder: AttemptFolder) -> tuple[int, str]:
        """Memory and time limit that an attempt asks for."""
        order = read_json(folder.order) or {}
        asked = order.get("request_bytes") or memory_bytes(self.settings.memory)
        return int(asked), str(order.get("time_limit") or self.settings.time_limit)

    def _submit(self, batch: list[AttemptFolder], request_bytes: int, time_limit: str) -> None:
        """One call of sbatch; what it is about is on disk before, so that its answer cannot be lost with us."""
        name, folder = self._new_submission()
        attempts = [attempt.root.name for attempt in batch]
        submission = Submission(name, self.job_name, folder, batch[0].root.parent, attempts, request_bytes, time_limit)
        write_text(folder / "attempts.txt", "\n".join(attempts) + "\n")
        write_text(folder / "script.sh", script_text(self.settings, submission))
        for element, attempt in enumerate(batch):
            known = self._remember(attempt)
            known.submission, known.element, known.since_poll = name, element, self.table.polls
        try:
            array_job = self.commands.submit(folder / "script.sh")
        except SlurmBusy:
            return  # it may have arrived; the next answers show
        except SlurmError as error:
            self._refused.update({attempt.root: error.seen for attempt in batch})
            return
        self._record_jobs(name, array_job)
        self.table.poll_soon()

    def _new_submission(self) -> tuple[str, Path]:
        place = self._place.submissions
        place.mkdir(parents=True, exist_ok=True)
        numbers = [int(name[1:]) for name in os.listdir(place) if re.fullmatch(r"s\d+", name)]
        name = f"s{max(numbers, default=0) + 1:06d}"
        (place / name).mkdir()
        return name, place / name

    def _record_jobs(self, submission: str, array_job: str) -> None:
        """Writes down which job each attempt of a submission is."""
        for root, known in self._known.items():
            if known.submission == submission and not known.array_job:
                known.array_job, known.since_poll = array_job, self.table.polls
                value = {"array_job": array_job, "element": known.element, "first": known.first, "restarts": 0}
                if not AttemptFolder(root).job.exists():  # a job that has begun knows more about itself
                    write_json(AttemptFolder(root).job, {**value, "submission": submission}, durable=False)

    def _take_answer(self) -> None:
        for name in {known.submission for known in self._known.values() if not known.array_job and known.submission}:
            array_job = self.table.array_of(name)
            if array_job is not None:
                self._record_jobs(name, array_job)
        seen = {
            root.name: placement(job, known.job)
            for root, known in self._known.items()
            if known.array_job and (job := self.table.find(known.array_job, known.element)) is not None
        }
        write_snapshot(self._place.queue, seen)

    def _cancel(self, known: _SlurmAttempt) -> None:
        if not known.cancelled and known.array_job:
            known.cancelled = True
            self._to_cancel.append(known.job)

    def _enforce_stop(self, folder: AttemptFolder, known: _SlurmAttempt) -> None:
        """Signals an attempt that is to stop, and cancels it when its grace is over."""
        if known.cancel_at is None or folder.exit.exists():
            return
        if not known.signalled:
            known.signalled = True
            self._to_signal.append(known.job)
        if self._monotonic() >= known.cancel_at:
            self._cancel(known)

    def _send(self) -> None:
        """Sends signals and cancels, each kind in one call; they stay on the list while the controller is busy."""
        try:
            if self._to_signal and not self.commands.is_backing_off():
                self.commands.signal(self.job_name, self._to_signal)
                self._to_signal = []
            if self._to_cancel and not self.commands.is_backing_off():
                self.commands.cancel(self.job_name, self._to_cancel)
                self._to_cancel = []
                self.table.poll_soon()
        except SlurmBusy:
            return

    def _remember(self, folder: AttemptFolder) -> _SlurmAttempt:
        """What is known of an attempt: from this process, from its folder, or from its submission."""
        known = self._known.get(folder.root)
        if known is None:
            known = self._known[folder.root] = _SlurmAttempt(folder.root.name, since_poll=self.table.polls)
        if not known.array_job:
            job_file = read_json(folder.job)
            if isinstance(job_file, dict):
                known.array_job, known.element = str(job_file["array_job"]), int(job_file["element"])
                known.first, known.restarts = str(job_file["first"]), int(job_file["restarts"])
            elif not known.submission and folder not in self._queue:
                known.submission, known.element = self._find_submission(folder.root.name)
        return known

    def _find_submission(self, attempt: str) -> tuple[str, int]:
        """The newest submission that holds an attempt and the attempt's place in it; ('', -1) where there is none."""
        if self._place.submissions.is_dir():
            for folder in sorted(self._place.submissions.iterdir(), reverse=True):
                names = read_tail(folder / "attempts.txt", 1 << 20).split()
                if attempt in names:
                    return folder.name, names.index(attempt)
        return "", -1

    def _polls_without(self, known: _SlurmAttempt) -> int:
        return self.table.polls - known.since_poll

    def _look_before_job(self, folder: AttemptFolder, known: _SlurmAttempt) -> Sighting:
        """Not in any answer yet: waits for some, then closes the attempt for good, unless it began meanwhile."""
        if known.submission and self._polls_without(known) < ABSENT_POLLS:
            self.table.poll_soon(MIN_WAIT_SECONDS)
            return Sighting(Presence.WAITING)
        return self._give_up(folder, known, None)

    def _give_up(self, folder: AttemptFolder, known: _SlurmAttempt, evidence: SlurmEvidence | None) -> Sighting:
        """Closes an attempt that has not begun, so that no job can begin it later."""
        if not claim(folder, {"void": "abandoned before a job started it"}):
            shim = read_json(folder.shim)
            if not (isinstance(shim, dict) and "void" in shim):
                known.since_poll = self.table.polls
                return Sighting(Presence.RUNNING)
        self._forget(folder)
        state = evidence.job_state if evidence is not None else ""
        job = JobPlacement(known.job, state=state) if known.array_job else None
        return Sighting(Presence.LOST, never_began=True, placement=job, facts=_facts(evidence, ""))

    def _look_without_job(self, folder: AttemptFolder, known: _SlurmAttempt) -> Sighting:
        """The job is unknown to Slurm: too new, forgotten, or the controller lost its memory."""
        began = folder.shim.exists()
        if self._polls_without(known) < ABSENT_POLLS:
            if self.table.polls:
                self.table.poll_soon(MIN_WAIT_SECONDS)
            if folder.exit.exists() and self.table.silent_seconds() > SILENT_CONTROLLER_SECONDS:
                return self._over(folder, known, None)
            return self._running(folder, known, None) if began else Sighting(Presence.WAITING)
        if self._awaits_accounts(known):
            return Sighting(Presence.RUNNING if began else Presence.WAITING)
        job = self._accounts.get(known.job)
        if job is not None and job.over:
            return self._look_at(folder, known, job)
        if not began and self.table.knows(known.array_job):
            reason = "removed from the queue before it started"
            return self._give_up(folder, known, SlurmEvidence("CANCELLED", reason=reason))
        if not began:
            return self._give_up(folder, known, SlurmEvidence("UNKNOWN", reason="job unknown to Slurm"))
        if not self._is_fenced(folder, known, "job unknown to Slurm"):
            return Sighting(Presence.RUNNING)
        return self._over(
            folder, known, SlurmJob(known.array_job, str(known.element), "UNKNOWN", reason="job unknown to Slurm")
        )

    def _look_at(self, folder: AttemptFolder, known: _SlurmAttempt, job: SlurmJob) -> Sighting:
        if job.restarts > known.restarts:
            return self._look_at_requeued(folder, known, job)
        if job.over:
            return self._look_at_ended(folder, known, job)
        known.over_since = None
        if job.state in WAITING_STATES:
            return self._look_at_waiting(folder, known, job)
        self._enforce_stop(folder, known)
        return self._running(folder, known, job)

    def _look_at_waiting(self, folder: AttemptFolder, known: _SlurmAttempt, job: SlurmJob) -> Sighting:
        if known.cancel_at is not None:
            self._cancel(known)
        remedy = self._never_starts(folder, job)
        if remedy is not None:
            self._cancel(known)
            return self._give_up(folder, known, _evidence(replace(job, reason=f"{job.reason}: {remedy}")))
        return Sighting(Presence.WAITING, placement=placement(job, known.job))

    def _never_starts(self, folder: AttemptFolder, job: SlurmJob) -> str | None:
        """The remedy if a job waits for something that never comes."""
        if find_stuck(job.reason) is None:
            return None
        if self._site is None:
            groups = self.commands.group_limits(self.settings.account, self.settings.qos)
            self._site = Site(self.commands.partition_limits(), groups)
        request_bytes, time_limit = self._request(folder)
        gpus = gpus_of(self.settings.gres) or 0
        request = Request(time_limit, self.settings.cpus_per_task, request_bytes >> 20, gpus)
        return never_starts(job.reason, self.settings, request, self._site)

    def _running(self, folder: AttemptFolder, known: _SlurmAttempt, job: SlurmJob | None) -> Sighting:
        """A job that Slurm runs; its process is looked at where it runs on this machine."""
        if folder.exit.exists():
            self.table.poll_soon(MIN_WAIT_SECONDS)
            if self.table.silent_seconds() > SILENT_CONTROLLER_SECONDS:
                return self._over(folder, known, None)
        place = placement(job, known.job) if job is not None else None
        shim = read_json(folder.shim)
        child = ProcessIdentity.read(shim.get("child")) if isinstance(shim, dict) else None
        facts = process_facts(child, self._boot) if child is not None else None
        if child is None or facts is None:
            return Sighting(Presence.RUNNING, placement=place)
        return Sighting(
            Presence.RUNNING,
            process_state=facts.state,
            cpu_seconds=facts.cpu_seconds,
            process_id=child.process_id,
            placement=place,
        )

    def _look_at_ended(self, folder: AttemptFolder, known: _SlurmAttempt, job: SlurmJob) -> Sighting:
        """The job is over: waits for the shim's record on the shared disk; a lost node is fenced."""
        if job.state in LOST_STATES and not self._is_fenced(folder, known, f"Slurm: {job.state}"):
            return Sighting(Presence.RUNNING, placement=placement(job, known.job))
        if not folder.shim.exists() and not claim(folder, {"void": f"Slurm: {job.state}"}):
            return Sighting(Presence.WAITING, placement=placement(job, known.job))
        if known.over_since is None:
            known.over_since = self._monotonic()
        if not is_settled(folder) and not _is_void(folder) and not self._is_settled_late(known):
            return Sighting(Presence.RUNNING, placement=placement(job, known.job))
        if job.state == "FAILED" and self._awaits_accounts(known):
            return Sighting(Presence.RUNNING, placement=placement(job, known.job))
        return self._over(folder, known, job)

    def _awaits_accounts(self, known: _SlurmAttempt) -> bool:
        """Whether the accounting, which lags behind the controller, may still report more about an end."""
        if known.over_since is None:
            known.over_since = self._monotonic()
        accounted = self._accounts.get(known.job)
        if (
            not self.commands.has_accounting
            or (accounted is not None and accounted.over)
            or self._is_settled_late(known)
        ):
            return False
        if known.job not in self._to_account:
            self._to_account.append(known.job)
        return True

    def _ask_accounting(self) -> None:
        """Asks about everything that waits for an answer, in one call; what gets none is asked about again."""
        if not self._to_account or not self.commands.has_accounting or self.commands.is_backing_off():
            return
        asked, self._to_account = self._to_account[:MAX_ACCOUNTED], self._to_account[MAX_ACCOUNTED:]
        try:
            self._accounts.update(self.commands.accounted(asked))
        except SlurmBusy:
            return
        except SlurmError:
            self.commands.has_accounting = False  # without permission now, there is none later

    def _is_settled_late(self, known: _SlurmAttempt) -> bool:
        return known.over_since is not None and self._monotonic() - known.over_since >= SETTLING_SECONDS

    def _look_at_requeued(self, folder: AttemptFolder, known: _SlurmAttempt, job: SlurmJob) -> Sighting:
        """The job was requeued: this attempt is over and the job continues as another one."""
        fence(folder, "its job was requeued")
        if known.over_since is None:
            known.over_since = self._monotonic()
        if not folder.shim.exists():
            claim(folder, {"void": "its job was requeued"})
        if not folder.exit.exists() and not _is_void(folder) and not self._is_settled_late(known):
            return Sighting(Presence.RUNNING, placement=placement(job, known.job))
        successor = open_attempt(folder.root.parent, known.first, known.restarts + 1)
        if not successor.job.exists():
            value = {"array_job": known.array_job, "element": known.element, "first": known.first}
            write_json(successor.job, {**value, "restarts": known.restarts + 1}, durable=False)
        ended = SlurmJob(known.array_job, str(known.element), "REQUEUED", reason=f"Restarts={job.restarts}")
        sighting = self._over(folder, known, ended)
        return Sighting(
            sighting.presence,
            sighting.exit,
            never_began=sighting.never_began,
            placement=JobPlacement(known.job, job.nodes, "REQUEUED", job.reason, restarts=job.restarts),
            successor=successor.root.name,
            facts=sighting.facts,
        )

    def _is_fenced(self, folder: AttemptFolder, known: _SlurmAttempt, reason: str) -> bool:
        """Revokes the lease, then waits until its shim has ended it or the lease has expired."""
        fence(folder, reason)
        if known.fenced_at is None:
            known.fenced_at = self._monotonic()
        patience = self.settings.lease_seconds + LEASE_MARGIN_SECONDS
        return is_settled(folder) or _is_void(folder) or self._monotonic() - known.fenced_at >= patience

    def _over(self, folder: AttemptFolder, known: _SlurmAttempt, job: SlurmJob | None) -> Sighting:
        record = read_exit(folder.exit)
        accounted = self._accounts.pop(known.job, None)
        if job is not None and accounted is not None:
            job = replace(job, step_states=accounted.step_states)
        output = self._slurm_output(folder.root.name, known)
        successor = AttemptFolder(folder.root.with_name(restarted_name(known.first, known.restarts + 1)))
        self._forget(folder)
        return Sighting(
            Presence.ENDED if record is not None else Presence.LOST,
            record,
            never_began=_is_void(folder),
            placement=placement(job, known.job) if job is not None else JobPlacement(known.job),
            successor=successor.root.name if successor.order.exists() else None,
            facts=_facts(_evidence(job) if job is not None else None, output),
        )

    def _slurm_output(self, attempt: str, known: _SlurmAttempt) -> str:
        """What Slurm wrote about this run of an element, in addition to the trainer's own output."""
        submission = known.submission or self._find_submission(known.first)[0]
        if not submission:
            return ""
        text = read_tail(self._place.submissions / submission / f"{known.element}.out", SLURM_OUTPUT_BYTES)
        _, began, after = text.partition(marker(attempt))
        mine = after if began else text
        return mine.partition(marker(restarted_name(known.first, known.restarts + 1)))[0]

    def _forget(self, folder: AttemptFolder) -> None:
        self._known.pop(folder.root, None)
        self._refused.pop(folder.root, None)


def _is_void(folder: AttemptFolder) -> bool:
    shim = read_json(folder.shim)
    return isinstance(shim, dict) and "void" in shim


def _evidence(job: SlurmJob) -> SlurmEvidence:
    return SlurmEvidence(job.state, job.exit_code, job.derived_exit_code, job.reason, job.step_states)


def _facts(evidence: SlurmEvidence | None, output: str) -> dict[str, object]:
    found: dict[str, object] = {"slurm": evidence} if evidence is not None else {}
    return {**found, "scheduler_output": output} if output.strip() else found


def job_name(place: StudyFolder, study_name: str) -> str:
    """The unique name of all jobs of a study; made once."""
    cluster = read_json(place.cluster)
    if not isinstance(cluster, dict):
        place.root.mkdir(parents=True, exist_ok=True)
        cluster = {"job_name": f"{study_name[:40]}-{secrets.token_hex(4)}"}
        write_json(place.cluster, cluster)
    return str(cluster["job_name"])
