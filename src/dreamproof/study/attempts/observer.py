"""Looks at one attempt: reads its progress, asks what its processes use once it is silent, and judges."""

from collections.abc import Sequence

from dreamproof.runs.layout import AttemptFolder
from dreamproof.study.attempts.progress import AttemptProgress
from dreamproof.study.backends.api import Backend, Sighting
from dreamproof.study.diagnosis.liveness import Activity, Judgement, Sample, Watch

# Reading the process table costs more than a heartbeat, so it is asked only of attempts that are silent.
SILENT_SECONDS = 10.0
ACTIVITY_GAP_SECONDS = 10.0


class Observer:
    """One attempt as a backend, its run folders and its watch show it."""

    def __init__(self, backend: Backend, folder: AttemptFolder, progress: AttemptProgress, watch: Watch) -> None:
        self.progress = progress
        self.watch = watch
        self._backend = backend
        self._folder = folder
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
        return self._backend.activity(self._folder)
