"""Looks at one attempt: reads its progress, asks what its processes use once it is silent, and judges."""

from collections.abc import Callable, Sequence

from dreamproof.study.attempts.progress import AttemptProgress
from dreamproof.study.backends.api import Sighting
from dreamproof.study.diagnosis.liveness import Activity, Judgement, Sample, Watch

# Reading the process table costs more than a heartbeat, so it is asked only of attempts that are silent.
SILENT_SECONDS = 10.0
ACTIVITY_GAP_SECONDS = 10.0


class Observer:
    """One attempt as its run folders, its processes and its watch show it; `activity` asks what the processes use."""

    def __init__(
        self, progress: AttemptProgress, watch: Watch, activity: Callable[[], Activity | None] = lambda: None
    ) -> None:
        self.progress = progress
        self.watch = watch
        self._ask_activity = activity
        self._asked_at: float | None = None

    def observe(self, now: float, sighting: Sighting, other_rates: Sequence[float] = ()) -> Judgement:
        """Judges a running attempt at this instant of a monotonic clock."""
        counters, phase = self.progress.refresh()
        sample = Sample(
            now, True, counters, phase, sighting.process_state or "", sighting.process_id, self._activity(now)
        )
        return self.watch.observe(sample, other_rates)

    def _activity(self, now: float) -> Activity | None:
        limit = min(self.watch.settings.kill_idle_after_seconds, ACTIVITY_GAP_SECONDS)
        if self.watch.silent_seconds < min(SILENT_SECONDS, limit):
            self._asked_at = None
            return None
        if self._asked_at is not None and now - self._asked_at < limit / 2:
            return None
        self._asked_at = now
        return self._ask_activity()
