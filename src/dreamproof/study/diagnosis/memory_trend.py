"""Whether a process that ran out of memory grew steadily, or simply needs more. Pure but for one read."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from dreamproof.base.lines import read_rows
from dreamproof.base.text import bytes_text

MIN_SAMPLES = 6
MIN_SECONDS = 60.0
BEGINNING_SHARE = 0.3
"""Imports and compilation fill memory once; only later samples count."""
LEAK_SHARE = 0.25


@dataclass(frozen=True)
class Trend:
    """`grows` or `level`, with the reason as text."""

    kind: str
    text: str


def judge_trend(samples: list[tuple[float, float]]) -> Trend | None:
    """The trend of (seconds, bytes) samples; None if they are too few or too short."""
    if len(samples) < MIN_SAMPLES or samples[-1][0] - samples[0][0] < MIN_SECONDS:
        return None
    late = [pair for pair in samples if pair[0] >= samples[0][0] + BEGINNING_SHARE * (samples[-1][0] - samples[0][0])]
    half = late[0][0] + (late[-1][0] - late[0][0]) / 2
    first = [size for seconds, size in late if seconds <= half]
    second = [size for seconds, size in late if seconds > half]
    largest = max(size for _, size in samples)
    if not first or not second or not largest:
        return None
    grown = sum(second) / len(second) - sum(first) / len(first)
    hourly = grown / ((late[-1][0] - late[0][0]) / 2) * 3600
    share = 2 * grown / largest
    span = f"{bytes_text(int(first[0]))} → {bytes_text(int(second[-1]))}"
    if share >= LEAK_SHARE:
        text = f"memory grew steadily ({span}, {bytes_text(int(hourly))} per hour): a leak, more memory does not help"
        return Trend("grows", text)
    return Trend("level", f"memory was level after the start ({span}): it needs more memory, it does not leak")


def read_trend(path: Path) -> Trend | None:
    """The trend in an attempt's memory.jsonl."""
    samples = [(row.get("seconds"), row.get("bytes")) for row in read_rows(path)]
    return judge_trend(sorted((one, size) for one, size in samples if _is_sample(one) and _is_sample(size)))


def _is_sample(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < math.inf
