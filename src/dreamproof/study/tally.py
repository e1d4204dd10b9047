"""Running totals over ended attempts, so that a long history need not be walked again for every answer. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What ended attempts add up to."""

    busy_ms: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Unix seconds in which an attempt ran: apart from each other, in order."""
    agent_steps: dict[str, int] = field(default_factory=dict)
    """Steps made by arm, over attempts that got somewhere."""
    training_seconds: dict[str, float] = field(default_factory=dict)
    evaluations: int = 0
    evaluation_seconds: float = 0.0

    def add_span(self, start: float, end: float) -> None:
        """Takes a span of time in; what overlaps or touches becomes one."""
        if end <= start:
            return
        first = bisect_left(self.spans, start, key=lambda span: span[1])
        last = bisect_right(self.spans, end, key=lambda span: span[0])
        if first < last:
            start, end = min(start, self.spans[first][0]), max(end, self.spans[last - 1][1])
        self.spans[first:last] = [(start, end)]

    def add_training(self, arm: str, agent_steps: int, seconds: float) -> None:
        """Takes in what one cell of an ended attempt made."""
        if agent_steps > 0:
            self.agent_steps[arm] = self.agent_steps.get(arm, 0) + agent_steps
            self.training_seconds[arm] = self.training_seconds.get(arm, 0.0) + seconds

    def covered_seconds(self, more: Iterable[tuple[float, float]]) -> float:
        """Length of what the spans and `more` cover together."""
        whole = Tally(spans=list(self.spans))
        for start, end in more:
            whole.add_span(start, end)
        return sum(end - start for start, end in whole.spans)

    def seconds_per_evaluation(self) -> float | None:
        """Wall seconds of one eval cell, over attempts that proved any."""
        return self.evaluation_seconds / self.evaluations if self.evaluations else None
