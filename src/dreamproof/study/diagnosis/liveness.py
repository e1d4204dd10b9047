"""Says whether an attempt makes progress, and when the evidence is strong enough to kill it. Pure.

`stalled` is something to show. A kill needs a stopped process, a deadlock, or silence beyond a generous hard limit.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dreamproof.base.text import duration_text
from dreamproof.settings.running import Liveness

SLOW_BELOW = 0.5
MIN_WINDOWS = 3
KEPT_WINDOWS = 64
RATE_WINDOW_SECONDS = 60.0
BUSY_CPU = 0.5
IDLE_CPU = 0.02
IDLE_BYTES_PER_SECOND = 16384.0
HIGHEST_PRESSURE = 10.0
# A supervisor that was itself suspended, stopped or blocked has not watched: that time is no silence.
LONGEST_UNWATCHED_SECONDS = 30.0
# However short a limit is, nothing is killed on the first look after such a pause.
LOOKS_BEFORE_KILL = 4
QUICK_PHASES = frozenset({"train", "evaluate", "save"})
RATED = "agent_steps"


class State(StrEnum):
    """What an attempt is doing."""

    RUNNING = "running"
    SLOW = "slow"
    STALLED = "stalled"
    DEAD = "dead"
    FINISHED = "finished"


class KillReason(StrEnum):
    """Which evidence is strong enough to kill an attempt."""

    STOPPED = "stopped"
    DEADLOCK = "deadlock"
    SILENT = "silent"


@dataclass(frozen=True)
class Activity:
    """What all processes of an attempt have used so far, and how busy the machine is."""

    cpu_seconds: float
    io_bytes: float = 0.0
    is_runnable: bool = False
    """Whether a thread runs, waits for a core, or waits for a disk at this instant."""
    is_stopped: bool = False
    """Whether a signal stopped one of the processes (state T) while no other one runs, e.g. behind a shell."""
    gpu_is_busy: bool = False
    machine_cpu_seconds: float = 0.0
    """CPU time that everything on this machine has used."""
    cores: int = 1
    stalled_share: float = 0.0
    """Share of the time in which all tasks waited for memory, disk or their CPU quota (PSI)."""


@dataclass(frozen=True)
class Sample:
    """One look at an attempt; `counters` only grow while it works, `process_state` is the kernel's letter."""

    monotonic_seconds: float
    alive: bool
    counters: Mapping[str, float] = field(default_factory=dict)
    phase: str = "train"
    process_state: str = ""
    process_id: int | None = None
    activity: Activity | None = None
    finished: bool = False


@dataclass(frozen=True)
class Judgement:
    """A state with its reason; `silent_seconds` is the time since any counter grew."""

    state: State
    reason: str
    silent_seconds: float = 0.0
    limit_seconds: float = 0.0
    agent_steps_per_second: float | None = None
    kill: KillReason | None = None
    """Set where the attempt should be killed, with `reason` as the evidence."""


class _Rate:
    """Agent steps per second over windows of training time: the newest, and what was usual."""

    def __init__(self) -> None:
        self.newest: float | None = None
        self.past: deque[float] = deque(maxlen=KEPT_WINDOWS)
        self._open: tuple[float, float] | None = None

    def add(self, seconds: float, steps: float) -> None:
        """Takes a counter's value; a window that is long enough closes and gives a rate."""
        if self._open is None or steps < self._open[1]:
            self._open = (seconds, steps)
            return
        elapsed, grown = seconds - self._open[0], steps - self._open[1]
        if elapsed < RATE_WINDOW_SECONDS or grown == 0:
            return
        if self.newest is not None:
            self.past.append(self.newest)
        self.newest = grown / elapsed
        self._open = (seconds, steps)

    def pause(self) -> None:
        """Leaves out time that was not training."""
        self._open = None

    @property
    def usual(self) -> float | None:
        return statistics.median(self.past) if len(self.past) >= MIN_WINDOWS else None


