"""After the last attempt: reports, a look at every proof, and the shutdown that the study may ask for."""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from dreamproof.study.events import Event, ShutdownCancelled, ShutdownDone, ShutdownPlanned
from dreamproof.study.opening import OpenStudy
from dreamproof.study.supervisor import Ending
from dreamproof.study.verify import verify

LOOK_EVERY_SECONDS = 0.2


def shutdown_reason(opened: OpenStudy, ending: Ending) -> str | None:
    """Why the machine may be switched off now; None where the study does not ask for it or work is left."""
    at_end = opened.study.at_end
    if at_end.action != "shutdown":
        return None
    if ending in (Ending.COMPLETE, Ending.BUDGET):
        return ending.value
    if ending in (Ending.NOTHING_CAN_RUN, Ending.BREAKER) and at_end.idle_minutes is not None:
        return f"{ending.value}, {at_end.idle_minutes:g} idle minutes"
    return None


@dataclass
class Shutdown:
    """The way to switching off: plan it, wait, run the command; the file or Ctrl-C cancels it."""

    opened: OpenStudy
    record: Callable[[Event], None]
    say: Callable[[str], None]
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def carry_out(self, reason: str, idle: bool) -> bool:
        """Waits and runs the command; False where it was cancelled or the evidence is broken."""
        at_end = self.opened.study.at_end
        faults = verify(self.opened).faults
        if faults:
            self.record(ShutdownCancelled(f"broken evidence: {faults[0]}"))
            self.say(f"no shutdown: {faults[0]}")
            return False
        grace = at_end.grace_seconds + (60.0 * at_end.idle_minutes if idle and at_end.idle_minutes else 0.0)
        self.record(ShutdownPlanned(reason, grace, at_end.command))
        keep = self.opened.folder.keep_running
        self.say(f"{' '.join(at_end.command)} in {grace:g} s ({reason}); to cancel: Ctrl-C, or touch {keep}")
        cancelled = self._wait(grace)
        if cancelled is not None:
            self.record(ShutdownCancelled(cancelled))
            self.say(f"shutdown cancelled by {cancelled}")
            return False
        # The command may end this process at once, so that its event must stand before.
        self.record(ShutdownDone(at_end.command))
        with suppress(OSError):
            subprocess.run(at_end.command, check=False, timeout=60)
        return True

    def _wait(self, grace_seconds: float) -> str | None:
        """Who cancelled, or None where nobody did."""
        until = self.monotonic() + grace_seconds
        try:
            while True:
                if self.opened.folder.keep_running.exists():
                    return f"the file {self.opened.folder.keep_running.name}"
                left = until - self.monotonic()
                if left <= 0:
                    return None
                self.pause(min(left, LOOK_EVERY_SECONDS))
        except KeyboardInterrupt:
            return "Ctrl-C"
