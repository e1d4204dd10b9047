"""Running totals over ended attempts, so that a long history need not be walked again for every answer. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

Spans = list[tuple[float, float]]
"""Seconds on a timeline, apart from each other, in order."""


@dataclass
class Totals:
    """What ended attempts add up to."""

    busy_ms: int = 0
    spans: dict[str, dict[int, Spans]] = field(default_factory=dict)
    """By boot, then by slots: when an attempt ran."""
    agent_steps: dict[str, int] = field(default_factory=dict)
    """Steps made by arm, over attempts that got somewhere."""
    training_seconds: dict[str, float] = field(default_factory=dict)
    evaluations: int = 0
    evaluation_seconds: float = 0.0

    def add_span(self, place: tuple[str, int], start: float, end: float) -> None:
        """Takes in a span of time on a boot with so many slots."""
        boot, slots = place
        _add(self.spans.setdefault(boot, {}).setdefault(slots, []), start, end)

    def add_training(self, arm: str, agent_steps: int, seconds: float) -> None:
        """Takes in what one cell of an ended attempt made."""
        if agent_steps > 0:
            self.agent_steps[arm] = self.agent_steps.get(arm, 0) + agent_steps
            self.training_seconds[arm] = self.training_seconds.get(arm, 0.0) + seconds

    def slot_ms(self, more: Iterable[tuple[tuple[str, int], float, float]] = ()) -> int:
        """Slots times the time that the spans and `more` cover together; where they overlap, the most slots count."""
        whole = Totals()
        whole.spans = {
            boot: {slots: list(spans) for slots, spans in by_slots.items()} for boot, by_slots in self.spans.items()
        }
        for place, start, end in more:
            whole.add_span(place, start, end)
        return sum(_slot_ms(by_slots) for by_slots in whole.spans.values())

    def seconds_per_evaluation(self) -> float | None:
        """Wall seconds of one eval cell, over attempts that proved any."""
        return self.evaluation_seconds / self.evaluations if self.evaluations else None


def _slot_ms(by_slots: dict[int, Spans]) -> int:
    covered: Spans = []
    total = 0
    for slots in sorted(by_slots, reverse=True):
        before = _length_ms(covered)
        for span in by_slots[slots]:
            _add(covered, *span)
        total += slots * (_length_ms(covered) - before)
    return total


def _length_ms(spans: Spans) -> int:
    return round(1000 * sum(end - start for start, end in spans))


def _add(spans: Spans, start: float, end: float) -> None:
    """Takes a span in; what overlaps or touches becomes one."""
    if end <= start:
        return
    first = bisect_left(spans, start, key=lambda span: span[1])
    last = bisect_right(spans, end, key=lambda span: span[0])
    if first < last:
        start, end = min(start, spans[first][0]), max(end, spans[last - 1][1])
    spans[first:last] = [(start, end)]
