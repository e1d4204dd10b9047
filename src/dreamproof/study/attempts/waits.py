"""Cells that wait before their next attempt, by a monotonic clock."""

from collections.abc import Iterable

from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.events import Event, Remedy


class Waits:
    """Until when each cell waits."""

    def __init__(self) -> None:
        self._until: dict[Cell, float] = {}

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._until

    def __bool__(self) -> bool:
        return bool(self._until)

    def add(self, events: Iterable[Event], now: float) -> None:
        """Takes in the waits that remedies ask for."""
        for event in events:
            if isinstance(event, Remedy) and event.wait_seconds:
                self._until |= {Cell.parse(text): now + event.wait_seconds for text in event.cells}

    def drop_over(self, now: float) -> None:
        """Forgets the waits that are over."""
        self._until = {cell: until for cell, until in self._until.items() if until > now}

    def next_seconds(self, now: float) -> float:
        """Seconds until the first wait is over."""
        return min(self._until.values()) - now
