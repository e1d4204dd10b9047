"""What the host sees of a chunk: rows of metrics, and a progress bar in a terminal."""

from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


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
