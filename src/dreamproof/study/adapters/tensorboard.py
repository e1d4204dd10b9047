"""TensorBoard event files, read by TensorBoard's own reader, which the extra `tensorboard` brings."""

import importlib.util
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series, first_step, not_finite
from dreamproof.study.adapters.checkpoints import RunSpan, Steps, Updates, kept_steps, newest_save, prove_by_checkpoint
from dreamproof.study.adapters.folders import attempt_began, files_below, modified, size_of
from dreamproof.study.adapters.rows import TRAINING_KEY, UPDATE_KEY

EVENTS = re.compile(r"\.tfevents\.(\d{1,12})")
INSTALL = "pip install 'dreamproof[tensorboard]'"


def is_installed() -> bool:
    """Whether TensorBoard's reader can be imported."""
    return importlib.util.find_spec("tensorboard") is not None


def require_reader() -> None:
    """Raises BadInput with the install line if TensorBoard's reader is not there."""
    if not is_installed():
        raise BadInput("TensorBoard event files need TensorBoard's reader, which is not installed", INSTALL)


@dataclass
class EventFile:
    """One event file and the scalars read from it so far; the reader continues where it stopped."""

    path: Path
    scalars: Series = field(default_factory=dict)
    first_unix_seconds: float = math.inf
    last_unix_seconds: float = 0.0
    reader: Any = None

    def load(self) -> None:
        """Reads what was written since."""
        for tag, step, value, wall_seconds in self._events():
            self.scalars.setdefault(tag, []).append((step, value))
            self.first_unix_seconds = min(self.first_unix_seconds, wall_seconds)
            self.last_unix_seconds = max(self.last_unix_seconds, wall_seconds)

    def _events(self) -> Iterator[tuple[str, int, float, float]]:
        require_reader()
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray

        self.reader = self.reader or EventFileLoader(str(self.path))
        try:
            for event in self.reader.Load():
                for value in event.summary.value:
                    if value.metadata.plugin_data.plugin_name == "scalars":
                        number = make_ndarray(value.tensor)
                        yield value.tag, int(event.step), float(number.item()), float(event.wall_time)
        except Exception:  # noqa: BLE001  a file may hold anything; what was read before its fault counts
            return

    def steps(self, tag: str | None) -> int:
        """The highest step of a tag, or of all."""
        tags = [tag] if tag is not None else list(self.scalars)
        return max((step for name in tags for step, _ in self.scalars.get(name, [])), default=0)


_OPEN: dict[Path, EventFile] = {}
MAX_OPEN = 256


def event_files(root: Path) -> list[Path]:
    """Event files below a run folder, oldest first by the time in their names."""
    found = [(int(name[1]), path) for path in files_below(root) if (name := EVENTS.search(path.name))]
    return [path for _, path in sorted(found)]


def read_events(path: Path) -> EventFile:
    """An event file with everything written so far."""
    known = _OPEN.get(path)
    if known is None:
        if len(_OPEN) >= MAX_OPEN:
            _OPEN.pop(next(iter(_OPEN)))
        known = _OPEN[path] = EventFile(path)
    known.load()
    return known


class TensorboardAdapter(FolderAdapter):
    """Reads scalars of event files; a resumed run writes another file, whose steps count."""

    name = "tensorboard"
    looks_for = "events.out.tfevents.* with scalars (steps of all tags, or of the tag declared as step_key)"
    proves = (
        "steps by the last scalar, updates and finite values by losses and gradients, the run's length by the clock in "
        "the events, and the final checkpoint by the step in its name or content, else by when it was written"
    )

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether there is an event file."""
        return bool(event_files(run.root))

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The steps of the newest event file."""
        files, saved = event_files(run.root), newest_save(run.root)
        counters: dict[str, float] = {"checkpoint_time": saved} if saved is not None else {}
        steps = self._steps(read_events(files[-1])) if files else 0
        if not steps:
            return Reading(counters=counters)
        counters |= {"agent_steps": steps, "event_bytes": sum(map(size_of, files))}
        return Reading(steps, None, "train", counters)

    def _steps(self, events: EventFile) -> int:
        return self.format.agent_steps(events.steps(self.format.step_key))

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps of the newest checkpoint, by its name or content, else by the clock in the events."""
        files = [read_events(path) for path in event_files(run.root)]
        if not files:
            return kept_steps(run.root)
        return kept_steps(run.root, self._steps(files[-1]), _span(files, output))

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """Steps reached, an update seen, finite values, and a checkpoint of the end."""
        files = [read_events(path) for path in event_files(run.root)]
        if not files:
            return "no event file (events.out.tfevents.*)"
        reached = self._steps(files[-1])
        if reached < agent_steps:
            return f"its event files end at {reached:,} of {agent_steps:,} agent steps"
        fault = not_finite(
            {tag: values[-1][1] for tag, values in files[-1].scalars.items() if TRAINING_KEY.search(tag)}
        )
        if fault is not None:
            return fault
        span = _span(files, output)
        return prove_by_checkpoint(run.root, run.root, Steps(agent_steps, reached), _updates(files), span)

    def began_agent_steps(self, run: RunFolder, output: Path) -> int | None:
        """By the newest event file, as every start writes its own."""
        files = event_files(run.root)
        if not files:
            return None
        scalars = read_events(files[-1]).scalars
        tags = [self.format.step_key] if self.format.step_key is not None else list(scalars)
        steps = [self.format.agent_steps(step) for tag in tags for step, _ in scalars.get(tag, [])]
        return first_step(files[-1], steps, output)

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """The last point of every scalar in the newest event file, which `read` keeps open."""
        files = event_files(run.root)
        return {tag: values[-1][1] for tag, values in read_events(files[-1]).scalars.items()} if files else {}

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every scalar over agent steps."""
        series: Series = {}
        for events in map(read_events, event_files(run.root)):
            for tag, values in events.scalars.items():
                scaled = [(self.format.agent_steps(step), value) for step, value in values]
                series.setdefault(tag, []).extend(scaled)
        return series


def _updates(files: list[EventFile]) -> Updates:
    """Updates that a tag counts; else the points of losses and gradients, which is a lower bound."""
    scalars = [(tag, values) for events in files for tag, values in events.scalars.items()]
    counted = [values[-1][1] for tag, values in scalars if UPDATE_KEY.search(tag) and math.isfinite(values[-1][1])]
    if counted:
        return Updates(int(max(counted)))
    shown = max((len(values) for tag, values in scalars if TRAINING_KEY.search(tag)), default=0)
    return Updates(shown, is_counted=False)


def _span(files: list[EventFile], output: Path | None) -> RunSpan:
    """The length by the clock in the events, ending when the last file was written."""
    first = min(events.first_unix_seconds for events in files)
    last = max(events.last_unix_seconds for events in files)
    written = max(modified(events.path) or 0.0 for events in files)
    recorded = max(0.0, last - first) if math.isfinite(first) else 0.0
    return RunSpan(written - recorded, written, recorded or None, attempt_began(output), last or None)