class _HighWater:
    """The highest value of every counter. A fall is a restart from a checkpoint, once per process, never progress."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self._process_id: int | None = None
        self._fallen: set[str] = set()

    def growth(self, counters: Mapping[str, float], process_id: int | None, is_first: bool) -> str:
        """The first counter that grew, as text; empty if none did."""
        if process_id != self._process_id:
            self._process_id = process_id
            self._fallen.clear()
        text = ""
        for name, value in counters.items():
            highest = self.values.get(name)
            if highest is None or value > highest:
                self.values[name] = value
                if not is_first:
                    text = text or f"{name} grew to {value:,.0f}"
            elif value < highest and name not in self._fallen:
                self._fallen.add(name)
                self.values[name] = value
        return text


class _Use:
    """Whether the attempt's processes use the machine, and how much of it others leave them."""

    def __init__(self) -> None:
        self.pressure = 1.0
        self.cpu_share: float | None = None
        self.idle_seconds = 0.0
        self._last: tuple[float, Activity] | None = None

    def restart(self) -> None:
        """Progress was made: resets the measurements."""
        self.pressure, self.cpu_share, self.idle_seconds, self._last = 1.0, None, 0.0, None

    def add(self, seconds: float, activity: Activity) -> None:
        """Takes a newer look; the time since the last one was idle, or not."""
        last, self._last = self._last, (seconds, activity)
        if last is None or seconds <= last[0]:
            return
        elapsed = seconds - last[0]
        cpu = (activity.cpu_seconds - last[1].cpu_seconds) / elapsed
        io = (activity.io_bytes - last[1].io_bytes) / elapsed
        machine_cpu = (activity.machine_cpu_seconds - last[1].machine_cpu_seconds) / elapsed
        self.cpu_share = max(0.0, cpu)
        self.pressure = pressure_of(activity, max(0.0, machine_cpu - self.cpu_share))
        # Sums fall when a process of the family ends, which is activity too.
        idle = 0.0 <= cpu < IDLE_CPU and 0.0 <= io < IDLE_BYTES_PER_SECOND
        if idle and not activity.is_runnable and not activity.gpu_is_busy:
            self.idle_seconds += min(elapsed, LONGEST_UNWATCHED_SECONDS) / self.pressure
        else:
            self.idle_seconds = 0.0


def pressure_of(activity: Activity, others_cpu: float) -> float:
    """How many times longer work takes here than on a quiet machine: 1 where nothing else runs, at most 10."""
    left = max(activity.cores - others_cpu, activity.cores / HIGHEST_PRESSURE)
    waiting = 1.0 / max(1.0 - activity.stalled_share, 1.0 / HIGHEST_PRESSURE)
    return min(HIGHEST_PRESSURE, max(1.0, activity.cores / left, waiting))


