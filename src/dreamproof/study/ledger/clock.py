"""What time it is by three clocks, and how long something took: money follows the clock that cannot be set."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dreamproof.base.text import duration_text
from dreamproof.study.process.processes import boot_id

BOOT_DIGITS = 8
MIN_JUMP_SECONDS = 2.0
DRIFT = 0.001
"""Share by which a clock may differ that is only slewed: NTP slews by at most half of it."""
SUSPENDED, CLOCK_SET = "suspended", "clock_set"


class Moment(NamedTuple):
    """One reading of all clocks; only `unix_seconds` where nothing else is on record."""

    unix_seconds: float
    boot: str = ""
    """First digits of the boot id: monotonic readings compare within one boot only."""
    monotonic_seconds: float | None = None
    """Since the boot, without the time in which the machine was suspended."""
    suspended_seconds: float = 0.0
    """For how long this boot was suspended so far."""


NOT_KNOWN = Moment(0.0)


class Jump(NamedTuple):
    """Wall-clock time that did not pass as working time: a suspended machine, or a clock that was set."""

    kind: str
    seconds: float
    """Negative where the clock was set back."""


def read_moment() -> Moment:
    """Reads all clocks of this machine."""
    monotonic = time.monotonic()
    suspended = max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - monotonic)
    return Moment(time.time(), boot_id()[:BOOT_DIGITS], monotonic, suspended)


def moment_fields(moment: Moment) -> dict[str, Any]:
    """A moment as fields of a ledger row; what is not known is left out."""
    fields: dict[str, Any] = {"t": round(moment.unix_seconds, 6)}
    if moment.monotonic_seconds is not None:
        fields |= {"boot": moment.boot, "m": round(moment.monotonic_seconds, 6)}
    if moment.suspended_seconds >= 0.001:
        fields["s"] = round(moment.suspended_seconds, 6)
    return fields


def moment_of(row: Mapping[str, Any], boot: str = "") -> Moment:
    """The moment of a ledger row; `boot` is the supervisor's, for rows without it."""
    return Moment(row["t"], row.get("boot", boot), row.get("m"), row.get("s", 0.0))


def jumps_between(before: Moment, after: Moment) -> list[Jump]:
    """What happened to the clocks between two moments, beyond the passing of time; a slewed clock is no jump."""
    wall = after.unix_seconds - before.unix_seconds
    if before.monotonic_seconds is None or after.monotonic_seconds is None or before.boot != after.boot:
        return [Jump(CLOCK_SET, round(wall, 3))] if wall < -MIN_JUMP_SECONDS else []
    passed = after.monotonic_seconds - before.monotonic_seconds
    suspended = after.suspended_seconds - before.suspended_seconds
    was_set = wall - passed - suspended
    found = [Jump(SUSPENDED, round(suspended, 3))] if suspended > MIN_JUMP_SECONDS else []
    if abs(was_set) > MIN_JUMP_SECONDS + DRIFT * (passed + suspended):
        found.append(Jump(CLOCK_SET, round(was_set, 3)))
    return found


@dataclass(frozen=True)
class Life:
    """How long a process was there: by the wall clock, which may have been set in between, and in seconds passed."""

    began_unix_seconds: float
    ended_unix_seconds: float
    seconds: float

    @classmethod
    def until(cls, began: Moment, now: Moment) -> "Life | None":
        """From one moment to another of the same boot; None if no clock but the wall clock was on record."""
        if began.monotonic_seconds is None or now.monotonic_seconds is None or began.boot != now.boot:
            return None
        passed = now.monotonic_seconds - began.monotonic_seconds
        return cls(began.unix_seconds, now.unix_seconds, max(0.0, passed))

    def seconds_at(self, unix_seconds: float) -> list[float]:
        """When a file with this time was written: none if it is outside, two if a set clock makes it ambiguous."""
        times = [unix_seconds - self.began_unix_seconds]
        jump = self.ended_unix_seconds - self.began_unix_seconds - self.seconds
        if abs(jump) > MIN_JUMP_SECONDS:
            times.append(times[0] - jump)  # written before the clock was set, or after it
        return [seconds for seconds in times if 0.0 <= seconds <= self.seconds]


def jump_text(kind: str, seconds: float) -> str:
    """A jump as text."""
    if kind == SUSPENDED:
        return f"the machine was suspended for {duration_text(seconds)}"
    return f"the clock was set {'forward' if seconds > 0 else 'back'} by {duration_text(abs(seconds))}"


def machine_seconds(before: Moment, after: Moment) -> float:
    """Time from one moment to another, suspension included, as other machines see it; never negative."""
    if before.monotonic_seconds is None or after.monotonic_seconds is None or before.boot != after.boot:
        return max(0.0, after.unix_seconds - before.unix_seconds)
    passed = after.monotonic_seconds - before.monotonic_seconds
    return max(0.0, passed + after.suspended_seconds - before.suspended_seconds)


@dataclass
class Timeline:
    """Seconds of each boot on a line of their own, on which a set clock or a suspension moves nothing.

    Rows without a monotonic reading are placed by their wall clock; the first one with it gives the offset.
    """

    offsets: dict[str, float] = field(default_factory=dict)
    last: dict[str, Moment] = field(default_factory=dict)

    def take(self, moment: Moment) -> None:
        """Takes the moment of one more event in."""
        boot = moment.boot
        if boot not in self.offsets and moment.monotonic_seconds is not None:
            self.offsets[boot] = moment.unix_seconds - moment.monotonic_seconds
        self.last[boot] = moment

    def seconds(self, moment: Moment) -> float:
        """The position of a moment on the line of its boot."""
        if moment.monotonic_seconds is None:
            return moment.unix_seconds
        return moment.monotonic_seconds + self.offsets.get(moment.boot, moment.unix_seconds - moment.monotonic_seconds)

    def reach(self, boot: str, now: Moment) -> float:
        """How far a boot's line is known to go: to `now`, or to its last event where that boot is over."""
        if now.boot == boot:
            return self.seconds(now)
        return self.seconds(self.last[boot]) if boot in self.last else float("-inf")
