"""Learning curves logged by the runs, thinned for figures."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dreamproof.report.data import StudyEvidence
from dreamproof.runs.layout import Cell
from dreamproof.study.adapters import find_adapter, study_format

Floats = NDArray[np.float64]
POINTS = 400
LAST_POINTS = 10
GRID_POINTS = 200
INTERVAL_SEEDS = 3


@dataclass(frozen=True)
class Curve:
    """One run's logged values by agent steps; the column name distinguishes validation from training."""

    name: str
    agent_steps: Floats
    values: Floats

    @property
    def peak(self) -> float:
        return float(self.values.max())

    @property
    def last(self) -> float:
        """Mean of the last ten logged values."""
        return float(self.values[-LAST_POINTS:].mean())


@dataclass(frozen=True)
class Band:
    """The mean of an arm's curves and its 95 % t interval, which is NaN below three seeds; where all have values."""

    agent_steps: Floats
    mean: Floats
    low: Floats
    high: Floats


def arm_band(curves: list[Curve], bound: float = -np.inf, points: int = GRID_POINTS) -> Band:
    """The band of at least one curve at the steps of all of them, or at `points` of them; it ends at the bound."""
    start = max(curve.agent_steps[0] for curve in curves)
    steps = np.unique(np.concatenate([np.asarray(curve.agent_steps, float) for curve in curves]))
    steps = steps[steps >= start]
    if len(steps) > points:
        steps = np.linspace(start, steps[-1], points)
    return band_at(steps, np.array([on_grid(curve, steps) for curve in curves]), bound)


def band_at(steps: Floats, table: Floats, bound: float = -np.inf) -> Band:
    """The band of curves that are given at the same steps, one row each, where all of them have values.

    A mean over fewer curves would jump where the first of them ends.
    """
    known = np.isfinite(table).all(axis=0)
    steps, table = steps[known], table[:, known]
    count, mean, half = len(table), table.mean(axis=0), np.full(len(steps), np.nan)
    if count >= INTERVAL_SEEDS:
        half = stats.t.ppf(0.975, count - 1) * table.std(axis=0, ddof=1) / np.sqrt(count)
    return Band(steps, mean, np.maximum(mean - half, bound), mean + half)


def on_grid(curve: Curve, steps: Floats) -> Floats:
    """A curve interpolated at given steps; NaN outside its range."""
    return np.asarray(np.interp(steps, curve.agent_steps, curve.values, left=np.nan, right=np.nan))


def read_curves(evidence: StudyEvidence, metric: str) -> dict[Cell, Curve]:
    """The curves of a metric for every cell that logged it at least twice."""
    found = {}
    for cell in evidence.cells:
        curve = _read(evidence, cell, metric)
        if curve is not None:
            found[cell] = curve
    return found


def _read(evidence: StudyEvidence, cell: Cell, metric: str) -> Curve | None:
    facts = evidence.cells[cell]
    run = evidence.kept_run(cell)
    if not os.path.isdir(run.root):
        return None
    output = evidence.folder.root / facts.output if facts.output is not None else None
    series = find_adapter(facts.adapter, study_format(evidence.study)).results(run, output)
    name = logged_name(series, metric)
    if name is None:
        return None
    # A resumed run logs some steps again; the last value counts.
    points = {float(step): float(value) for step, value in series[name] if math.isfinite(value)}
    if len(points) < 2:
        return None
    steps = np.array(sorted(points))
    thin_steps, values = _thinned(steps, np.array([points[step] for step in steps]))
    return Curve(name, thin_steps, values)


def logged_name(names: Iterable[str], metric: str) -> str | None:
    """The one column that holds a metric: its own name, its validation, else the first whose last part matches."""
    known = list(names)
    for name in (metric, f"validation/{metric}"):
        if name in known:
            return name
    for name in known:
        if name.replace(".", "/").rsplit("/", 1)[-1] in (metric, f"episode_{metric}", f"{metric}_mean"):
            return name
    return None


def _thinned(steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """At most POINTS points, each the mean of its bin; the last logged values are kept."""
    if len(steps) <= POINTS:
        return steps, values
    edges = np.linspace(0, len(steps), POINTS + 1).astype(int)
    starts = edges[:-1]
    widths = np.diff(edges)
    return np.add.reduceat(steps, starts) / widths, np.add.reduceat(values, starts) / widths
