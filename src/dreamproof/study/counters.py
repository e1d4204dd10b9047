"""Whether a counter shows progress: only what was not reached before is, whatever falls and rises in between. Pure."""

from dataclasses import dataclass


@dataclass
class Counter:
    """One counter of an attempt. A trainer that starts again from its checkpoint may count the same steps once more."""

    highest: float
    again: float | None = None
    """The highest value since the counter fell; None while it is at its highest."""

    def grows_to(self, value: float) -> bool:
        """Takes a value in; True where it is progress. A fall is none, and a second rise to the same value neither."""
        if value > self.highest:
            self.highest, self.again = value, None
            return True
        if self.again is None:
            self.again = value if value < self.highest else None
            return False
        if value <= self.again:
            return False
        self.again = value
        return True
