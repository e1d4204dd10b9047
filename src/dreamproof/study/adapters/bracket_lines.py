"""`[123/15000] R:…` lines on stdout: the form in which many scripts print how far they are."""

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.files import read_tail
from dreamproof.runs.layout import AttemptFolder, RunFolder
from dreamproof.runs.reader import TrainProof, read_settings
from dreamproof.study.adapters.api import (
    FolderAdapter,
    Reading,
    Series,
    modified,
    newest_file,
    newest_weights,
    not_finite,
    oldest_time,
    prove_by_weights,
    steps_when_written,
)

LINE = re.compile(r"\[\s*(\d{1,12})\s*/\s*(\d{1,12})\s*\]([^\[\n\r]{0,400})")
VALUE = re.compile(r"\b([A-Za-z][\w/]{0,40})\s*[:=]\s*(-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))\b", re.IGNORECASE)
TAIL_BYTES = 8192
WHOLE_BYTES = 64 << 20


@dataclass(frozen=True)
class Line:
    """One progress line: how many of how many, and the values named in it."""

    done: int
    total: int
    values: dict[str, float]


def read_lines(text: str) -> list[Line]:
    """Every progress line of a text, in order; a `total` of 0 is no progress line."""
    return [
        Line(int(done), int(total), {name: float(value) for name, value in VALUE.findall(rest)})
        for done, total, rest in LINE.findall(text)
        if int(total) > 0 and int(done) <= int(total)
    ]


def reached_end(lines: list[Line]) -> bool:
    """Whether the last line is the last there can be: scripts print every few rounds, and some count from 0."""
    last = lines[-1]
    before = [line.done for line in lines[-20:] if line.total == last.total]
    strides = [after - first for first, after in itertools.pairwise(before) if after > first]
    stride = min(strides, default=1)
    from_zero = lines[0].done == 0
    return last.done + stride > last.total or (from_zero and last.done + stride >= last.total)


def output_of(run: RunFolder, output: Path | None) -> Path | None:
    """What the process printed: `output`, or the newest *.out or *.log in the run folder."""
    if output is not None and os.path.exists(output):
        return output
    return newest_file(run.root, ".out", ".log")


class BracketLinesAdapter(FolderAdapter):
    """Reads printed lines; steps are in the script's own unit, or a share of the declared ones where totals differ."""

    name = "bracket_lines"

    def matches(self, run: RunFolder) -> bool:
        """Always: any process prints something."""
        return True

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The last line printed."""
        path = output_of(run, output)
        lines = read_lines(read_tail(path, TAIL_BYTES)) if path is not None else []
        if not lines:
            return Reading(counters={})
        settings = read_settings(run)
        steps = _agent_steps(lines[-1], settings.agent_steps if settings is not None else None)
        return Reading(steps, None, "train", {"agent_steps": steps, "lines_done": lines[-1].done})

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps done when the newest checkpoint file was written, by file times."""
        path = output_of(run, output)
        if path is None:
            return 0
        return steps_when_written(newest_weights(run.root), self.read(run, output).agent_steps, *_span(run, path))

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """The last line is the last there can be, its values are finite, a checkpoint was written at the end."""
        path = output_of(run, output)
        lines = read_lines(read_tail(path, WHOLE_BYTES)) if path is not None else []
        if path is None or not lines:
            return "no line of the form [123/15000] in its output"
        last = lines[-1]
        if not reached_end(lines):
            return f"its output ends at [{last.done}/{last.total}]"
        fault = not_finite(last.values)
        if fault is not None:
            return fault
        return prove_by_weights(run, max(agent_steps, last.done), last.done, _span(run, path))

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every value named in the lines over the lines' own count."""
        path = output_of(run, output)
        series: Series = {}
        for line in read_lines(read_tail(path, WHOLE_BYTES)) if path is not None else []:
            for name, value in line.values.items():
                series.setdefault(name, []).append((line.done, value))
        return series


def _agent_steps(line: Line, declared: int | None) -> int:
    if declared is None or declared == line.total:
        return line.done
    return declared * line.done // line.total


def _span(run: RunFolder, output: Path) -> tuple[float, float]:
    """When the process was started, by its order or the oldest file of its folder, and when it last printed."""
    ended = modified(output) or 0.0
    times = [oldest_time(run.root), modified(AttemptFolder(output.parent).order), ended]
    return min(time for time in times if time is not None), ended
