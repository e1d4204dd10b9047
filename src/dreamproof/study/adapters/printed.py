"""Progress in printed lines: `[123/15000] R:…`, or lines that a regular expression of the study describes."""

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.files import read_tail
from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import NotFinite, TrainProof
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series, TrainerFormat, first_step, not_finite
from dreamproof.study.adapters.checkpoints import (
    Checkpoint,
    RunSpan,
    Steps,
    Updates,
    find_checkpoints,
    kept_steps,
    prove_by_checkpoint,
)
from dreamproof.study.adapters.folders import attempt_began, modified, newest_file, oldest_time

BRACKETS = re.compile(r"\[\s*(?P<step>\d{1,12})\s*/\s*(?P<total>\d{1,12})\s*\](?P<rest>[^\[\n\r]{0,400})")
NOT_FINITE = re.compile(r"(?<![\w./])[-+]?(?:nan|inf|infinity)(?![\w/])", re.IGNORECASE)
LINE_END = re.compile(r"[\n\r]+")
VALUE = re.compile(r"\b([A-Za-z][\w/]{0,40})\s*[:=]\s*(-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf))\b", re.IGNORECASE)
TAIL_BYTES = 8192
WHOLE_BYTES = 64 << 20
# A declared expression sees lines no longer than this.
LINE_CHARACTERS = 1000


@dataclass(frozen=True)
class Line:
    """One progress line: how many of how many, if it says so, and the values named in it."""

    done: int
    total: int | None
    values: dict[str, float]
    text: str


def read_lines(text: str) -> list[Line]:
    """Every progress line in brackets, in order; a `total` of 0 is no progress line."""
    found = [(int(line["step"]), int(line["total"]), line) for line in BRACKETS.finditer(text)]
    return [
        Line(done, total, _named_values(line["rest"]), _text_before(line) + line[0])
        for done, total, line in found
        if 0 < total >= done
    ]


def _text_before(found: re.Match[str]) -> str:
    """The beginning of the line in which something was found."""
    return LINE_END.split(found.string[max(0, found.start() - LINE_CHARACTERS) : found.start()])[-1]


def _named_values(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in VALUE.findall(text)}


def read_pattern(text: str, pattern: re.Pattern[str]) -> list[Line]:
    """Every line that a declared expression finds; its groups are `step`, perhaps `total`, and values."""
    found = (pattern.search(line[:LINE_CHARACTERS]) for line in LINE_END.split(text))
    lines = (_line_of(match.groupdict(), match.string) for match in found if match is not None)
    return [line for line in lines if line is not None]


def _line_of(groups: dict[str, str | None], text: str) -> Line | None:
    numbers = {name: value for name, text in groups.items() if (value := _number(text)) is not None}
    done, total = numbers.pop("step", None), numbers.pop("total", None)
    if done is None or not 0 <= done < 1e15:
        return None
    return Line(int(done), int(total) if total and 0 < total < 1e15 else None, numbers, text)


def _number(text: str | None) -> float | None:
    try:
        return float(text.replace(",", "").replace("_", "")) if text else None
    except ValueError:
        return None


def checked_values(pattern: str) -> str:
    """Which finite values a line that an expression finds shows, for people."""
    names = [name for name in re.compile(pattern).groupindex if name not in ("step", "total")]
    return f"finite values: {', '.join(names)}" if names else "finite values: not checked, the pattern names none"


def reached_end(lines: list[Line]) -> bool:
    """Whether the last line is the last there can be: scripts print every few rounds, and some count from 0."""
    last = lines[-1]
    if last.total is None:
        return True
    stride, from_zero = _stride(lines), lines[0].done == 0
    return last.done + stride > last.total or (from_zero and last.done + stride >= last.total)


def _stride(lines: list[Line]) -> int:
    """The smallest distance between the last lines."""
    before = [line.done for line in lines[-20:] if line.total == lines[-1].total]
    return min((after - first for first, after in itertools.pairwise(before) if after > first), default=1)


def _not_finite(line: Line) -> NotFinite | None:
    """The first value that is not a number, named or not; None if there is none."""
    found = NOT_FINITE.search(line.text)
    named = not_finite(line.values)
    if named is not None or found is None:
        return named
    return NotFinite(f"its last line holds {found[0]}: '{printable(line.text.strip()[:80])}'")


def output_of(run: RunFolder, output: Path | None) -> Path | None:
    """What the process printed: `output`, or the newest *.out or *.log in the run folder."""
    if output is not None and os.path.exists(output):
        return output
    return newest_file(run.root, ".out", ".log")


