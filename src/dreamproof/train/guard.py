"""Stop requests, and replicas with non-finite values."""

import faulthandler
import os
import signal
import sys
import threading
from types import FrameType

import numpy as np

from dreamproof.runs.records import FrozenRecord
from dreamproof.runs.writer import RunWriter

STOPPED = "stopped early; run it again to resume"
SHOW_CURSOR = "\x1b[?25h"


class StopFlag:
    """Set by SIGTERM or SIGINT; the loop saves and exits at the next chunk. SIGUSR1 prints all stacks.

    While there is nothing to save the process ends at once. A compile keeps the main thread for minutes, in which no
    handler runs, so another thread does it.
    """

    def __init__(self) -> None:
        self.requested = False
        self.has_progress = False
        signal.signal(signal.SIGTERM, self._request)
        signal.signal(signal.SIGINT, self._request)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(read_end,), name="stop", daemon=True).start()

    def _listen(self, read_end: int) -> None:
        while number := os.read(read_end, 1):
            if number[0] in (signal.SIGTERM, signal.SIGINT) and not self.has_progress:
                cursor = SHOW_CURSOR if sys.stdout.isatty() else ""  # a progress bar hides it
                print(f"{cursor}{STOPPED}", flush=True)
                os._exit(0)

    def _request(self, number: int, _frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


class Frozen:
    """Which replicas of a pack are frozen, and their records."""

    def __init__(self, replicas: int) -> None:
        self.replicas: set[int] = set()
        self.count = replicas

    def record(
        self, finite: np.ndarray, writers: list[RunWriter], agent_steps: int, gradient_steps: np.ndarray
    ) -> None:
        """Records every replica that is no longer finite; an earlier record is kept."""
        for index in np.flatnonzero(~finite).tolist():
            if index not in self.replicas:
                self.replicas.add(index)
                if writers[index].run.frozen.exists():
                    continue
                reason = "a loss or a gradient is not finite; parameters are kept at their last finite values"
                steps = int(gradient_steps[index])
                writers[index].write_frozen(FrozenRecord(agent_steps=agent_steps, gradient_steps=steps, reason=reason))

    @property
    def all(self) -> bool:
        """Whether all replicas are frozen."""
        return len(self.replicas) == self.count
