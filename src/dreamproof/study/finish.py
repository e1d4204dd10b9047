"""After the last attempt: reports, a look at every proof, and the shutdown that the study may ask for."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dreamproof.settings.running import AtEnd
from dreamproof.study.ledger.events import (
    Event,
    ShutdownCancelled,
    ShutdownDone,
    ShutdownFailed,
    ShutdownPlanned,
    ShutdownRefused,
    ShutdownStarted,
)
from dreamproof.study.ledger.running_studies import other_studies
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.supervisor import Ending
from dreamproof.study.views.verify import verify

LOOK_EVERY_SECONDS = 0.2
SIGNS_EVERY_SECONDS = 1.0
QUOTED_BYTES = 300
SIGN_FILES = ("/run/systemd/shutdown/scheduled", "/run/nologin")


def shutdown_reason(opened: OpenStudy, ending: Ending) -> str | None:
    """Why the machine may be switched off now; None if the study does not ask for it or work is left."""
    at_end = opened.study.at_end
    if at_end.action != "shutdown":
        return None
    if ending in (Ending.COMPLETE, Ending.BUDGET):
        return ending.value
    if ending in (Ending.NOTHING_CAN_RUN, Ending.BREAKER):
        idle = f", {at_end.idle_minutes:g} idle minutes" if at_end.idle_minutes is not None else ""
        return f"{ending.value}{idle}"
    return None


def signs_of_stopping() -> set[str]:
    """What shows that this machine is about to stop."""
    found = {path for path in SIGN_FILES if os.path.exists(path)}
    if os.path.isdir("/run/systemd/system"):
        with suppress(OSError, subprocess.TimeoutExpired):
            asked = ["systemctl", "is-system-running"]
            state = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
            found |= {"systemd is stopping"} if state == "stopping" else set()
    return found


@dataclass
class Shutdown:
    """The way to switching off: plan it, wait, run the commands; the file or Ctrl-C cancels it."""

    opened: OpenStudy
    record: Callable[[Event], None]
    show: Callable[[str], None]
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    others: Callable[[Path], list[str]] = other_studies
    signs: Callable[[], set[str]] = signs_of_stopping
    is_asked_to_end: Callable[[], bool] = lambda: False
    """Whether this process received SIGTERM."""

    def carry_out(self, reason: str, idle: bool) -> bool:
        """Waits and runs the commands; False if it was refused or cancelled, or if every command failed."""
        at_end = self.opened.study.at_end
        if self._is_refused(verify(self.opened).faults):
            return False
        grace = at_end.grace_seconds + (60.0 * at_end.idle_minutes if idle and at_end.idle_minutes else 0.0)
        self.record(ShutdownPlanned(reason, grace, at_end.commands[0]))
        keep = self.opened.folder.keep_running
        first = " ".join(at_end.commands[0])
        self.show(f"{first} in {grace:g} s ({reason}); to cancel: Ctrl-C, or touch {keep}")
        try:
            cancelled = self._wait(grace)
            if cancelled is None:
                return not self._is_refused([]) and self._try_commands(at_end)
        except KeyboardInterrupt:
            cancelled = "Ctrl-C"
        self.record(ShutdownCancelled(cancelled))
        self.show(f"shutdown cancelled by {cancelled}")
        return False

    def _is_refused(self, faults: list[str]) -> bool:
        """Broken evidence needs a person, and another study needs the machine."""
        others = [f"another study runs on this machine: {study}" for study in self.others(self.opened.folder.root)]
        reasons = [*(f"broken evidence: {fault}" for fault in faults), *others]
        if reasons:
            self.record(ShutdownRefused(reasons[0]))
            self.show(f"no shutdown: {reasons[0]}")
        return bool(reasons)

    def _wait(self, grace_seconds: float) -> str | None:
        """Who cancelled, or None."""
        until = self.monotonic() + grace_seconds
        while True:
            if self.opened.folder.keep_running.exists():
                return f"the file {self.opened.folder.keep_running.name}"
            if self.is_asked_to_end():
                return "a signal to this process"
            left = until - self.monotonic()
            if left <= 0:
                return None
            self.pause(min(left, LOOK_EVERY_SECONDS))

    def _try_commands(self, at_end: AtEnd) -> bool:
        """Runs one command after the other until one succeeds."""
        failures: list[str] = []
        for command in at_end.commands:
            before = self.signs()
            # The command may end this process at once, so that its event must stand before.
            self.record(ShutdownStarted(command))
            failure = run_command(command, at_end.timeout_seconds)
            if failure is None:
                self._confirm(command, at_end.confirm_seconds, before)
                return True
            failures.append(f"{' '.join(command)}: {failure}")
            self.show(f"shutdown command failed: {failures[-1]}")
        self.record(ShutdownFailed(failures))
        self.show(f"SHUTDOWN FAILED, this machine stays on: {'; '.join(failures)}")
        return False

    def _confirm(self, command: list[str], confirm_seconds: float, before: set[str]) -> None:
        """Looks for signs that the machine stops; one that shows none is reported as still on."""
        until = self.monotonic() + confirm_seconds
        while not (seen := self._seen(before)) and self.monotonic() < until:
            self.pause(min(SIGNS_EVERY_SECONDS, confirm_seconds))
        self.record(ShutdownDone(command, 0, sorted(seen)))
        if seen:
            self.show(f"shutdown: {' '.join(command)} succeeded; seen: {', '.join(sorted(seen))}")
        else:
            self.show(
                f"shutdown: {' '.join(command)} returned 0, but after {confirm_seconds:g} s there is no sign that this "
                "machine stops; check it"
            )

    def _seen(self, before: set[str]) -> set[str]:
        """Signs of stopping that were not there before."""
        return (self.signs() - before) | ({"this process was asked to end"} if self.is_asked_to_end() else set())


def run_command(command: list[str], timeout_seconds: float) -> str | None:
    """Runs one command with all it starts; why it failed, or None if it returned 0."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        try:
            code = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return f"did not finish within {timeout_seconds:g} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        text = output.read(QUOTED_BYTES).decode("utf-8", errors="replace").strip().replace("\n", " | ")
    return None if code == 0 else f"exit code {code}" + (f" ({text})" if text else "")