class PrintedAdapter(FolderAdapter):
    """Reads what the process printed; steps are the lines' own count times `steps_per_count`."""

    looks_for: str
    proves = (
        "steps by the last line, no nan or inf in it, and the final checkpoint by the step in its name, else by when "
        "it was written; updates are taken from the count, as lines show none"
    )

    def lines(self, text: str) -> list[Line]:
        """The progress lines of a text."""
        raise NotImplementedError

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether such a line was printed."""
        path = output_of(run, output)
        return path is not None and bool(self.lines(read_tail(path, TAIL_BYTES)))

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The last line printed."""
        path = output_of(run, output)
        lines = self.lines(read_tail(path, TAIL_BYTES)) if path is not None else []
        if not lines:
            return Reading(counters={})
        steps = self.format.agent_steps(lines[-1].done)
        return Reading(steps, None, "train", {"agent_steps": steps, "lines_done": lines[-1].done})

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps of the newest checkpoint, by its name or by file times."""
        path = output_of(run, output)
        if path is None:
            return kept_steps(run.root)
        return kept_steps(run.root, self.read(run, output).agent_steps, _span(run, path))

    def began_agent_steps(self, run: RunFolder, output: Path) -> int | None:
        """One distance between two lines before the first line."""
        lines = self.lines(read_tail(output, WHOLE_BYTES))
        return first_step(output, [self.format.agent_steps(line.done) for line in lines], output)

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """The last line is of the last step, its values are finite, a checkpoint holds the end."""
        path = output_of(run, output)
        lines = self.lines(read_tail(path, WHOLE_BYTES)) if path is not None else []
        if path is None or not lines:
            return f"its output holds no {self.looks_for.removeprefix('a ')}"
        last, whole = lines[-1], reached_end(lines)
        ending = f"[{last.done}/{last.total}]" if last.total is not None else f"{last.done:,}"
        if not whole:
            return f"its output ends at {ending}"
        count = last.total if last.total is not None else last.done
        reached = self.format.agent_steps(count)
        if reached < agent_steps:
            return (
                f"its output ends at {ending}, which is {reached:,} of {agent_steps:,} agent steps "
                "(declare trainer.steps_per_count if one count is several agent steps)"
            )
        fault = _not_finite(last)
        if fault is not None:
            return fault
        return prove_by_checkpoint(
            run.root, run.root, Steps(agent_steps, reached), Updates(last.done, False), _span(run, path)
        )

    def prove_resumed(self, run: RunFolder, agent_steps: int, output: Path) -> TrainProof | str | None:
        """By the step in the name or content of the last checkpoint: its line was never printed."""
        lines, saved = self.lines(read_tail(output, WHOLE_BYTES)), find_checkpoints(run.root)
        if not lines or not saved:
            return None
        reached = max(one.agent_steps or self._next_step(lines, one) for one in saved)
        if reached < agent_steps:
            return (
                f"its last attempt printed no step, those before it {lines[-1].done:,}, and "
                f"{printable(saved[-1].path.name)} does not name step {agent_steps:,}: let the trainer save and print "
                "its step also when it resumes at the end"
            )
        return _not_finite(lines[-1]) or prove_by_checkpoint(
            run.root, run.root, Steps(agent_steps, reached), Updates(lines[-1].done, False), _span(run, output)
        )

    def _next_step(self, lines: list[Line], checkpoint: Checkpoint) -> int:
        """A plain number in a checkpoint's name if it is the step of the line due next; else 0."""
        number, last = checkpoint.number or 0, lines[-1].done
        return number if self.format.steps_per_count == 1 and last < number <= last + _stride(lines) else 0

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """From the last line."""
        path = output_of(run, output)
        lines = self.lines(read_tail(path, TAIL_BYTES)) if path is not None else []
        return lines[-1].values if lines else {}

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every value named in the lines over agent steps."""
        path = output_of(run, output)
        series: Series = {}
        for line in self.lines(read_tail(path, WHOLE_BYTES)) if path is not None else []:
            for name, value in line.values.items():
                series.setdefault(name, []).append((self.format.agent_steps(line.done), value))
        return series


class BracketLinesAdapter(PrintedAdapter):
    """Lines of the form that many scripts print."""

    name = "bracket_lines"
    looks_for = "a line of the form [123/15000]"

    def lines(self, text: str) -> list[Line]:
        """Lines in brackets."""
        return read_lines(text)


class LinePatternAdapter(PrintedAdapter):
    """Lines that the declared regular expression finds."""

    name = "line_pattern"

    def __init__(self, trainer_format: TrainerFormat | None = None) -> None:
        super().__init__(trainer_format)
        pattern = printable(self.format.line_pattern or "(none declared)")
        self.looks_for = f"a line that trainer.line_pattern {pattern} finds"
        self.proves = f"{self.proves}; {checked_values(self.format.line_pattern or '')}"

    def lines(self, text: str) -> list[Line]:
        """Lines that the expression finds; none without one."""
        return read_pattern(text, re.compile(self.format.line_pattern)) if self.format.line_pattern else []


def _span(run: RunFolder, output: Path) -> RunSpan:
    """When the process was started, by its order or the oldest file of its folder, and when it last printed."""
    ended, began = modified(output) or 0.0, attempt_began(output)
    times = [time for time in (oldest_time(run.root), began, ended) if time is not None]
    return RunSpan(min(times), ended, None, began)
