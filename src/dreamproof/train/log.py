"""Rows of metrics, and a progress bar in a terminal."""

from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class MetricSums:
    """Means of metrics over the chunks since the last row, for each of R replicas."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.sums: dict[str, np.ndarray] = {}
        self.counts: dict[str, np.ndarray] = {}

    def add(self, metrics: dict[str, Any]) -> None:
        """Adds the metrics of one chunk, leaves (T, R); episode values are weighted by the number of ended episodes."""
        host = {name: np.asarray(value) for name, value in metrics.items()}
        # Offline cells have no episodes.
        ended = host.pop("episode/done", np.zeros(self.replicas))
        for name, values in host.items():
            weights = ended if name.startswith("episode/") else np.ones_like(values)
            self.sums[name] = self.sums.get(name, 0.0) + (values * weights).sum(0)
            self.counts[name] = self.counts.get(name, 0) + weights.sum(0)

    def take(self) -> list[dict[str, float]]:
        """One dict per replica, without metrics that have no values; resets the sums."""
        sums, counts = self.sums, self.counts
        self.sums, self.counts = {}, {}
        return [
            {name: float(total[index] / counts[name][index]) for name, total in sums.items() if counts[name][index]}
            for index in range(self.replicas)
        ]


def progress_bar() -> Progress:
    """A bar that counts agent steps; only shown in a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} agent steps"),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
