"""What an adapter answers about a run folder: its progress, what it keeps, what it proves."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dreamproof.base.files import MAX_INT, FaultKind, Unreadable, content_hash, file_fault, list_folder
from dreamproof.base.safe_text import printable
from dreamproof.base.text import duration_text
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import EvalProof, TrainProof, load_heartbeat, prove_evaluation

Series = dict[str, list[tuple[int, float]]]

# A checkpoint counts as the final one if it was written in this last part of the run.
MIN_FRACTION = 0.98
LAST_SECONDS = 60.0
WEIGHTS = (".ckpt", ".pt", ".pth", ".npz", ".safetensors", ".msgpack", ".pkl", ".h5", ".eqx", ".zip")
NOT_WEIGHTS = ("replay", "eval_replay", "episodes", "evaluations", "buffer")
MAX_DEPTH = 3


@dataclass(frozen=True)
class Reading:
    """How far a run is; `counters` change only while it works."""

    agent_steps: int = 0
    gradient_steps: int | None = None
    phase: str = "start"
    counters: dict[str, float] = field(default_factory=dict)
    fault: Unreadable | None = None
    """A file that is there and whose content cannot be taken."""


@dataclass(frozen=True)
class WeightsFile:
    """A checkpoint in a form that is never opened: only its size, its time and its hash are taken."""

    path: Path
    size_bytes: int
    modified_unix_seconds: float


class Adapter(Protocol):
    """One way of writing a run folder. `output` is what the process printed, if that is known."""

    name: str
    dumps_stacks: bool
    """Whether the trainer prints its stacks on SIGUSR1."""

    def matches(self, run: RunFolder) -> bool:
        """Whether a run folder holds the files that this adapter reads."""
        ...

    def change_stamp(self, run: RunFolder) -> tuple[int, int] | None:
        """Changes with every progress of training; None if only reading shows it."""
        ...

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """How far training is; cheap enough to be asked every second."""
        ...

    def read_evaluation(self, run: RunFolder, output: Path | None = None) -> Reading:
        """How far an evaluation is."""
        ...

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps that survive a death: those of the newest checkpoint; by file times if nothing else shows it."""
        ...

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """When that checkpoint was written."""
        ...

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """The proof that `agent_steps` were trained, or the reason why there is none; `task` where records name it."""
        ...

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """The proof that a condition was evaluated on the proven checkpoint, or the reason why there is none."""
        ...

    def checkpoint_root(self, run: RunFolder) -> Path:
        """The folder that the checkpoint names of proofs are relative to."""
        ...

    def faulty_checkpoint(self, run: RunFolder) -> tuple[CheckpointFolder, Unreadable] | None:
        """The newest checkpoint and its fault; None if it is good, or if checkpoints cannot be checked."""
        ...

    def proof_fault(self, run: RunFolder, proof: TrainProof, check_content: bool = True) -> str | None:
        """Why the proof of a cell no longer holds on disk; None if it does."""
        ...

    def code_hash(self, run: RunFolder, checkpoint: str) -> str | None:
        """The hash of the code that trained a checkpoint; None if it is not recorded."""
        ...

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every named value over agent steps that the run wrote."""
        ...


class FolderAdapter:
    """What adapters share. Evaluations have one form whatever trained the agent: the native evaluations/*.json."""

    dumps_stacks = False

    def change_stamp(self, run: RunFolder) -> tuple[int, int] | None:
        """None: progress is found by reading."""
        return None

    def checkpoint_root(self, run: RunFolder) -> Path:
        """The run folder itself."""
        return run.root

    def faulty_checkpoint(self, run: RunFolder) -> tuple[CheckpointFolder, Unreadable] | None:
        """None: a weights file is never opened."""
        return None

    def proof_fault(self, run: RunFolder, proof: TrainProof, check_content: bool = True) -> str | None:
        """Compares the content of the weights file, not its time: evaluations may write files later."""
        path = run.root / proof.checkpoint
        if not os.path.lexists(path):
            return f"checkpoint {path.name} is gone"
        found = content_hash(path) if check_content else file_fault(path)
        if isinstance(found, Unreadable):
            return f"checkpoint {found}"
        if check_content and found != proof.parameter_hash:
            return f"checkpoint {path.name} is not the proven one (hash differs)"
        return None

    def code_hash(self, run: RunFolder, checkpoint: str) -> str | None:
        """None: weights files hold no record."""
        return None

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """When the newest checkpoint file was written."""
        weights = newest_weights(run.root)
        return weights.modified_unix_seconds if weights is not None else None

    def read_evaluation(self, run: RunFolder, output: Path | None = None) -> Reading:
        """Files written, beats and printed bytes: nothing else shows how far an evaluation is."""
        beat = load_heartbeat(run)
        counters: dict[str, float] = {"evaluation_files": _count(run.evaluations)}
        if output is not None:
            counters["output_bytes"] = size_of(output)
        if isinstance(beat, Unreadable):
            return Reading(phase="evaluate", counters=counters, fault=worth_naming(beat))
        counters |= {"beat": beat.beat, "compiles": beat.compiles}
        phase = "compile" if beat.phase == "compile" else "evaluate"
        return Reading(beat.agent_steps, beat.gradient_steps, phase, counters)

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """The proof that a condition was evaluated on the proven checkpoint, or the reason why there is none."""
        return prove_evaluation(run, condition, episodes, parameter_hash)


def worth_naming(fault: Unreadable) -> Unreadable | None:
    """A fault that a person should know of; a file that is not there yet is none."""
    return None if fault.fault is FaultKind.ABSENT else fault


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder; empty if it cannot be read."""
    found = list_folder(folder)
    return [] if isinstance(found, Unreadable) else found


def _count(folder: Path) -> int:
    return sum(entry.name.endswith(".json") for entry in entries(folder))


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def modified(path: Path) -> float | None:
    """When a file was last written, in Unix seconds; None if there is none."""
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return None


def newest_file(root: Path, *endings: str) -> Path | None:
    """The file of a folder whose name ends so and that was written last."""
    found = [
        (modified(path) or 0.0, path)
        for entry in entries(root)
        if entry.name.endswith(endings) and os.path.isfile(path := Path(entry.path))
    ]
    return max(found)[1] if found else None


def _files(folder: Path, depth: int) -> Iterator[os.DirEntry[str]]:
    for entry in entries(folder):
        if os.path.isfile(entry.path):
            yield entry
        elif depth > 1 and os.path.isdir(entry.path) and entry.name not in NOT_WEIGHTS and entry.name[0] != ".":
            yield from _files(Path(entry.path), depth - 1)


def newest_weights(root: Path) -> WeightsFile | None:
    """The newest file in a run folder whose name is a checkpoint's."""
    found = [
        WeightsFile(path, size_of(path), modified(path) or 0.0)
        for entry in _files(root, MAX_DEPTH)
        if entry.name.endswith(WEIGHTS) and size_of(path := Path(entry.path)) > 0
    ]
    return max(found, key=lambda weights: weights.modified_unix_seconds, default=None)


def prove_by_weights(
    run: RunFolder, agent_steps: int, gradient_steps: int, span: tuple[float, float]
) -> TrainProof | str:
    """The last part of a proof that rests on a file that is never opened: it was written at the end of the run."""
    weights = newest_weights(run.root)
    if weights is None:
        return "no checkpoint file"
    early = written_at_end(weights, *span)
    if early is not None:
        return early
    name = weights.path.relative_to(run.root).as_posix()
    if name != printable(name):
        return f"its checkpoint file has a name that is not UTF-8: {printable(name)}"
    digest = content_hash(weights.path)
    if isinstance(digest, Unreadable):
        return f"its checkpoint file {digest}"
    return TrainProof(agent_steps, gradient_steps, digest, name)


def written_at_end(weights: WeightsFile, started: float, ended: float) -> str | None:
    """Why a checkpoint is not the one of the last step, by file times; None if it may be."""
    written = weights.modified_unix_seconds
    whole = ended - started
    if ended - written <= LAST_SECONDS * min(1.0, max(0.0, whole) / 600) or whole <= 0:
        return None
    fraction = max(0.0, (written - started) / whole)
    if fraction >= MIN_FRACTION:
        return None
    name, before = printable(weights.path.name), duration_text(ended - written)
    return f"{name} was written at {fraction:.0%} of the run, {before} before its end: not the final one"


def steps_when_written(weights: WeightsFile | None, agent_steps: int, started: float, ended: float) -> int:
    """Steps that were done when a checkpoint was written, taking the run's speed as even."""
    if weights is None:
        return 0
    if ended <= started or weights.modified_unix_seconds >= ended:
        return agent_steps
    return int(agent_steps * max(0.0, weights.modified_unix_seconds - started) / (ended - started))


def oldest_time(folder: Path) -> float | None:
    """The oldest time among a folder's own files: what was written once, when the run began."""
    return min(file_times(folder), default=None)


def file_times(folder: Path) -> list[float]:
    """When each of a folder's own files was last written."""
    paths = [Path(entry.path) for entry in entries(folder) if os.path.isfile(entry.path)]
    return [time for path in paths if (time := modified(path)) is not None]


def step_count(value: object) -> int | None:
    """A number of a log as a count of steps; None if it is none: a text, NaN, infinite, negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value <= MAX_INT else None


def not_finite(values: dict[str, float]) -> str | None:
    """The first value that is not a number, as text; None if all are."""
    for name, value in values.items():
        if not math.isfinite(value):
            return f"{name} is {value} at the end"
    return None
