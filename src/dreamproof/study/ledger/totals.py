"""Running totals over ended attempts, so that a long history need not be walked again for every answer. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Totals:
    """What ended attempts add up to."""

    busy_ms: int = 0
    spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By boot: seconds on its timeline in which an attempt ran, apart from each other, in order."""
    agent_steps: dict[str, int] = field(default_factory=dict)
    """Steps made by arm, over attempts that got somewhere."""
    training_seconds: dict[str, float] = field(default_factory=dict)
    evaluations: int = 0
    evaluation_seconds: float = 0.0

    def add_span(self, boot: str, start: float, end: float) -> None:
        """Takes a span of time in; what overlaps or touches becomes one."""
        if end <= start:
            return
        spans = self.spans.setdefault(boot, [])
        first = bisect_left(spans, start, key=lambda span: span[1])
        last = bisect_right(spans, end, key=lambda span: span[0])
        if first < last:
            start, end = min(start, spans[first][0]), max(end, spans[last - 1][1])
        spans[first:last] = [(start, end)]

    def add_training(self, arm: str, agent_steps: int, seconds: float) -> None:
        """Takes in what one cell of an ended attempt made."""
        if agent_steps > 0:
            self.agent_steps[arm] = self.agent_steps.get(arm, 0) + agent_steps
            self.training_seconds[arm] = self.training_seconds.get(arm, 0.0) + seconds

    def covered_ms(self, more: Iterable[tuple[str, float, float]]) -> int:
        """What the spans and `more` cover together, boot by boot."""
        whole = Totals(spans={boot: list(spans) for boot, spans in self.spans.items()})
        for boot, start, end in more:
            whole.add_span(boot, start, end)
        return sum(round(1000 * sum(end - start for start, end in spans)) for spans in whole.spans.values())

    def seconds_per_evaluation(self) -> float | None:
        """Wall seconds of one eval cell, over attempts that proved any."""
        return self.evaluation_seconds / self.evaluations if self.evaluations else None
