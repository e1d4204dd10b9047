"""Says whether an attempt runs, from progress counters alone: never from the age of a log, never from CPU use. Pure."""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dreamproof.base.words import duration_text
from dreamproof.settings.study import Liveness
from dreamproof.study.counters import Counter

LEARNED_AFTER_GAPS = 3
SLOW_BELOW = 0.5
LEAST_WINDOWS = 3
KEPT_WINDOWS = 64
BUSY_CPU = 0.5
IDLE_CPU = 0.05
# Nothing can be learned about these before they are over: they happen once.
PATIENT_PHASES = frozenset({"start", "compile"})
RATED = "agent_steps"


class State(StrEnum):
    """What an attempt is doing."""

    RUNNING = "running"
    SLOW = "slow"
    STALLED = "stalled"
    DEAD = "dead"
    FINISHED = "finished"


@dataclass(frozen=True)
class Sample:
    """One look at an attempt; `counters` only grow while it works, `process_state` is the kernel's letter."""

    monotonic_seconds: float
    alive: bool
    counters: Mapping[str, float] = field(default_factory=dict)
    phase: str = "train"
    process_state: str = ""
    cpu_seconds: float | None = None
    finished: bool = False


@dataclass(frozen=True)
class Judgement:
    """A state with its reason; `silent_seconds` is the time since any counter grew."""

    state: State
    reason: str
    silent_seconds: float = 0.0
    limit_seconds: float = 0.0
    agent_steps_per_second: float | None = None


class _Rate:
    """Agent steps a second over windows of training time: the newest, and what was usual."""

    def __init__(self, window_seconds: float) -> None:
        self.window_seconds = window_seconds
        self.newest: float | None = None
        self.past: deque[float] = deque(maxlen=KEPT_WINDOWS)
        self._open: tuple[float, float] | None = None

    def add(self, seconds: float, steps: float) -> None:
        """Takes a counter's value; a window that is long enough closes and gives a rate."""
        if self._open is None or steps < self._open[1]:
            self._open = (seconds, steps)
            return
        elapsed, grown = seconds - self._open[0], steps - self._open[1]
        if elapsed < self.window_seconds or grown == 0:
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
        return statistics.median(self.past) if len(self.past) >= LEAST_WINDOWS else None


