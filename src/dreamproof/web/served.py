"""One study as it is served: followed, with its results, its kept answers and the GPU use seen so far."""

import time
from collections import deque
from typing import Any

from dreamproof.study.ledger.lease import is_elsewhere, living_holder
from dreamproof.study.views.overview import Overview
from dreamproof.study.views.values import Values
from dreamproof.web.answers import Answers
from dreamproof.web.followed import FollowedStudy
from dreamproof.web.payloads import overview_of, summary, unreadable_summary
from dreamproof.web.results import ResultsOfStudy

GPU_SAMPLES = 2000
GPU_SECONDS = 2.0


class ServedStudy:
    """What the API asks for one study."""

    def __init__(self, followed: FollowedStudy) -> None:
        self.followed = followed
        self.results = ResultsOfStudy(followed)
        self.answers = Answers()
        self._gpu: dict[str, deque[tuple[float, float | None, int | None]]] = {}
        self._overview: tuple[int, float, Overview] | None = None

    @property
    def scheduler_seconds(self) -> float:
        """How long what a scheduler answered is kept: it is not asked more often than the study allows."""
        opened = self.followed.opened
        slurm = opened.study.backend.slurm
        return slurm.poll_seconds if slurm is not None and opened.state.open_attempts else 0.0

    def _is_supervised_here(self) -> bool:
        holder = living_holder(self.followed.opened.folder.lease)
        return holder is not None and not is_elsewhere(holder)

    def overview(self) -> Overview:
        """The overview as of the newest change; call it with the lock held."""
        kept = self._overview
        now = time.monotonic()
        # Without open attempts nobody asks the scheduler, and no later change would bring a newer overview.
        rests = kept is not None and now < kept[1] and self.scheduler_seconds > 0
        if kept is not None and (kept[0] == self.followed.version or rests):
            return kept[2]
        made = overview_of(self.followed)
        rest = 0.0 if self._is_supervised_here() else self.scheduler_seconds
        self._overview = (self.followed.version, now + rest, made)
        self._note_gpu(made)
        return made

    def _note_gpu(self, overview: Overview) -> None:
        """Takes down GPU use of running cells: no file of a study holds it."""
        now = time.time()
        for one in overview.running:
            if one.gpu_percent is None and one.gpu_bytes is None:
                continue
            seen = self._gpu.setdefault(one.cell, deque(maxlen=GPU_SAMPLES))
            if not seen or now - seen[-1][0] >= GPU_SECONDS:
                seen.append((now, one.gpu_percent, one.gpu_bytes))

    def gpu_trace(self, cell: str) -> dict[str, list[Any]]:
        """GPU use of a cell since the dashboard was started, while somebody looked."""
        seen = self._gpu.get(cell, ())
        return {
            "unix_seconds": [round(t, 1) for t, _, _ in seen],
            "percent": [p for _, p, _ in seen],
            "bytes": [b for _, _, b in seen],
        }

    def summary(self) -> Values:
        """One line of the list of studies; one that cannot be read says why."""
        with self.followed.lock:
            if self.followed.fault is not None:
                return unreadable_summary(self.followed)
            return summary(self.followed, self.overview())
