"""What the host sees of a chunk: rows of metrics, heartbeats, and a progress bar in a terminal."""

import threading
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dreamproof.runs.records import Phase
from dreamproof.runs.writer import RunWriter

BEAT_SECONDS = 10.0


class Pulse:
    """Rewrites the heartbeats of a pack every few seconds, from a thread, with the counters the loop last set.

    A pulse shows that the process lives; only counters that grow show progress.
    """

    def __init__(self, writers: list[RunWriter]) -> None:
        self.writers = writers
        self.agent_steps = 0
        self.gradient_steps = 0
        self.phase: Phase = "start"
        self.rate: float | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.write()

    def set(self, phase: Phase, agent_steps: int, gradient_steps: int, rate: float | None = None) -> None:
        """New counters, written at once."""
        self.phase, self.agent_steps, self.gradient_steps = phase, agent_steps, gradient_steps
        self.rate = rate if rate is not None else self.rate
        self.write()

    def write(self) -> None:
        """Writes the heartbeat of every cell."""
        with self._lock:
            for writer in self.writers:
                writer.beat(self.agent_steps, self.gradient_steps, self.phase, agent_steps_per_second=self.rate)

    def _run(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self.write()


class MetricSums:
    """Means of metrics (R,) over the chunks since the last row."""

    def __init__(self) -> None:
        self.sums: dict[str, np.ndarray] = {}
        self.counts: dict[str, int] = {}

    def add(self, metrics: dict[str, Any]) -> None:
        """Takes the metrics of one chunk: leaves (T, R); episode values count only where an episode ended."""
        host = {name: np.asarray(value) for name, value in metrics.items()}
        done = host.pop("episode/done").astype(bool)
        for name, values in host.items():
            rows = values[done] if name.startswith("episode/") else values
            if len(rows):
                self.sums[name] = self.sums.get(name, 0.0) + rows.sum(0)
                self.counts[name] = self.counts.get(name, 0) + len(rows)

    def take(self) -> list[dict[str, float]]:
        """One dict a replica, and starts anew."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        replicas = max((len(np.atleast_1d(value)) for value in means.values()), default=0)
        return [{name: float(value[index]) for name, value in means.items()} for index in range(replicas)]


def progress_bar() -> Progress:
    """A bar that counts agent steps; it draws itself only in a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} agent steps"),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
