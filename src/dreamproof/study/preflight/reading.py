"""Whether the progress of a probe could be read and its end proven; if not, what was looked for and what would do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamproof.base.files import canonical_json, read_json, read_tail, real_path
from dreamproof.base.safe_text import printable
from dreamproof.base.text import count_text, duration_text
from dreamproof.runs.layout import AttemptFolder, RunFolder
from dreamproof.runs.reader import NotSaved
from dreamproof.study.adapters.api import Adapter, step_count
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.adapters.checkpoints import newest_save
from dreamproof.study.adapters.folders import attempt_began, files_below, modified
from dreamproof.study.adapters.printed import checked_values
from dreamproof.study.adapters.rows import CSV_ENDINGS, TAIL_BYTES, latest_values, table_rows

UNREADABLE = "unreadable_progress"
NEVER_PROVEN = "never_proven"
CLIENT_LINES = (
    "no adapter knows these files; three lines make any loop readable (docs/contract.md): "
    "from dreamproof.client import Run; run = Run(); run.beat(step, updates) in the loop, "
    "run.save(step, updates, write) at the end"
)
STEP_LINE = re.compile(r"\b(step|steps|epoch|iter|iteration|update|timesteps?)\b\W{1,4}\d", re.IGNORECASE)
COUNTED = re.compile(r"\b([A-Za-z][A-Za-z0-9_]*)\b\W{1,40}?(\d{1,3}(?:,\d{3})+|\d{1,15})(?![\d.])")
NAMED = re.compile(
    r"\b([A-Za-z][\w/]{0,40})\b[^\w,;]{1,40}?(-?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf))(?![\w:/])",
    re.IGNORECASE | re.ASCII,
)
STEP_GROUPS = {"step", "total"}
STEP_WORD = re.compile(r"step|frame|interact|sample", re.IGNORECASE)
RATIO = re.compile(r"(?<![\d./])(\d{1,12})/(\d{1,12})(?![\d/])")
OURS = ("settings.json", "resolved.json", "probe.json")
MAX_NAMED = 8
MAX_VALUES = 6
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
    lines = [line for line in re.split(r"[\n\r]+", read_tail(output)) if line.strip()]
    looked = f"adapter {adapter.name} looks for {adapter.looks_for}"
    advice = _advice(adapter, others, run, output, lines), _place_advice(run, output, found)
    return [
        f"it ended with exit code 0, and nothing shows its progress: {looked}",
        f"found: {_listed(run.root, found)}; {count_text(len(lines), 'line')} of output",
        "; ".join(filter(None, advice)) or CLIENT_LINES,
    ]


def _is_ours(run: RunFolder, path: Path) -> bool:
    return path.name in OURS or path == run.lock or path.is_relative_to(run.root / "attempt")


def _listed(root: Path, found: list[Path]) -> str:
    names = [printable(path.relative_to(root).as_posix()) for path in found]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more if names else "no file"


def _advice(adapter: Adapter, others: Sequence[Adapter], run: RunFolder, output: Path, lines: list[str]) -> str | None:
    fits = [one for one in others if one.name != adapter.name and not isinstance(one, AutoAdapter)]
    chosen = next((one for one in fits if one.read(run, output).agent_steps > 0), None)
    if chosen is not None:
        return f"write 'adapter: {chosen.name}' under trainer (or 'adapter: auto'): it proves {chosen.proves}"
    given = read_json(run.settings)
    agent_steps = step_count(given.get("agent_steps")) or 0 if isinstance(given, dict) else 0
    key = _counting_key(run, agent_steps)
    if key is not None:
        return f"write 'adapter: auto' and 'step_key: {key}' under trainer: its last value is the probe's length"
    return _line_advice(lines, agent_steps)


def _counting_key(run: RunFolder, agent_steps: int) -> str | None:
    """The key of a table whose last value is the length of the probe, up to a rollout; None if none is."""
    near: dict[str, float] = {}
    for path in files_below(run.root):
        rows = table_rows(path, TAIL_BYTES) if path.name.endswith((".jsonl", *CSV_ENDINGS)) else []
        near |= {key: value for key, value in latest_values(rows).items() if agent_steps <= value < 2 * agent_steps}
    return printable(min(near, key=lambda key: near[key])) if near else None


def _line_advice(lines: list[str], agent_steps: int) -> str | None:
    """An expression for the last line in which a number counts the probe's steps, else one after a usual word."""
    for line in reversed(lines):
        counted = [(found[1], int(found[2].replace(",", ""))) for found in COUNTED.finditer(line)]
        fits = [word for word, count in counted if count == agent_steps]
        fits += [word for word, count in counted if STEP_WORD.search(word) and agent_steps <= count < 2 * agent_steps]
        if fits:
            return _line_text(line, fits[0])
        if (ratio := RATIO.search(line)) is not None and int(ratio[2]) > 0:
            return _pattern_text(line, "(?P<step>[0-9]+)/(?P<total>[0-9]+)")
    usual = ((line, found[1]) for line in reversed(lines) if (found := STEP_LINE.search(line)) is not None)
    return next((_line_text(line, word) for line, word in usual), None)


