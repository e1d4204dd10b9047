"""Whether the progress of a probe could be read and its end proven; if not, what was looked for and what would do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.files import read_tail
from dreamproof.base.safe_text import printable
from dreamproof.base.text import count_text, duration_text
from dreamproof.runs.layout import RunFolder
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.adapters.folders import files_below

UNREADABLE = "unreadable_progress"
NEVER_PROVEN = "never_proven"
CLIENT_LINES = (
    "no adapter knows these files; three lines make any loop readable (docs/contract.md): "
    "from dreamproof.client import Run; run = Run(); run.beat(step, updates) in the loop, "
    "run.save(step, updates, write) at the end"
)
STEP_LINE = re.compile(r"\b(step|steps|epoch|iter|iteration|update|timesteps?)\b\W{1,4}\d", re.IGNORECASE)
OURS = ("settings.json", "resolved.json", "probe.json")
MAX_NAMED = 8
# A last checkpoint that is written by a clock of seconds lies before the end by up to one interval.
END_FRACTION = 0.02
MEASURED_SECONDS = 1.0


@dataclass
class ProbeTrace:
    """What was seen of a probe while it ran, by a monotonic clock."""

    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None
    saves: set[float] = field(default_factory=set)
    """Times of checkpoints."""

    def note(self, now: float, agent_steps: int, saved: float | None) -> None:
        """Takes one look in."""
        if agent_steps > 0:
            self.first = self.first or (now, agent_steps)
            self.last = (now, agent_steps)
        if saved is not None:
            self.saves.add(saved)

    @property
    def seconds(self) -> float:
        """Time between the first and the last look with progress."""
        return self.last[0] - self.first[0] if self.first is not None and self.last is not None else 0.0

    @property
    def agent_steps_per_second(self) -> float | None:
        """Between the first and the last look with progress; None if that was too short."""
        if self.first is None or self.last is None or self.seconds < MEASURED_SECONDS:
            return None
        rate = (self.last[1] - self.first[1]) / self.seconds
        return rate if rate > 0 else None


def unreadable(adapter: Adapter, others: Sequence[Adapter], run: RunFolder, output: Path) -> list[str]:
    """Why a probe that ended well showed nothing: what was looked for, what is there, and what would read it."""
    found = [path for path in files_below(run.root) if not _is_ours(run, path)]
    names = [printable(path.relative_to(run.root).as_posix()) for path in found]
    lines = [line for line in read_tail(output).splitlines() if line.strip()]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    files = ", ".join(names[:MAX_NAMED]) + more if names else "no file"
    looked = f"adapter {adapter.name} looks for {adapter.looks_for}"
    return [
        f"it ended with exit code 0, and nothing shows its progress: {looked}",
        f"found: {files}; {count_text(len(lines), 'line')} of output",
        _advice(adapter, others, run, output, lines),
    ]


def _is_ours(run: RunFolder, path: Path) -> bool:
    return path.name in OURS or path == run.lock or path.is_relative_to(run.root / "attempt")


def _advice(adapter: Adapter, others: Sequence[Adapter], run: RunFolder, output: Path, lines: list[str]) -> str:
    fits = [one for one in others if one.name != adapter.name and not isinstance(one, AutoAdapter)]
    chosen = next((one for one in fits if one.read(run, output).agent_steps > 0), None)
    if chosen is not None:
        return f"write 'adapter: {chosen.name}' under trainer (or 'adapter: auto'): it proves {chosen.proves}"
    line = next((line for line in reversed(lines) if STEP_LINE.search(line)), None)
    if line is not None:
        word = STEP_LINE.search(line)
        name = word[1] if word is not None else "step"
        pattern = f"line_pattern: '{name}\\W+(?P<step>[0-9]+)'"
        shown = printable(line.strip()[:80])
        return f"its line '{shown}' can be read with {pattern} and adapter: auto under trainer"
    return CLIENT_LINES


def save_warnings(adapter: Adapter, run: RunFolder, agent_steps: int, trace: ProbeTrace) -> list[str]:
    """A warning if checkpoints are written by a clock of seconds that does not fit the length of a whole run."""
    interval, rate = adapter.save_seconds(run), trace.agent_steps_per_second
    if interval is None or rate is None:
        return []
    whole = agent_steps / rate
    if interval <= END_FRACTION * whole:
        return []
    lost = "only the first one would be saved" if interval >= whole else "the last one would be far from the end"
    every, often = duration_text(interval), max(1, int(END_FRACTION * whole))
    length = f"checkpoints are written every {every} (save_every counts seconds), a run takes {duration_text(whole)}"
    return [f"{length}: {lost}; save at the end, or every {often} s"]


def end_warning(adapter: Adapter, run: RunFolder, agent_steps: int, output: Path) -> str | None:
    """Why the end of a probe that trained to its own last step could not be proven; None if it is."""
    found = adapter.prove_training(run, agent_steps, output)
    return str(found) if isinstance(found, str) else None
