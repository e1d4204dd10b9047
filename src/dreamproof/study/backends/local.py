"""Attempts as processes of this machine, each under its own shim."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.files import open_own_file, read_json, write_json
from dreamproof.runs.layout import AttemptFolder
from dreamproof.runs.reader import read_exit
from dreamproof.runs.records import ExitRecord
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.processes import Identity, ProcessFacts, boot_id, is_alive, process_facts, signal_group
from dreamproof.study.shim import CANNOT_START, claim

SHIM_START_SECONDS = 3.0
OWN_SHIM_START_SECONDS = 60.0
SILENT_CLAIM_SECONDS = 120.0
PACKAGE_PARENT = Path(__file__).parents[3]


@dataclass
class _Known:
    """What this process remembers of one attempt."""

    first_seen: float
    shim: Identity | None = None
    child: Identity | None = None
    popen: subprocess.Popen[bytes] | None = None
    kill_at: float | None = None
    heard: Identity | None = None
    pidfd: int | None = None
    void: bool = False


class LocalBackend:
    """Starts shims, finds those that an earlier supervisor started, and hears of deaths through pidfds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._boot = boot_id()
        self._known: dict[Path, _Known] = {}
        self._ending: list[subprocess.Popen[bytes]] = []
        self._poll = select.poll()

    def start(self, folder: AttemptFolder) -> None:
        """Starts the shim in a session of its own; its own complaints go into the attempt's output."""
        with os.fdopen(open_own_file(folder.output, os.O_WRONLY | os.O_APPEND), "ab") as output:
            self._remember(folder).popen = subprocess.Popen(
                [sys.executable, "-m", "dreamproof.study.shim", str(folder.root)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                start_new_session=True,
                cwd=PACKAGE_PARENT,  # so that the same program is found as runs here
            )

    def look(self, folder: AttemptFolder) -> Sighting:
        """How the attempt stands; an attempt whose shim never came is closed for good."""
        known = self._remember(folder)
        self._identify(folder, known)
        if known.shim is None:
            return self._look_before_shim(folder, known)
        if known.shim.boot_id != self._boot:
            return self._look_when_gone(folder, known, machine_restarted=True)
        shim, child = self._facts(known.shim), self._facts(known.child)
        if shim is not None and child is None and known.child is not None:
            self._identify(folder, known, again=True)  # the next command of the order may have begun
            child = self._facts(known.child)
        if folder.exit.exists() or (shim is None and child is None):
            return self._look_when_gone(folder, known)
        self._listen(known, known.shim if shim is not None else known.child)
        if shim is None and known.kill_at is not None and self._monotonic() >= known.kill_at and known.child:
            signal_group(known.child, signal.SIGKILL)
        if child is None or known.child is None:
            return Sighting(Presence.RUNNING)
        return Sighting(
            Presence.RUNNING,
            process_state=child.state,
            cpu_seconds=child.cpu_seconds,
            process_id=known.child.process_id,
        )

    def _look_before_shim(self, folder: AttemptFolder, known: _Known) -> Sighting:
        died = known.popen is not None and known.popen.poll() is not None
        patience = SHIM_START_SECONDS if known.popen is None else OWN_SHIM_START_SECONDS
        if not known.void and not died and self._monotonic() - known.first_seen < patience:
            return Sighting(Presence.WAITING)
        silent = self._monotonic() - known.first_seen > SILENT_CLAIM_SECONDS
        if not known.void and not claim(folder, {"void": "the shim never came"}) and not silent:
            return Sighting(Presence.WAITING)
        self._forget(folder, known)
        return Sighting(Presence.LOST, never_began=True)

    def _look_when_gone(self, folder: AttemptFolder, known: _Known, machine_restarted: bool = False) -> Sighting:
        """The exit record appears just before the shim ends, so this look settles it."""
        record = read_exit(folder.exit) or _failure(folder)
        self._forget(folder, known)
        if record is not None:
            return Sighting(Presence.ENDED, record)
        return Sighting(Presence.LOST, machine_restarted=machine_restarted)

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        """Leaves the reason for the shim and signals it; without a shim, signals the child's group itself."""
        known = self._remember(folder)
        self._identify(folder, known)
        if not folder.stop.exists():
            write_json(folder.stop, {"reason": reason, "grace_seconds": grace_seconds}, durable=False)
        if known.shim is not None and self._facts(known.shim) is not None:
            with suppress(ProcessLookupError):
                os.kill(known.shim.process_id, signal.SIGTERM)
        elif known.child is not None and self._facts(known.child) is not None and known.kill_at is None:
            known.kill_at = self._monotonic() + grace_seconds
            signal_group(known.child, signal.SIGTERM)
            signal_group(known.child, signal.SIGCONT)

    def wait(self, seconds: float) -> None:
        """Sleeps; the death of a shim or of an orphaned child ends the sleep."""
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000):
            self._poll.unregister(descriptor)

    def close(self) -> None:
        """Lets go of everything; attempts run on."""
        for known in self._known.values():
            self._stop_listening(known)
        self._known.clear()

    def _facts(self, process: Identity | None) -> ProcessFacts | None:
        return None if process is None else process_facts(process, self._boot)

    def _remember(self, folder: AttemptFolder) -> _Known:
        known = self._known.get(folder.root)
        if known is None:
            known = self._known[folder.root] = _Known(self._monotonic())
        return known

    def _identify(self, folder: AttemptFolder, known: _Known, again: bool = False) -> None:
        """Reads who shim and child are, until both are known."""
        if known.child is not None and not again:
            return
        value = read_json(folder.shim)
        if isinstance(value, dict):
            known.void = "void" in value
            known.shim = Identity.read(value.get("shim"))
            known.child = Identity.read(value.get("child"))

    def _listen(self, known: _Known, process: Identity | None) -> None:
        if process is None or known.heard == process:
            return
        self._stop_listening(known)
        known.heard = process
        with suppress(OSError):
            known.pidfd = os.pidfd_open(process.process_id)
            self._poll.register(known.pidfd, select.POLLIN)

    def _stop_listening(self, known: _Known) -> None:
        if known.pidfd is not None:
            with suppress(KeyError):
                self._poll.unregister(known.pidfd)
            os.close(known.pidfd)
            known.pidfd = None

    def _forget(self, folder: AttemptFolder, known: _Known) -> None:
        """Drops an attempt that is over; a shim of our own that has not quite ended is reaped later."""
        self._stop_listening(known)
        self._known.pop(folder.root, None)
        if known.popen is not None:
            self._ending.append(known.popen)
        self._ending = [popen for popen in self._ending if popen.poll() is None]


def is_gone(folder: AttemptFolder) -> bool:
    """Whether an attempt began here and neither its shim nor its child lives, for readers without a supervisor."""
    value = read_json(folder.shim)
    if not isinstance(value, dict):
        return False
    return not any(is_alive(Identity.read(value.get(who))) for who in ("shim", "child"))


def _failure(folder: AttemptFolder) -> ExitRecord | None:
    """What kept a shim from starting its child, where it could still say so."""
    value = read_json(folder.shim)
    told = value.get("failure") if isinstance(value, dict) else None
    return ExitRecord(exit_code=CANNOT_START, wall_seconds=0.0, spawn_error=str(told)) if told is not None else None
