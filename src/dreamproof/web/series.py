"""What runs log, kept in memory and read on: a log of JSON lines by what was appended, anything else anew."""

import os
from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamproof.base.files import FaultKind, Unreadable, open_regular
from dreamproof.base.lines import parse_row
from dreamproof.runs.layout import Cell
from dreamproof.study.adapters.api import step_count
from dreamproof.study.adapters.rows import number
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.web.followed import Stamp, stamp_of

Floats = NDArray[np.float64]
READ_BYTES = 64 << 20
MAX_POINTS = 6_000_000
"""Kept over all runs of a study, 16 bytes each; the runs that were asked for longest ago are forgotten first."""


@dataclass
class LoggedRun:
    """Every number that one run logged, in the order of its log."""

    steps: dict[str, "array[float]"] = field(default_factory=dict)
    values: dict[str, "array[float]"] = field(default_factory=dict)
    stamp: Stamp | None = None
    read_bytes: int = 0
    fault: str | None = None
    """Why nothing of the log can be shown although there is one."""

    @property
    def points(self) -> int:
        return sum(map(len, self.steps.values()))

    def add(self, name: str, step: float, value: float) -> None:
        """Takes one logged value in."""
        self.steps.setdefault(name, array("d")).append(step)
        self.values.setdefault(name, array("d")).append(value)

    def not_finite(self, name: str) -> int:
        """How many logged values of a metric are NaN or infinite."""
        return int((~np.isfinite(np.array(self.values.get(name, ())))).sum())

    def curve(self, name: str) -> tuple[Floats, Floats]:
        """Finite values by agent steps; of a step that was logged again, after a resume, the last value counts."""
        steps, values = np.array(self.steps.get(name, ())), np.array(self.values.get(name, ()))
        finite = np.isfinite(values)
        steps, values = steps[finite], values[finite]
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        last = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
        return steps[last], values[last]


class SeriesStore:
    """The logged runs of one study."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Cell, LoggedRun] = OrderedDict()

    def run(self, opened: OpenStudy, cell: Cell) -> LoggedRun:
        """What a cell has logged up to now."""
        run, adapter = opened.run(cell), opened.adapter(cell)
        known = self._runs.setdefault(cell, LoggedRun())
        self._runs.move_to_end(cell)
        growing = adapter.growing_log(run)
        if growing is not None:
            known = self._read_on(cell, known, *growing)
        else:
            known = self._read_whole(opened, cell, known)
        self._forget()
        return known

    def _read_on(self, cell: Cell, known: LoggedRun, path: Path, key: str) -> LoggedRun:
        stamp = stamp_of(path)
        if stamp is not None and stamp == known.stamp:
            return known
        replaced = known.stamp is not None and stamp is not None and stamp[0] != known.stamp[0]
        if stamp is None or replaced or stamp[1] < known.read_bytes:
            known = self._runs[cell] = LoggedRun()
        if stamp is not None:
            known.read_bytes += _take_lines(known, path, key)
        known.stamp, known.fault = stamp, _fault(known, path, key)
        return known

    def _read_whole(self, opened: OpenStudy, cell: Cell, known: LoggedRun) -> LoggedRun:
        attempts = opened.state.known_cell(str(cell)).attempts
        output = opened.folder.attempt(attempts[-1]).output if attempts else None
        run, adapter = opened.run(cell), opened.adapter(cell)
        stamp = (stamp_of(output) if output else None, adapter.read(run, output).counters, adapter.change_stamp(run))
        if stamp == known.stamp:
            return known
        fresh = self._runs[cell] = LoggedRun(stamp=stamp)
        for name, points in adapter.results(run, output).items():
            for step, value in points:
                fresh.add(name, step, value)
        return fresh

    def _forget(self) -> None:
        total = sum(run.points for run in self._runs.values())
        while total > MAX_POINTS and len(self._runs) > 1:
            _, oldest = self._runs.popitem(last=False)
            total -= oldest.points


def _fault(known: LoggedRun, path: Path, key: str) -> str | None:
    if known.points:
        return None
    if known.read_bytes:
        return f"{path.name}: none of its lines is a JSON object with {key} and a number"
    opened = open_regular(path)
    if not isinstance(opened, Unreadable):
        os.close(opened)
        return None
    return None if opened.fault is FaultKind.ABSENT else f"{path.name}: {opened.reason}"


def _take_lines(known: LoggedRun, path: Path, key: str) -> int:
    """Takes in whole lines that were appended; returns their bytes."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return 0
    with os.fdopen(opened, "rb") as file:
        file.seek(known.read_bytes)
        content = file.read(READ_BYTES)
    whole = content.rfind(b"\n") + 1
    for line in content[:whole].splitlines():
        _take_row(known, parse_row(line.decode("utf-8", "replace")) or {}, key)
    return whole


def _take_row(known: LoggedRun, row: dict[str, Any], key: str) -> None:
    step = step_count(row.get(key))
    if step is None:
        return
    for name, content in row.items():
        value = number(content)
        if name != key and value is not None:
            known.add(name, step, value)


def smoothed(values: Floats, window: int) -> Floats:
    """The mean of each value and those before it, `window` in all; fewer at the beginning."""
    if window <= 1 or len(values) == 0:
        return values
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def common_steps(curves: Iterable[Floats], at_most: int) -> tuple[Floats, bool]:
    """The steps of all curves; where they are too many, so many evenly spaced ones, and True."""
    parts = [steps for steps in curves if len(steps)]
    steps = np.unique(np.concatenate(parts)) if parts else np.array([])
    if len(steps) <= at_most:
        return steps, False
    return np.linspace(steps[0], steps[-1], at_most), True


def json_numbers(values: Floats) -> list[float | None]:
    """Numbers as JSON has them: what is not finite is null; twelve digits."""
    return [float(f"{value:.12g}") if np.isfinite(value) else None for value in values]


def json_steps(steps: Floats) -> list[float]:
    """Agent steps with all their digits, as whole numbers where they are."""
    return [int(step) if step.is_integer() else float(step) for step in steps]
