"""What every backend does: start an attempt, report its status, stop it, wake up when one ends."""

import os
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from dreamproof.base.files import write_json
from dreamproof.runs.layout import AttemptFolder
from dreamproof.runs.records import ExitRecord
from dreamproof.study.diagnosis.liveness import Activity


@dataclass(frozen=True)
class Order:
    """What an attempt is to run, as in order.json."""

    attempt: str
    commands: list[list[str]]
    """Run one after the other; the first that fails ends the attempt."""
    environment: dict[str, str]
    working_folder: str
    event: dict[str, Any]
    """The attempt_started event, so that a torn ledger can learn of it again."""
    memory_limit_bytes: int | None = None
    stop_grace_seconds: float = 60.0
    lease_seconds: float | None = None
    """How long its shim continues without reading its lease; None if no lease is needed."""
    request_bytes: int | None = None
    """Host memory to ask a cluster for, if it differs from what is declared."""
    locks: list[str] = field(default_factory=list)
    """Files that the attempt locks for as long as any of its processes lives: one per cell."""
    place: int | None = None
    """The inode of the folder that it was written into: a copy of the folder has another one."""


def write_order(folder: AttemptFolder, order: Order) -> None:
    """Makes the folder of an attempt and writes what it is to run."""
    folder.root.mkdir(parents=True, exist_ok=True)
    write_json(folder.order, asdict(replace(order, place=os.stat(folder.root).st_ino)))


@dataclass(frozen=True)
class JobPlacement:
    """Where a scheduler put an attempt, and for how long."""

    job: str
    nodes: str = ""
    state: str = ""
    reason: str = ""
    expected_start: float | None = None
    """Unix seconds, as far as the scheduler knows."""
    queue_seconds: float | None = None
    allocated_seconds: float | None = None
    restarts: int = 0


class Presence(StrEnum):
    """The status of an attempt."""

    WAITING = "waiting"
    """Ordered; nothing of it runs yet."""
    RUNNING = "running"
    ENDED = "ended"
    """Over, and how it ended is on record."""
    LOST = "lost"
    """Over or never started, without an exit record."""


@dataclass(frozen=True)
class Sighting:
    """One look at one attempt."""

    presence: Presence
    exit: ExitRecord | None = None
    process_state: str | None = None
    cpu_seconds: float | None = None
    process_id: int | None = None
    machine_restarted: bool = False
    never_began: bool = False
    placement: JobPlacement | None = None
    successor: str | None = None
    """The attempt that continues the same job, already ordered."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What only this backend knows, e.g. the output of a scheduler."""
    unseen: str | None = None
    """Why a running attempt cannot be seen from here, e.g. because another container runs it."""


class Backend(Protocol):
    """Runs attempts. Everything it must remember is in the attempt's folder."""

    def start(self, folder: AttemptFolder) -> None:
        """Starts the order in order.json; returns at once."""

    def look(self, folder: AttemptFolder) -> Sighting:
        """The status of the attempt."""

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        """Asks the attempt to save and end; what has not ended after the grace is killed."""

    def activity(self, folder: AttemptFolder) -> Activity | None:
        """What all processes of a running attempt use; None if that cannot be known from here."""

    def wait(self, seconds: float) -> None:
        """Sleeps, and wakes early when an attempt may have ended."""

    def close(self) -> None:
        """Lets go of everything; attempts run on."""
