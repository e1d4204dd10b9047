"""Attempts as processes of this machine, each under its own shim."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamproof.base.files import open_own_file, read_json, write_json
from dreamproof.base.locks import is_locked
from dreamproof.runs.layout import AttemptFolder
from dreamproof.runs.reader import read_exit
from dreamproof.runs.records import ExitRecord
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.diagnosis.liveness import Activity
from dreamproof.study.process import cgroup, machine
from dreamproof.study.process.gpus import VISIBLE
from dreamproof.study.process.processes import (
    ATTEMPT_VARIABLE,
    ProcessFacts,
    ProcessIdentity,
    boot_id,
    cpu_and_io,
    family,
    is_alive,
    is_runnable,
    is_stopped,
    process_facts,
    processes_with_variable,
    signal_group,
)
from dreamproof.study.process.shim import CANNOT_START, claim, folder_inode

SHIM_START_SECONDS = 3.0
OWN_SHIM_START_SECONDS = 60.0
SILENT_CLAIM_SECONDS = 120.0
STOPPED_SHIM_SECONDS = 5.0
PACKAGE_PARENT = Path(__file__).parents[3]


@dataclass
class _LocalAttempt:
    """What this process remembers of one attempt."""

    first_seen: float
    shim: ProcessIdentity | None = None
    child: ProcessIdentity | None = None
    popen: subprocess.Popen[bytes] | None = None
    kill_at: float | None = None
    heard: ProcessIdentity | None = None
    pidfd: int | None = None
    void: bool = False
    place: int | None = None
    shim_stopped_since: float | None = None
    left: list[ProcessIdentity] = field(default_factory=list)
    """Processes that outlive both the shim and the command."""


class LocalBackend:
    """Starts shims, finds those that an earlier supervisor started, and hears of deaths through pidfds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, from_lost_host: bool = False) -> None:
        self._monotonic = monotonic
        self._from_lost_host = from_lost_host
        self._boot = boot_id()
        self._known: dict[Path, _LocalAttempt] = {}
        self._ending: list[subprocess.Popen[bytes]] = []
        self._poll = select.poll()

    def start(self, folder: AttemptFolder) -> None:
        """Starts the shim in a session of its own; its own complaints go into the attempt's output."""
        with os.fdopen(open_own_file(folder.output, os.O_WRONLY | os.O_APPEND), "ab") as output:
            self._remember(folder).popen = subprocess.Popen(
                [sys.executable, "-m", "dreamproof.study.process.shim", str(folder.root)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
                cwd=PACKAGE_PARENT,  # so that the same program is found as runs here
            )

    def look(self, folder: AttemptFolder) -> Sighting:
        """The status of the attempt; an attempt whose shim did not start is closed permanently."""
        known = self._remember(folder)
        self._identify(folder, known)
        if known.shim is None:
            return self._look_before_shim(folder, known)
        if _is_copy(folder, known):
            return self._look_when_gone(folder, known)  # the processes belong to the study this one is a copy of
        if not known.shim.is_visible:
            return self._look_elsewhere(folder, known, known.shim)
        shim, child = self._facts(known.shim), self._facts(known.child)
        if shim is None or child is None:
            self._identify(folder, known, again=True)  # the next command of the order may have begun
            shim, child = self._facts(known.shim), self._facts(known.child)
        if folder.exit.exists():
            return self._look_when_gone(folder, known)
        if shim is None and child is None:
            return self._look_at_leftovers(folder, known)
        self._listen(known, known.shim if shim is not None else known.child)
        self._continue_shim(known, shim, child)
        if shim is None:
            self._kill_if_due(folder, known)
        if child is None or known.child is None:
            return Sighting(Presence.RUNNING)
        return _running(known.child, child)

    def _look_elsewhere(self, folder: AttemptFolder, known: _LocalAttempt, shim: ProcessIdentity) -> Sighting:
        """An attempt of another boot, machine or container: over where that is certain, running as long as it may."""
        same_boot = shim.boot_id == self._boot
        another_machine = not same_boot and shim.host not in ("", socket.gethostname())
        if folder.exit.exists() or self._from_lost_host:
            return self._look_when_gone(folder, known, machine_restarted=not same_boot)
        if another_machine:
            return Sighting(Presence.RUNNING, unseen=f"it was started on {shim.host}, which is not visible from here")
        if same_boot and is_held(folder):
            return Sighting(Presence.RUNNING, unseen=f"another container ({shim.host}) runs it")
        return self._look_when_gone(folder, known, machine_restarted=not same_boot)

    def _look_at_leftovers(self, folder: AttemptFolder, known: _LocalAttempt) -> Sighting:
        """Shim and command are gone; a wrapper may have left the trainer itself, which still works on the cell."""
        known.left = [one for pid in self._attempt_processes(folder) if (one := ProcessIdentity.of(pid)) is not None]
        for process in known.left:
            facts = self._facts(process)
            if facts is not None:
                self._listen(known, process)
                self._kill_if_due(folder, known)
                return _running(process, facts)
        if is_held(folder):
            return Sighting(Presence.RUNNING, unseen="a process that is not visible from here holds its lock")
        return self._look_when_gone(folder, known)

    def _continue_shim(self, known: _LocalAttempt, shim: ProcessFacts | None, child: ProcessFacts | None) -> None:
        """Continues a stopped shim whose command is over: it would block its slot."""
        if shim is None or shim.state != "T" or known.shim is None or child is not None:
            known.shim_stopped_since = None
            return
        since = known.shim_stopped_since = known.shim_stopped_since or self._monotonic()
        if self._monotonic() - since >= STOPPED_SHIM_SECONDS:
            with suppress(ProcessLookupError):
                os.kill(known.shim.process_id, signal.SIGCONT)

    def _kill_if_due(self, folder: AttemptFolder, known: _LocalAttempt) -> None:
        if known.kill_at is not None and self._monotonic() >= known.kill_at:
            self._signal_all(folder, known, signal.SIGKILL)

    def _signal_all(self, folder: AttemptFolder, known: _LocalAttempt, number: int) -> None:
        """Signals a command without a shim: its process group, and what left the group, one by one."""
        group = known.child.process_id if known.child is not None and self._facts(known.child) is not None else None
        if group is not None and known.child is not None:
            signal_group(known.child, number)
        for process_id in self._attempt_processes(folder):
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(process_id) != group:
                    os.kill(process_id, number)

    def _attempt_processes(self, folder: AttemptFolder) -> list[int]:
        token = _order(folder).get("environment", {}).get(ATTEMPT_VARIABLE)
        return processes_with_variable(ATTEMPT_VARIABLE, token) if isinstance(token, str) else []

    def activity(self, folder: AttemptFolder) -> Activity | None:
        """What all processes of a running attempt use."""
        known = self._remember(folder)
        leader = known.child if self._facts(known.child) is not None else None
        members = [one.process_id for one in known.left] or ([leader.process_id] if leader is not None else [])
        if not members:
            return None
        return activity_of(members, _order(folder).get("environment", {}).get(VISIBLE, os.environ.get(VISIBLE)))

    def _look_before_shim(self, folder: AttemptFolder, known: _LocalAttempt) -> Sighting:
        died = known.popen is not None and known.popen.poll() is not None
        patience = SHIM_START_SECONDS if known.popen is None else OWN_SHIM_START_SECONDS
        if not known.void and not died and self._monotonic() - known.first_seen < patience:
            return Sighting(Presence.WAITING)
        silent = self._monotonic() - known.first_seen > SILENT_CLAIM_SECONDS
        if not known.void and not claim(folder, {"void": "the shim did not start"}) and not silent:
            return Sighting(Presence.WAITING)
        if not known.void and is_held(folder):
            return Sighting(Presence.RUNNING, unseen=f"{folder.shim} cannot be read, but a process holds its lock")
        self._forget(folder, known)
        return Sighting(Presence.LOST, never_began=True)

    def _look_when_gone(self, folder: AttemptFolder, known: _LocalAttempt, machine_restarted: bool = False) -> Sighting:
        """The exit record appears just before the shim ends, so this look settles it."""
        record = read_exit(folder.exit) or _failure(folder)
        if known.shim is not None and not folder.exit.exists():
            cgroup.remove_left(folder.root.name, known.shim.process_id)
        self._forget(folder, known)
        if record is not None:
            return Sighting(Presence.ENDED, record)
        return Sighting(Presence.LOST, machine_restarted=machine_restarted)

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        """Leaves the reason for the shim and signals it; without a shim, signals what is left of the attempt itself."""
        known = self._remember(folder)
        self._identify(folder, known, again=True)
        if folder.root.is_dir() and not folder.stop.exists():
            write_json(folder.stop, {"reason": reason, "grace_seconds": grace_seconds}, durable=False)
        if _is_copy(folder, known):
            return
        if known.shim is not None and self._facts(known.shim) is not None:
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.kill(known.shim.process_id, number)
        elif known.kill_at is None:
            known.kill_at = self._monotonic() + grace_seconds
            self._signal_all(folder, known, signal.SIGTERM)
            self._signal_all(folder, known, signal.SIGCONT)

    def wait(self, seconds: float) -> None:
        """Sleeps; the death of a shim or of an orphaned child ends the sleep."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000):
            self._poll.unregister(descriptor)

    def close(self) -> None:
        """Lets go of everything; attempts run on."""
        for known in self._known.values():
            self._stop_listening(known)
        self._known.clear()

    def _facts(self, process: ProcessIdentity | None) -> ProcessFacts | None:
        return None if process is None else process_facts(process, self._boot)

    def _remember(self, folder: AttemptFolder) -> _LocalAttempt:
        known = self._known.get(folder.root)
        if known is None:
            known = self._known[folder.root] = _LocalAttempt(self._monotonic())
        return known

    def _identify(self, folder: AttemptFolder, known: _LocalAttempt, again: bool = False) -> None:
        """Reads who shim and child are, until both are known."""
        if known.child is not None and not again:
            return
        value = read_json(folder.shim)
        if isinstance(value, dict):
            known.void = "void" in value
            known.shim = ProcessIdentity.read(value.get("shim"))
            known.child = ProcessIdentity.read(value.get("child"))
            known.place = value["place"] if isinstance(value.get("place"), int) else None

    def _listen(self, known: _LocalAttempt, process: ProcessIdentity | None) -> None:
        if process is None or known.heard == process:
            return
        self._stop_listening(known)
        known.heard = process
        with suppress(OSError):
            known.pidfd = os.pidfd_open(process.process_id)
            self._poll.register(known.pidfd, select.POLLIN)

    def _stop_listening(self, known: _LocalAttempt) -> None:
        if known.pidfd is not None:
            with suppress(KeyError):
                self._poll.unregister(known.pidfd)
            os.close(known.pidfd)
            known.pidfd = None

    def _forget(self, folder: AttemptFolder, known: _LocalAttempt) -> None:
        """Drops an attempt that is over; a shim of our own that has not quite ended is reaped later."""
        self._stop_listening(known)
        self._known.pop(folder.root, None)
        if known.popen is not None:
            self._ending.append(known.popen)
        self._ending = [popen for popen in self._ending if popen.poll() is None]


def activity_of(process_ids: list[int], visible_gpus: str | None) -> Activity:
    """What some processes and all below them use."""
    members = [*process_ids, *(below for process_id in process_ids for below in family(process_id))]
    used = [cpu_and_io(process_id) for process_id in members]
    return Activity(
        sum(cpu for cpu, _ in used),
        sum(moved for _, moved in used),
        runnable := any(map(is_runnable, members)),
        not runnable and any(map(is_stopped, members)),
        machine.any_gpu_is_busy(visible_gpus),
        machine.cpu_seconds_used(),
        machine.usable_cores(),
        machine.stalled_share(),
    )


def is_gone(folder: AttemptFolder) -> bool:
    """Whether an attempt began and nothing of it lives, for readers without a supervisor."""
    value = read_json(folder.shim)
    if not isinstance(value, dict):
        return False
    if value.get("place") not in (None, _inode(folder)):
        return True  # a copy: whatever lives belongs to the original
    if is_held(folder):
        return False
    return not any(is_alive(ProcessIdentity.read(value.get(who))) for who in ("shim", "child"))


def is_held(folder: AttemptFolder) -> bool:
    """Whether a living process holds the lock of one of the attempt's cells."""
    return any(is_locked(Path(name)) for name in _order(folder).get("locks", []))


def _is_copy(folder: AttemptFolder, known: _LocalAttempt) -> bool:
    """Whether the attempt's folder is a copy of the one in which its processes work."""
    place = _order(folder).get("place") if known.place is None else known.place
    return place not in (None, _inode(folder))


def _inode(folder: AttemptFolder) -> int | None:
    try:
        return folder_inode(folder)
    except OSError:
        return None


def _order(folder: AttemptFolder) -> dict[str, Any]:
    value = read_json(folder.order)
    return value if isinstance(value, dict) else {}


def _running(process: ProcessIdentity, facts: ProcessFacts) -> Sighting:
    return Sighting(
        Presence.RUNNING,
        process_state=facts.state,
        cpu_seconds=facts.cpu_seconds,
        process_id=process.process_id,
    )


def _failure(folder: AttemptFolder) -> ExitRecord | None:
    """Why a shim could not start its child, if it recorded that."""
    value = read_json(folder.shim)
    failure = value.get("failure") if isinstance(value, dict) else None
    return (
        ExitRecord(exit_code=CANNOT_START, wall_seconds=0.0, spawn_error=str(failure)) if failure is not None else None
    )
