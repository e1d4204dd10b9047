"""Asked to stop, and replicas that stopped being finite."""

import faulthandler
import signal
from types import FrameType

import numpy as np

from dreamproof.runs.records import FrozenRecord
from dreamproof.runs.writer import RunWriter


class StopFlag:
    """Set by SIGTERM or SIGINT; the loop saves and leaves at the next chunk. SIGUSR1 prints all stacks."""

    def __init__(self) -> None:
        self.requested = False
        signal.signal(signal.SIGTERM, self._request)
        signal.signal(signal.SIGINT, self._request)
        faulthandler.register(signal.SIGUSR1, all_threads=True)

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
        """Records every replica that is not finite any more; the record of an earlier start is left as it is."""
        for index in np.flatnonzero(~finite).tolist():
            if index not in self.replicas:
                self.replicas.add(index)
                if writers[index].run.frozen.exists():
                    continue
                reason = "a loss or a gradient stopped being finite; parameters are kept as they were before"
                steps = int(gradient_steps[index])
                writers[index].write_frozen(FrozenRecord(agent_steps=agent_steps, gradient_steps=steps, reason=reason))

    @property
    def all(self) -> bool:
        """Whether nothing is left to train."""
        return len(self.replicas) == self.count
