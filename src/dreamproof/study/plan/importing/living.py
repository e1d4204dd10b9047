"""Runs that others started and that still live: shown by a process, else by files that were just written."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.text import duration_text
from dreamproof.settings.running import Liveness
from dreamproof.study.adapters.folders import CLOCK_SECONDS, change_times
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process.writers import Writer, output_file, writers_of

# Files that were all written within this time may be a copy, whose times show when it was made.
COPY_SECONDS = 60.0


@dataclass(frozen=True)
class LivingRun:
    """What shows that a run still lives."""

    evidence: str
    writer: Writer | None = None
    output: Path | None = None


def living_by(writer: Writer) -> LivingRun:
    """A run that this process works on."""
    return LivingRun(f"{writer.text} works on it", writer, output_file(writer.process.process_id))


def find_living(opened: OpenStudy, root: Path) -> LivingRun | None:
    """What shows that a run is being written; None if nothing does."""
    times = change_times(root)
    if not times:
        return None
    liveness, silent_seconds = opened.study.liveness, time.time() - max(times)
    for writer in writers_of(root):
        if _is_its_process(writer, silent_seconds, liveness):
            return living_by(writer)
    fresh = -CLOCK_SECONDS <= silent_seconds <= liveness.stalled_after_seconds
    if not fresh or max(times) - min(times) < COPY_SECONDS:
        return None
    ago = duration_text(max(0.0, silent_seconds))
    return LivingRun(f"its files were written {ago} ago; its process cannot be seen from here")


def find_writer(root: Path) -> LivingRun | None:
    """The process that has a file of the folder open for writing."""
    if not os.path.isdir(root):
        return None
    writer = next((one for one in writers_of(root) if one.holds_open), None)
    return living_by(writer) if writer is not None else None


def _is_its_process(writer: Writer, silent_seconds: float, liveness: Liveness) -> bool:
    """A process that only names the folder may be a reader of it, so files must be fresh."""
    return writer.holds_open or silent_seconds <= liveness.compile_stalled_after_seconds