def _line_text(line: str, word: str) -> str:
    return _pattern_text(line, f"{word}\\W+(?P<step>[0-9,]+)")


def _pattern_text(line: str, step: str) -> str:
    shown, pattern = printable(line.strip()[:80]), _with_values(line, step)
    read = f"its line '{shown}' can be read with line_pattern: '{pattern}' and adapter: auto under trainer"
    return f"{read} ({checked_values(pattern)})"


def _with_values(line: str, step: str) -> str:
    """An expression for the step, with a group for every number that has a name; a line without one is found too."""
    counted = re.search(step, line)
    if counted is None:
        return step
    named = {_group(found[1]): found for found in NAMED.finditer(line) if not STEP_GROUPS & {_group(found[1])}}
    groups = {name: f"\\b{found[1]}\\W+?(?P<{name}>[-+.,\\w]+)" for name, found in named.items()}
    before = [groups[name] for name, found in named.items() if found.end() <= counted.start()][-MAX_VALUES:]
    after = [groups[name] for name, found in named.items() if found.start() >= counted.end()]
    left = max(0, MAX_VALUES - len(before))
    return "".join([*(f"(?:{one}.*?)?" for one in before), step, *(f"(?:.*?{one})?" for one in after[:left])])


def _group(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _place_advice(run: RunFolder, output: Path, found: list[Path]) -> str | None:
    """That a trainer wrote nothing into its run folder, where it wrote instead, and how it gets to know the folder."""
    if found:
        return None
    elsewhere = _written_elsewhere(run, output)
    wrote = f" ({elsewhere})" if elsewhere is not None else ""
    nothing = f"nothing was written into its run folder{wrote}"
    if str(run.root) in canonical_json(_order(output).get("commands")):
        return f"{nothing}, which its command names: let the script write its progress there"
    return (
        f"{nothing}: name the folder in its command, e.g. --logdir {{run_dir}}, or hydra.run.dir={{run_dir}} for Hydra"
    )


def _order(output: Path) -> dict[str, Any]:
    """What the probe was started with; empty if that cannot be read."""
    order = read_json(AttemptFolder(output.parent).order)
    return order if isinstance(order, dict) else {}


def _written_elsewhere(run: RunFolder, output: Path) -> str | None:
    """What a probe wrote into its working folder; None if it wrote nothing there."""
    began, working_folder = attempt_began(output), _order(output).get("working_folder")
    if began is None or working_folder is None:
        return None
    where = Path(working_folder)
    recent = [path for path in files_below(where) if (modified(path) or 0.0) >= began]
    study = real_path(run.root.parent.parent)
    found = [path for path in recent if not real_path(path).is_relative_to(study)]
    return f"it wrote {_listed(where, found)} in {where}" if found else None


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
    if not isinstance(found, str):
        return None
    cure = _count_advice(adapter, run, agent_steps, output)
    if isinstance(found, NotSaved) and newest_save(run.root) is None:
        elsewhere = _written_elsewhere(run, output)
        cure = f"{elsewhere}: save into {{run_dir}}" if elsewhere is not None else None
    return f"{found}; {cure}" if cure is not None and "steps_per_count" not in found else str(found)


def _count_advice(adapter: Adapter, run: RunFolder, agent_steps: int, output: Path) -> str | None:
    """What makes a count that ended far below the probe's length one of agent steps."""
    reached = adapter.read(run, output).agent_steps
    if not 0 < reached <= agent_steps / 2:
        return None
    key = _counting_key(run, agent_steps)
    if key is not None:
        return f"write 'step_key: {key}' under trainer: its last value is the probe's length"
    return f"write 'steps_per_count: {agent_steps / reached:g}' under trainer if one count is so many agent steps"