class Watch:
    """Watches one attempt; `known_gaps` are the longest gaps per phase that its sisters showed."""

    def __init__(self, settings: Liveness, known_gaps: Mapping[str, float] | None = None) -> None:
        self.settings = settings
        self.gaps: dict[str, float] = {}
        self._known = dict(known_gaps or {})
        self._gap_counts: dict[str, int] = {}
        self._counters: dict[str, Counter] = {}
        self._phase: str | None = None
        self._last: Sample | None = None
        self._silent_seconds = 0.0
        self._silent_cpu_seconds = 0.0
        self._grew = ""
        self._rate = _Rate(settings.floor_seconds)

    @property
    def agent_steps_per_second(self) -> float | None:
        """The rate over the newest window of training, if one has closed."""
        return self._rate.newest

    def limit_seconds(self, phase: str) -> float:
        """Silence that this phase is allowed before it counts as a stall."""
        seen = max(self.gaps.get(phase, 0.0), self._known.get(phase, 0.0))
        learned = phase in self._known or self._gap_counts.get(phase, 0) >= LEARNED_AFTER_GAPS
        floor = self.settings.floor_seconds
        if phase in PATIENT_PHASES or not learned:
            floor = max(floor, self.settings.compile_floor_seconds)
        return max(floor, self.settings.gap_factor * seen)

    def observe(self, sample: Sample, sister_rates: Sequence[float] = ()) -> Judgement:
        """Judges the attempt as it stands at this sample."""
        self._advance(sample)
        if sample.finished or (sample.phase == "done" and not sample.alive):
            return self._judgement(State.FINISHED, "its work is done", sample)
        if not sample.alive or sample.process_state in ("Z", "X"):
            return self._judgement(State.DEAD, "its process is gone", sample)
        if sample.process_state == "T":
            return self._judgement(State.STALLED, "its process is stopped by a signal (state T)", sample)
        limit = self.limit_seconds(sample.phase)
        if self._silent_seconds >= limit:
            return self._judgement(State.STALLED, self._stall_words(sample, limit), sample)
        slow = self._slow_words(sister_rates) if sample.phase == "train" else None
        if slow is not None:
            return self._judgement(State.SLOW, slow, sample)
        return self._judgement(State.RUNNING, self._running_words(sample, limit), sample)

    def _judgement(self, state: State, reason: str, sample: Sample) -> Judgement:
        limit = self.limit_seconds(sample.phase)
        return Judgement(state, reason, self._silent_seconds, limit, self._rate.newest)

    def _advance(self, sample: Sample) -> None:
        """Counts silence, learns gaps and takes the rate."""
        last = self._last
        elapsed = max(0.0, sample.monotonic_seconds - last.monotonic_seconds) if last else 0.0
        # A stopped process is not slow by nature: its stop must not teach a longer gap.
        stopped = sample.process_state == "T"
        if not stopped:
            self._silent_seconds += elapsed
            self._silent_cpu_seconds += self._cpu_used(sample)
        grew = self._growth(sample)
        if grew or sample.phase != self._phase:
            self._learn(last)
            self._silent_seconds = 0.0
            self._silent_cpu_seconds = 0.0
            self._grew = grew
        self._take_rate(sample, stopped)
        self._phase = sample.phase
        self._last = sample

    def _cpu_used(self, sample: Sample) -> float:
        before = self._last.cpu_seconds if self._last else None
        if before is None or sample.cpu_seconds is None:
            return 0.0
        return max(0.0, sample.cpu_seconds - before)

    def _growth(self, sample: Sample) -> str:
        """The first counter that grew, in words; empty where none did."""
        words = ""
        for name, value in sample.counters.items():
            counter = self._counters.get(name)
            if counter is None:
                self._counters[name] = Counter(value)
            is_new = counter is None and self._last is not None
            if is_new or (counter is not None and counter.grows_to(value)):
                words = words or f"{name} grew to {value:,.0f}"
        return words

    def _learn(self, last: Sample | None) -> None:
        """Keeps the gap that has just ended for the phase in which it was waited."""
        if last is None or self._phase is None:
            return
        limit = self.limit_seconds(self._phase)
        # A silence that was called a stall teaches no more than the limit it broke.
        gap = min(self._silent_seconds, limit)
        self.gaps[self._phase] = max(self.gaps.get(self._phase, 0.0), gap)
        self._gap_counts[self._phase] = self._gap_counts.get(self._phase, 0) + 1

    def _take_rate(self, sample: Sample, stopped: bool) -> None:
        if sample.phase != "train" or stopped or RATED not in sample.counters:
            self._rate.pause()
        else:
            self._rate.add(sample.monotonic_seconds, sample.counters[RATED])

    def _stall_words(self, sample: Sample, limit: float) -> str:
        seconds = self._silent_seconds
        words = f"no counter grew for {duration_text(seconds)} in phase {sample.phase} (limit {duration_text(limit)})"
        if sample.cpu_seconds is None or seconds <= 0:
            return words
        share = self._silent_cpu_seconds / seconds
        use = "busy" if share >= BUSY_CPU else "idle" if share < IDLE_CPU else "in use"
        return f"{words}; CPU {use} ({share:.0%} of a core)"

    def _slow_words(self, sister_rates: Sequence[float]) -> str | None:
        newest = self._rate.newest
        if newest is None:
            return None
        sisters = statistics.median(sister_rates) if sister_rates else None
        if sisters is not None and newest < SLOW_BELOW * sisters:
            return f"{newest:,.1f} agent steps/s, its sisters make {sisters:,.1f}"
        usual = self._rate.usual
        if usual is not None and newest < SLOW_BELOW * usual:
            return f"{newest:,.1f} agent steps/s, it made {usual:,.1f} before"
        return None

    def _running_words(self, sample: Sample, limit: float) -> str:
        ago = f"{duration_text(self._silent_seconds)} ago (limit {duration_text(limit)})"
        if self._grew:
            return f"{self._grew} {ago}"
        return f"phase {sample.phase} began {ago}"