class Watch:
    """Watches one attempt.

    `known_gaps` are the longest gaps per phase in other attempts of the study; `factor` multiplies the limits for
    killing: it grows with every earlier kill and every false alarm.
    """

    def __init__(self, settings: Liveness, known_gaps: Mapping[str, float] | None = None, factor: float = 1.0) -> None:
        self.settings = settings
        self.gaps: dict[str, float] = {}
        self._known = dict(known_gaps or {})
        self._factor = factor
        self._highest = _HighWater()
        self._use = _Use()
        self._phase: str | None = None
        self._last: Sample | None = None
        self._progress_at: float | None = None
        self._silent_seconds = 0.0
        self._counted_seconds = 0.0
        self._stopped_seconds = 0.0
        self._family_is_stopped = False
        self._grew = ""
        self._rate = _Rate()

    @property
    def agent_steps_per_second(self) -> float | None:
        """The rate over the newest window of training, if one has closed."""
        return self._rate.newest

    @property
    def silent_seconds(self) -> float:
        """Time since any counter grew that counts for judging: watched, and not in state T."""
        return self._silent_seconds

    def progress_age_seconds(self, now: float) -> float | None:
        """All time since any counter grew, by the clock of the samples; None before the first sample."""
        return None if self._progress_at is None else max(0.0, now - self._progress_at)

    def stalled_after_seconds(self, phase: str) -> float:
        """Silence after which this phase is shown as stalled."""
        quick = phase in QUICK_PHASES
        floor = self.settings.stalled_after_seconds if quick else self.settings.compile_stalled_after_seconds
        seen = max(self.gaps.get(phase, 0.0), self._known.get(phase, 0.0))
        return max(floor, self.settings.gap_factor * seen)

    def kill_after_seconds(self, phase: str) -> float:
        """Silence on a quiet machine after which this phase is killed, busy or not; never below what was seen."""
        declared = self.settings.kill_silent_after_seconds.of(phase) * self._factor
        return max(declared, self.stalled_after_seconds(phase))

    def observe(self, sample: Sample, other_rates: Sequence[float] = ()) -> Judgement:
        """Judges the attempt at this sample."""
        self._advance(sample)
        if sample.finished or (sample.phase == "done" and not sample.alive):
            return self._judgement(State.FINISHED, "its work is done", sample)
        if not sample.alive or sample.process_state in ("Z", "X"):
            return self._judgement(State.DEAD, "its process is gone", sample)
        if self._is_stopped(sample):
            return self._stopped(sample)
        if self._silent_seconds >= self.stalled_after_seconds(sample.phase):
            return self._stalled(sample)
        slow = self._slow_text(other_rates) if sample.phase == "train" else None
        if slow is not None:
            return self._judgement(State.SLOW, slow, sample)
        return self._judgement(State.RUNNING, self._running_text(sample), sample)

    def _judgement(self, state: State, reason: str, sample: Sample, kill: KillReason | None = None) -> Judgement:
        limit = self.stalled_after_seconds(sample.phase)
        return Judgement(state, reason, self._silent_seconds, limit, self._rate.newest, kill)

    def _stopped(self, sample: Sample) -> Judgement:
        limit = self.settings.kill_stopped_after_seconds * self._factor
        kill = KillReason.STOPPED if self._stopped_seconds >= limit else None
        so_long = f" for {duration_text(self._stopped_seconds)}" if kill else ""
        reason = f"its process is stopped by a signal (state T){so_long}; to be killed after {duration_text(limit)}"
        return self._judgement(State.STALLED, reason, sample, kill)

    def _stalled(self, sample: Sample) -> Judgement:
        idle_limit = self.settings.kill_idle_after_seconds * self._factor
        limit = self.kill_after_seconds(sample.phase)
        if self._use.idle_seconds >= idle_limit:
            reason = (
                f"no progress and no CPU, disk or GPU use for {duration_text(self._use.idle_seconds)} "
                f"in phase {sample.phase} (limit {duration_text(idle_limit)}): a deadlock"
            )
            return self._judgement(State.STALLED, reason, sample, KillReason.DEADLOCK)
        kill = KillReason.SILENT if self._counted_seconds >= limit else None
        return self._judgement(State.STALLED, self._stall_text(sample, limit), sample, kill)

    def _advance(self, sample: Sample) -> None:
        """Counts silence, learns gaps and takes the rate."""
        last = self._last
        elapsed = max(0.0, sample.monotonic_seconds - last.monotonic_seconds) if last else 0.0
        elapsed = min(elapsed, LONGEST_UNWATCHED_SECONDS)
        if sample.activity is not None:
            self._family_is_stopped = sample.activity.is_stopped
        is_stopped = self._is_stopped(sample)
        self._stopped_seconds = self._stopped_seconds + elapsed if is_stopped else 0.0
        if not is_stopped:  # time in state T does not count as silence
            self._silent_seconds += elapsed
            most = self.kill_after_seconds(sample.phase) / LOOKS_BEFORE_KILL
            self._counted_seconds += min(elapsed / self._use.pressure, most)
        grew = self._highest.growth(sample.counters, sample.process_id, last is None)
        if grew or sample.phase != self._phase:
            self._learn(last)
            self._progress_at = sample.monotonic_seconds
            self._silent_seconds = self._counted_seconds = 0.0
            self._family_is_stopped = False
            self._use.restart()
            self._grew = grew
        if sample.activity is not None and not is_stopped:
            self._use.add(sample.monotonic_seconds, sample.activity)
        self._take_rate(sample, is_stopped)
        self._phase = sample.phase
        self._last = sample

    def _is_stopped(self, sample: Sample) -> bool:
        """Whether a signal stopped the attempt: its first process, or one behind it as the newest activity showed."""
        return sample.process_state == "T" or self._family_is_stopped

    def _learn(self, last: Sample | None) -> None:
        """Keeps the gap that has just ended for the phase in which it was waited."""
        if last is not None and self._phase is not None:
            self.gaps[self._phase] = max(self.gaps.get(self._phase, 0.0), self._silent_seconds)

    def _take_rate(self, sample: Sample, is_stopped: bool) -> None:
        if sample.phase != "train" or is_stopped or RATED not in sample.counters:
            self._rate.pause()
        else:
            self._rate.add(sample.monotonic_seconds, sample.counters[RATED])

    def _stall_text(self, sample: Sample, limit: float) -> str:
        text = (
            f"no counter grew for {duration_text(self._silent_seconds)} in phase {sample.phase}; "
            f"to be killed after {duration_text(limit)}"
        )
        if self._use.pressure > 1.2:
            counted = duration_text(self._counted_seconds)
            text += f", of which {counted} count (the machine is {self._use.pressure:.1f} times slower: other work)"
        if self._use.cpu_share is None:
            return text
        share = self._use.cpu_share
        use = "busy" if share >= BUSY_CPU else "idle" if share < IDLE_CPU else "in use"
        return f"{text}; CPU {use} ({share:.0%} of one core)"

    def _slow_text(self, other_rates: Sequence[float]) -> str | None:
        newest = self._rate.newest
        if newest is None:
            return None
        others = statistics.median(other_rates) if other_rates else None
        if others is not None and newest < SLOW_BELOW * others:
            return f"{newest:,.1f} agent steps/s, other runs of its arm average {others:,.1f} steps/s"
        usual = self._rate.usual
        if usual is not None and newest < SLOW_BELOW * usual:
            return f"{newest:,.1f} agent steps/s, {usual:,.1f} before"
        return None

    def _running_text(self, sample: Sample) -> str:
        ago = f"{duration_text(self._silent_seconds)} ago"
        return f"{self._grew} {ago}" if self._grew else f"phase {sample.phase} began {ago}"
