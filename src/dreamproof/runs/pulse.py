"""A thread that keeps the heartbeats of a process fresh while its loop is busy; only the loop itself counts a beat."""

import threading

from dreamproof.runs.records import Phase
from dreamproof.runs.writer import RunWriter

BEAT_SECONDS = 10.0


class Pulse:
    """Rewrites the heartbeats of some cells every few seconds with the counters the loop last set.

    A pulse shows that the process lives; only counters that grow, the beat among them, show progress.
    """

    def __init__(self, writers: list[RunWriter]) -> None:
        self.writers = writers
        self.agent_steps = 0
        self.gradient_steps = 0
        self.phase: Phase = "start"
        self.rate: float | None = None
        self.is_compiling = False
        self.compiles = 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._write()

    def set(self, phase: Phase, agent_steps: int, gradient_steps: int, rate: float | None = None) -> None:
        """New counters, written at once."""
        self.phase, self.agent_steps, self.gradient_steps = phase, agent_steps, gradient_steps
        self.rate = rate if rate is not None else self.rate
        self._write(is_beat=True)

    def set_compiling(self, is_compiling: bool) -> None:
        """Shows the phase `compile` from the next writing on, wherever in the work it happens."""
        self.is_compiling = is_compiling

    def count_compile(self) -> None:
        """A compile that ended is progress."""
        self.compiles += 1

    def _write(self, is_beat: bool = False) -> None:
        phase: Phase = "compile" if self.is_compiling else self.phase
        more = {"agent_steps_per_second": self.rate, "compiles": self.compiles}
        with self._lock:
            for writer in self.writers:
                write = writer.beat if is_beat else writer.pulse
                write(self.agent_steps, self.gradient_steps, phase, **more)

    def _run(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._write()
