"""The controller's last answer about a study's jobs: asked in one call, seldom, and left for readers."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dreamproof.base.files import read_json, unless_full, write_json
from dreamproof.study.backends.api import JobPlacement
from dreamproof.study.backends.slurm.commands import SlurmBusy, SlurmCommands, SlurmError, SlurmJob, listed_elements

PLACEMENT = TypeAdapter(JobPlacement)
WAITING_STATES = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


class JobTable:
    """All jobs of one name, as of the newest answer."""

    def __init__(
        self, commands: SlurmCommands, name: str, poll_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.polls = 0
        self.last_answer = monotonic()
        self._commands, self._name, self._poll_seconds = commands, name, poll_seconds
        self._monotonic = monotonic
        self._poll_at = float("-inf")
        self._jobs: dict[tuple[str, str], SlurmJob] = {}
        self._arrays: dict[str, str] = {}

    def refresh(self) -> bool:
        """Polls if it is due; True if there is a new answer.

        A controller that answered before and now fails, in whatever words, is asked again: jobs continue without it.
        """
        if self._monotonic() < self._poll_at or self._commands.is_backing_off():
            return False
        try:
            jobs = self._commands.jobs(self._name)
        except SlurmError as error:
            if self.polls == 0 and not isinstance(error, SlurmBusy):
                raise
            self._poll_at = self._monotonic() + 1.0
            return False
        self.polls += 1
        self.last_answer = self._monotonic()
        self._poll_at = self.last_answer + self._commands.next_poll_seconds(self._poll_seconds)
        self._jobs = {(job.array_job, job.element): job for job in jobs}
        # Elements that wait together are listed in one line with a list of their numbers.
        for job in jobs:
            if job.element and not job.element.isdigit():
                self._jobs |= {(job.array_job, str(number)): job for number in listed_elements(job.element)}
        self._arrays = {job.comment: job.array_job for job in jobs}
        return True

    def poll_soon(self, seconds: float = 1.0) -> None:
        """Brings the next question forward."""
        soon = self.last_answer + self._commands.next_poll_seconds(seconds)
        self._poll_at = min(self._poll_at, max(soon, self._monotonic()))

    def find(self, array_job: str, element: int) -> SlurmJob | None:
        """The newest answer about one element; None if there was none."""
        return self._jobs.get((array_job, str(element)))

    def knows(self, array_job: str) -> bool:
        """Whether the controller remembers anything of an array."""
        return array_job in self._arrays.values()

    def array_of(self, submission: str) -> str | None:
        """The job that a submission became."""
        return self._arrays.get(submission)

    def silent_seconds(self) -> float:
        """Time since the controller last answered."""
        return self._monotonic() - self.last_answer


def placement(job: SlurmJob, number: str) -> JobPlacement:
    """An element as people read it."""
    waiting = job.state in WAITING_STATES
    return JobPlacement(
        number,
        "" if waiting else job.nodes,
        job.state,
        job.reason,
        job.started if waiting else None,
        job.queue_seconds,
        job.allocated_seconds,
        job.restarts,
    )


def write_snapshot(path: Path, placements: dict[str, JobPlacement]) -> None:
    """Leaves an answer for those who only look."""
    rows = {name: vars(one) for name, one in placements.items()}
    with unless_full():
        write_json(path, {"unix_seconds": time.time(), "jobs": rows}, durable=False)


def read_snapshot(path: Path) -> dict[str, JobPlacement]:
    """The status of the jobs at the last poll, by attempt."""
    snapshot: Any = read_json(path)
    rows = snapshot.get("jobs") if isinstance(snapshot, dict) else None
    found: dict[str, JobPlacement] = {}
    for name, row in rows.items() if isinstance(rows, dict) else ():
        with suppress(ValueError):  # a row of another form is left out
            found[name] = PLACEMENT.validate_python(row)
    return found
