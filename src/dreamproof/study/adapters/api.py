"""What an adapter answers about somebody's run folder: how far it is, what it keeps, what it proves."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dreamproof.base.files import file_hash
from dreamproof.base.words import duration_text
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import EvalProof, TrainProof, prove_evaluation, read_heartbeat

Series = dict[str, list[tuple[int, float]]]

# A checkpoint counts as the final one if it was written in this last part of the run.
LEAST_FRACTION = 0.98
LAST_SECONDS = 60.0
WEIGHTS = (".ckpt", ".pt", ".pth", ".npz", ".safetensors", ".msgpack", ".pkl", ".h5", ".eqx", ".zip")
NOT_WEIGHTS = ("replay", "eval_replay", "episodes", "evaluations", "buffer")
DEEPEST = 3


@dataclass(frozen=True)
class Reading:
    """How far a run is; `counters` change only while it works."""

    agent_steps: int = 0
    gradient_steps: int | None = None
    phase: str = "start"
    counters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class WeightsFile:
    """A checkpoint in a form that is never opened: only its size, its time and its hash are taken."""

    path: Path
    size_bytes: int
    modified_unix_seconds: float

    def hash(self) -> str:
        """SHA-256 of the file."""
        return file_hash(self.path)


class Adapter(Protocol):
    """One way of writing a run folder. `output` is what the process printed, where that is known."""

    name: str

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """How far training is; cheap enough to be asked every second."""
        ...

    def read_evaluation(self, run: RunFolder, output: Path | None = None) -> Reading:
        """How far an evaluation is."""
        ...

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps that survive a death: those of the newest checkpoint; told by file times where nothing else tells."""
        ...

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """When that checkpoint was written."""
        ...

    def prove_training(self, run: RunFolder, agent_steps: int, output: Path | None = None) -> TrainProof | str:
        """The proof that `agent_steps` were trained, or the reason why there is none."""
        ...

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """The proof that a condition was evaluated on the proven checkpoint, or the reason why there is none."""
        ...

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every named value over agent steps that the run wrote."""
        ...


class FolderAdapter:
    """What adapters share. Evaluations have one form whatever trained the agent: the native evaluations/*.json."""

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """When the newest checkpoint file was written."""
        weights = newest_weights(run.root)
        return weights.modified_unix_seconds if weights is not None else None

    def read_evaluation(self, run: RunFolder, output: Path | None = None) -> Reading:
        """Files written, beats and printed bytes: nothing else tells how far an evaluation is."""
        beat = read_heartbeat(run)
        counters: dict[str, float] = {"evaluation_files": _count(run.evaluations)}
        if output is not None:
            counters["output_bytes"] = size_of(output)
        if beat is None:
            return Reading(phase="evaluate", counters=counters)
        counters |= {"beat": beat.beat, "compiles": beat.compiles}
        phase = "compile" if beat.phase == "compile" else "evaluate"
        return Reading(beat.agent_steps, beat.gradient_steps, phase, counters)

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """The proof that a condition was evaluated on the proven checkpoint, or the reason why there is none."""
        return prove_evaluation(run, condition, episodes, parameter_hash)


def _count(folder: Path) -> int:
    try:
        return sum(entry.name.endswith(".json") for entry in os.scandir(folder))
    except OSError:
        return 0


def size_of(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def modified(path: Path) -> float | None:
    """When a file was last written, in Unix seconds; None where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _files(folder: Path, depth: int) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_file():
            yield entry
        elif depth > 1 and entry.is_dir() and entry.name not in NOT_WEIGHTS and not entry.name.startswith("."):
            yield from _files(Path(entry.path), depth - 1)


def newest_weights(root: Path) -> WeightsFile | None:
    """The newest file in a run folder whose name is a checkpoint's."""
    found = [
        WeightsFile(Path(entry.path), status.st_size, status.st_mtime)
        for entry in _files(root, DEEPEST)
        if entry.name.endswith(WEIGHTS) and (status := entry.stat()).st_size > 0
    ]
    return max(found, key=lambda weights: weights.modified_unix_seconds, default=None)


def written_at_end(weights: WeightsFile, started: float, ended: float) -> str | None:
    """Why a checkpoint is not the one of the last step, told by file times; None where it may be."""
    written = weights.modified_unix_seconds
    whole = ended - started
    if ended - written <= LAST_SECONDS * min(1.0, max(0.0, whole) / 600) or whole <= 0:
        return None
    fraction = max(0.0, (written - started) / whole)
    if fraction >= LEAST_FRACTION:
        return None
    before = duration_text(ended - written)
    return f"{weights.path.name} was written at {fraction:.0%} of the run, {before} before its end: not the final one"


def steps_when_written(weights: WeightsFile | None, agent_steps: int, started: float, ended: float) -> int:
    """Steps that were done when a checkpoint was written, taking the run's speed as even."""
    if weights is None:
        return 0
    if ended <= started or weights.modified_unix_seconds >= ended:
        return agent_steps
    return int(agent_steps * max(0.0, weights.modified_unix_seconds - started) / (ended - started))


def oldest_time(folder: Path) -> float | None:
    """The oldest time among a folder's own files: what was written once, when the run began."""
    try:
        times = [entry.stat().st_mtime for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        return None
    return min(times, default=None)


def not_finite(values: dict[str, float]) -> str | None:
    """The first value that is not a number, in words; None where all are."""
    for name, value in values.items():
        if not math.isfinite(value):
            return f"{name} is {value} at the end"
    return None
