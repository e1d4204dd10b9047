"""What an adapter answers about a run folder: its progress, what it keeps, what it proves."""

import itertools
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dreamproof.base.files import MAX_INT, FaultKind, Unreadable, file_fault
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import EvalProof, NotFinite, TrainProof, changed_file, load_heartbeat, prove_evaluation
from dreamproof.study.adapters.checkpoints import checkpoint_hash, newest_save
from dreamproof.study.adapters.folders import attempt_began, entries, modified, size_of

Series = dict[str, list[tuple[int, float]]]


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
class TrainerFormat:
    """What a study declares about the files of a foreign trainer."""

    step_key: str | None = None
    """The key, column or tag that counts steps."""
    line_pattern: str | None = None
    """A regular expression over printed lines, with a group named `step`."""
    steps_per_count: float = 1.0
    """Agent steps for one count of the trainer's own."""

    def agent_steps(self, count: float) -> int:
        """Agent steps from the trainer's own count."""
        return round(count * self.steps_per_count)


class Adapter(Protocol):
    """One way of writing a run folder. `output` is what the process printed, if that is known."""

    name: str
    dumps_stacks: bool
    """Whether the trainer prints its stacks on SIGUSR1."""
    looks_for: str
    """The files and lines that it reads, for people."""
    proves: str
    """What it can prove, and from what, for people."""

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
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

    def began_agent_steps(self, run: RunFolder, output: Path) -> int | None:
        """The step at which the attempt that prints to `output` began; None if its log does not show it."""
        ...

    def save_seconds(self, run: RunFolder) -> float | None:
        """Seconds between two checkpoints where the trainer's own settings name them; else None."""
        ...

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """The proof that `agent_steps` were trained, or the reason why there is none; `task` where records name it."""
        ...

    def prove_resumed(self, run: RunFolder, agent_steps: int, output: Path) -> TrainProof | str | None:
        """The same of a run that was resumed at its end and exited with 0 without showing progress.

        `output` is that of the last attempt that showed some; None if nothing is proven in this way.
        """
        ...

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """The proof that a condition was evaluated on the proven checkpoint, or the reason why there is none."""
        ...

    def checkpoint_root(self, run: RunFolder) -> Path:
        """The folder that the checkpoint names of proofs are relative to."""
        ...

    def lost_proof(self, run: RunFolder, proof: TrainProof, with_weights: bool = False) -> Unreadable | None:
        """What a proof cannot stand without and is gone, changed or cannot be read, at a quick look.

        Weights beside a record may be gone, unless they are still needed.
        """
        ...

    def changed_proof(self, run: RunFolder, proof: TrainProof, check_content: bool) -> Unreadable | None:
        """What is there in the place of the proven checkpoint and is another one; what is gone is no change.

        `check_content` reads all of it, which takes long for large networks.
        """
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

    def growing_log(self, run: RunFolder) -> tuple[Path, str] | None:
        """The file of JSON lines that `results` reads and that only grows, and its key of agent steps; else None."""
        ...

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """The newest value of everything in the last lines of its log; none if only a whole log shows them."""
        ...


class FolderAdapter:
    """What adapters share. Evaluations have one form whatever trained the agent: the native evaluations/*.json."""

    dumps_stacks = False

    def __init__(self, trainer_format: TrainerFormat | None = None) -> None:
        self.format = trainer_format or TrainerFormat()

    def change_stamp(self, run: RunFolder) -> tuple[int, int] | None:
        """None: progress is found by reading."""
        return None

    def growing_log(self, run: RunFolder) -> tuple[Path, str] | None:
        """None: results are read as a whole."""
        return None

    def checkpoint_root(self, run: RunFolder) -> Path:
        """The run folder itself."""
        return run.root

    def lost_proof(self, run: RunFolder, proof: TrainProof, with_weights: bool = False) -> Unreadable | None:
        """The checkpoint itself, a file or a folder."""
        place = self.checkpoint_root(run) / proof.checkpoint
        return None if os.path.isdir(place) else changed_file(place, proof.proof_bytes)

    def changed_proof(self, run: RunFolder, proof: TrainProof, check_content: bool) -> Unreadable | None:
        """A checkpoint with another content; nothing without `check_content`."""
        place = self.checkpoint_root(run) / proof.checkpoint
        if not check_content or not os.path.lexists(place):
            return None
        found = checkpoint_hash(place)
        if isinstance(found, Unreadable) or found == proof.parameter_hash:
            return None
        return Unreadable(place, "is not the proven one (hash differs)", FaultKind.MALFORMED)

    def faulty_checkpoint(self, run: RunFolder) -> tuple[CheckpointFolder, Unreadable] | None:
        """None: a foreign checkpoint is never opened."""
        return None

    def proof_fault(self, run: RunFolder, proof: TrainProof, check_content: bool = True) -> str | None:
        """Compares the content of the checkpoint, not its time: evaluations may write files later."""
        path = run.root / proof.checkpoint
        if not os.path.lexists(path):
            return f"checkpoint {path.name} is gone"
        found = checkpoint_hash(path) if check_content else None if os.path.isdir(path) else file_fault(path)
        if isinstance(found, Unreadable):
            return f"checkpoint {found}"
        if check_content and found != proof.parameter_hash:
            return f"checkpoint {path.name} is not the proven one (hash differs)"
        return None

    def code_hash(self, run: RunFolder, checkpoint: str) -> str | None:
        """None: foreign checkpoints hold no record."""
        return None

    def kept_unix_seconds(self, run: RunFolder) -> float | None:
        """When the newest checkpoint was written."""
        return newest_save(run.root)

    def began_agent_steps(self, run: RunFolder, output: Path) -> int | None:
        """None: a log that is continued does not show where an attempt began."""
        return None

    def save_seconds(self, run: RunFolder) -> float | None:
        """None: not known from files."""
        return None

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """Nothing: not known without reading a whole log."""
        return {}

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

    def prove_resumed(self, run: RunFolder, agent_steps: int, output: Path) -> TrainProof | str | None:
        """None: files show progress whoever wrote them."""
        return None

    def prove_evaluation(self, run: RunFolder, condition: str, episodes: int, parameter_hash: str) -> EvalProof | str:
        """The proof that a condition was evaluated on the proven checkpoint, or the reason why there is none."""
        return prove_evaluation(run, condition, episodes, parameter_hash)


def worth_naming(fault: Unreadable) -> Unreadable | None:
    """A fault that a person should know of; a file that is not there yet is none."""
    return None if fault.fault is FaultKind.ABSENT else fault


def _count(folder: Path) -> int:
    return sum(entry.name.endswith(".json") for entry in entries(folder))


def step_count(value: object) -> int | None:
    """A number of a log as a count of steps; None if it is none: a text, NaN, infinite, negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value <= MAX_INT else None


def first_step(path: Path, steps: list[int], output: Path) -> int | None:
    """Where a log begins that an attempt wrote from its start: one distance between two rows before its first row."""
    ordered = sorted(set(steps))
    written, began = modified(path), attempt_began(output)
    if len(ordered) < 2 or written is None or began is None or written < began:
        return None
    return max(0, ordered[0] - min(after - before for before, after in itertools.pairwise(ordered)))


def not_finite(values: dict[str, float]) -> NotFinite | None:
    """The first value that is not a number, as text; None if all are."""
    for name, value in values.items():
        if not math.isfinite(value):
            return NotFinite(f"{name} is {value} at the end")
    return None
