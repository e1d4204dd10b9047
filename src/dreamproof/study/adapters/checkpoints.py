"""Checkpoints of other people's trainers: which there are, of which step, and whether one holds the end of a run.

None is ever loaded. Steps come from names and from the few contents that can be read without running them: the JSON in
an archive of stable-baselines3, and the opcodes of a pickle, which are listed and not executed.
"""

import hashlib
import io
import os
import pickletools
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from dreamproof.base.files import MAX_INT, FaultKind, Unreadable, content_hash, open_regular, parse_json
from dreamproof.base.safe_text import printable
from dreamproof.base.text import duration_text
from dreamproof.runs.reader import NotSaved, TrainProof, size_of_file
from dreamproof.study.adapters.folders import CLOCK_SECONDS, files_below, head_of, modified, size_of

WEIGHTS = (
    ".ckpt", ".pt", ".pth", ".pth.tar", ".npz", ".safetensors", ".msgpack", ".pkl", ".pickle", ".h5", ".keras", ".eqx",
    ".onnx", ".zip", ".bin",
)  # fmt: skip
# Files of Orbax, of TensorFlow and of Flax have no such ending.
WEIGHT_NAME = re.compile(r"_(?:checkpoint_)?metadata|.+\.data-\d{5}-of-\d{5}|(?:checkpoint|ckpt)[-_]?\d+")
ORBAX = ("_checkpoint_metadata", "_metadata")
SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
# Words in the names of files that hold no weights, and those of files that hold none if nothing else is named.
NOT_WEIGHTS = {
    "args", "buffer", "config", "dataset", "episodes", "evaluations", "history", "hparams", "metrics", "replay",
    "results", "scores", "trajectories", "vecnormalize", "normalize",
}  # fmt: skip
STATE_ONLY = {"opt", "optim", "optimizer", "optimiser", "scheduler", "rng"}
# Where the part of an agent that acts has a file of its own, a proof is about it and not about the others.
ACTING = {"actor", "policy"}
SECONDARY = {"critic", "critics", "value", "vf", "qf", "q", "discriminator", "alpha"}
WORD = re.compile(r"[a-z]+")
# A checkpoint without a step counts as the final one if it was written in this last part of the run.
MIN_FRACTION = 0.98
LAST_SECONDS = 60.0
LONG_SECONDS = 600.0
# A process may take this long from its last save to its end, which is much of a run of seconds.
EXIT_SECONDS = 1.0
# Files whose times span less than this part of the time that their contents name were copied without their times.
COPIED_FRACTION = 0.5
AGREEING_SECONDS = 5.0
HEAD_BYTES = 1 << 16
PICKLE = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
BOOKKEEPING = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "MARK")
PLAIN_VALUES = (
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "SHORT_BINUNICODE", "BINUNICODE", "UNICODE",
)  # fmt: skip
JSON_BYTES = 16 << 20

STEP_WORD = r"(?:global|env|agent|total|time)?[-_ ]?steps?"
NAMED_STEP = re.compile(
    rf"(?:(?<![0-9])(\d{{1,15}})([kKmM])?[-_ ]?{STEP_WORD}(?!=|(?<!s)[-_ ]\d)|{STEP_WORD}[-_= ]?(\d{{1,15}})([kKmM])?)"
    r"(?![A-Za-z0-9])"
)
NUMBER = re.compile(r"(?<![0-9])(\d{1,15})(?![0-9])")
STAMP = re.compile(r"\d{8}[-_T]\d{6}(?:F\d+)?")
NUMBERED_FOLDER = re.compile(r"(?:checkpoint|ckpt|step|global_step|iter|iteration|model|epoch)[-_]?\d+(?:[-_]?steps)?")
FOLDER_OF_FOLDERS = re.compile(r"(?:checkpoint|ckpt|model|weight|save)s?|saved_models", re.IGNORECASE)
UNFINISHED = re.compile(r"orbax-checkpoint-tmp|\.tmp$")
SUFFIX = {"k": 1_000, "m": 1_000_000}


@dataclass(frozen=True)
class Checkpoint:
    """A file, or a folder of files that belong together; only its names, times and hash are taken."""

    path: Path
    modified_unix_seconds: float
    agent_steps: int | None = None
    """As its name or content shows; None if neither does."""
    gradient_steps: int | None = None
    number: int | None = None
    """A number in its name that need not count steps: it can confirm a step, not deny it."""


@dataclass(frozen=True)
class RunSpan:
    """When a run began and last wrote, in Unix seconds."""

    started: float
    ended: float
    recorded_seconds: float | None = None
    """How long it took according to what its files say."""
    attempt_began: float | None = None
    """When the attempt began that ran here: files that were written since have true times."""
    last_clock: float | None = None
    """The last time that the log itself names, in Unix seconds: a file time that agrees with it is true."""
    file_times: tuple[float, ...] = ()
    """Times of files that are not searched for checkpoints."""


@dataclass(frozen=True)
class Updates:
    """Updates that the files of a run show: counted by the trainer, or at least so many."""

    count: int
    is_counted: bool = True


@dataclass(frozen=True)
class Steps:
    """Agent steps that a proof needs, and those that the logs of the run reached."""

    needed: int
    reached: int


def find_checkpoints(root: Path) -> list[Checkpoint]:
    """Every checkpoint below a run folder, oldest first."""
    found: dict[Path, list[Path]] = {}
    for path in _weights(root):
        found.setdefault(_numbered_folder(root, path) or path.parent, []).append(path)
    units: list[Checkpoint] = []
    for folder, files in found.items():
        whole = folder != root and _belong_together(folder, files)
        units += [_folder_checkpoint(folder)] if whole else [_file_checkpoint(path) for path in files]
    return sorted(units, key=lambda unit: (unit.modified_unix_seconds, unit.path))


def _weights(root: Path) -> Iterator[Path]:
    for path in files_below(root):
        name = path.name.lower()
        known = name.endswith(WEIGHTS) or WEIGHT_NAME.fullmatch(name)
        unfinished = any(UNFINISHED.search(part) for part in path.relative_to(root).parts)
        if known and not unfinished and _may_hold_weights(name) and size_of(path) > 0:
            yield path


def _may_hold_weights(name: str) -> bool:
    words = _words(name)
    rest = words - {"state", "states"}
    return not words & NOT_WEIGHTS and not (rest and rest <= STATE_ONLY)


def _words(name: str) -> set[str]:
    return set(WORD.findall(name.split(".")[0].lower()))


def _numbered_folder(root: Path, path: Path) -> Path | None:
    """The outermost folder below the run folder that is one checkpoint by its name: checkpoint_000100, ckpt/100000."""
    above = [folder for folder in path.parents if folder != root and folder.is_relative_to(root)]
    return next((folder for folder in reversed(above) if _is_numbered(folder)), None)


def _is_numbered(folder: Path) -> bool:
    digits = folder.name.isdigit() and FOLDER_OF_FOLDERS.fullmatch(folder.parent.name)
    return bool(digits or NUMBERED_FOLDER.fullmatch(folder.name))


def newest_save(root: Path) -> float | None:
    """When the newest checkpoint was written, in Unix seconds; opens none, so that it may be asked every second."""
    return max((modified(path) or 0.0 for path in _weights(root)), default=None)


def _belong_together(folder: Path, files: list[Path]) -> bool:
    """Whether the files of a folder are parts of one checkpoint, as DreamerV3 writes agent, replay and step."""
    stems = {path.name.split(".")[0] for path in files}
    parts = "agent" in stems and bool(stems & {"step", "replay"})
    orbax = any(path.name.lower() in ORBAX for path in files)
    return parts or orbax or bool(STAMP.fullmatch(folder.name)) or _is_numbered(folder)


def _file_checkpoint(path: Path) -> Checkpoint:
    steps, updates = archived_steps(path) if path.suffix == ".zip" else (pickled_step(path), None)
    return _checkpoint(path, [path], path.name, steps, updates)


def _folder_checkpoint(folder: Path) -> Checkpoint:
    return _checkpoint(folder, list(files_below(folder)), folder.name, pickled_step(folder / "step.pkl"), None)


def _checkpoint(path: Path, files: list[Path], name: str, steps: int | None, updates: int | None) -> Checkpoint:
    written = max((modified(file) or 0.0 for file in files), default=0.0)
    plain = SHARD.sub("", STAMP.sub("", name))
    numbers = [int(digits) for digits in NUMBER.findall(plain)]
    known = steps if steps is not None else named_steps(plain)
    return Checkpoint(path, written, known, updates, numbers[-1] if numbers else None)


def named_steps(name: str) -> int | None:
    """The step that a name gives together with the word: rl_model_5000_steps.zip, step=500.ckpt, 20k_steps.pt."""
    found = NAMED_STEP.search(name)
    if found is None:
        return None
    digits, suffix = (found[1], found[2]) if found[1] else (found[3], found[4])
    return int(digits) * SUFFIX.get((suffix or "").lower(), 1)


def archived_steps(path: Path) -> tuple[int | None, int | None]:
    """Steps and updates in the JSON of an archive of stable-baselines3; None for what it does not hold."""
    opened = open_regular(path)
    if isinstance(opened, Unreadable):
        return None, None
    try:
        with os.fdopen(opened, "rb") as file, zipfile.ZipFile(file) as archive:
            if "data" not in archive.namelist() or archive.getinfo("data").file_size > JSON_BYTES:
                return None, None
            data = parse_json(archive.read("data").decode())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError):
        return None, None
    if not isinstance(data, dict):
        return None, None
    return _count(data.get("num_timesteps")), _count(data.get("_n_updates"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT else None


def pickled_step(path: Path) -> int | None:
    """The step in a pickle that is one number, or a mapping that begins with `step`; its opcodes are only listed."""
    head = head_of(path, HEAD_BYTES)
    if not head.startswith(PICKLE):
        return None
    first = _first_values(head)
    is_mapping, is_number = first[:2] == ["EMPTY_DICT", "step"], first[1:2] == ["STOP"]
    return _count(first[2 if is_mapping else 0]) if is_number or (is_mapping and len(first) > 2) else None


def _first_values(pickled: bytes) -> list[object]:
    """What the first opcodes of a pickle put on its stack: the name of the opcode, or its text or whole number."""
    values: list[object] = []
    try:
        for opcode, value, _ in pickletools.genops(io.BytesIO(pickled)):
            if opcode.name in BOOKKEEPING:
                continue
            values.append(value if opcode.name in PLAIN_VALUES else opcode.name)
            if len(values) == 3:
                break
    except (ValueError, IndexError, KeyError, OverflowError):
        return values
    return values


def checkpoint_hash(path: Path) -> str | Unreadable:
    """SHA-256 of a file; of a folder, that of the lines `HASH  NAME` of all its files in the order of their names."""
    if not os.path.isdir(path):
        return content_hash(path)
    digest = hashlib.sha256()
    names = sorted(file.relative_to(path).as_posix() for file in files_below(path))
    if not names:
        return Unreadable(path, "holds no file", FaultKind.ABSENT)
    for name in names:
        found = content_hash(path / name)
        if isinstance(found, Unreadable):
            return found
        digest.update(f"{found}  {printable(name)}\n".encode())
    return digest.hexdigest()


def prove_by_checkpoint(
    run_root: Path, log_root: Path, steps: Steps, updates: Updates, span: RunSpan
) -> TrainProof | str:
    """The last part of a foreign proof: a checkpoint of the last step, by its steps, else by when it was written."""
    found = find_checkpoints(log_root)
    if not found:
        return NotSaved("no checkpoint file")
    final = _final_checkpoint(found, steps.needed, span, log_root)
    if isinstance(final, str):
        return final
    made = Updates(final.gradient_steps) if final.gradient_steps and not updates.is_counted else updates
    if not made.count:
        return "nothing shows a single update: no loss, gradient or update count in its files"
    return _proof(run_root, final, steps.reached if final.agent_steps is None else final.agent_steps, made)


def _final_checkpoint(found: list[Checkpoint], agent_steps: int, span: RunSpan, root: Path) -> Checkpoint | str:
    enough = [one for one in found if (one.agent_steps or 0) >= agent_steps]
    if enough:
        return max(enough, key=lambda one: (one.agent_steps or 0, one.modified_unix_seconds))
    unknown = _that_act([one for one in found if one.agent_steps is None])
    if not unknown:
        last = max(found, key=lambda one: one.agent_steps or 0)
        name = printable(last.path.name)
        return NotSaved(f"the last checkpoint, {name}, is of step {last.agent_steps:,} of {agent_steps:,}")
    confirmed = [one for one in unknown if (one.number or 0) >= agent_steps]
    last = confirmed[-1] if confirmed else unknown[-1]
    if confirmed:
        return last
    if times_were_lost(root, last, span):
        return (
            f"file times were lost in copying: nothing shows when {printable(last.path.name)} was written "
            "(copy with cp -a or rsync -a)"
        )
    early = written_early(last, span)
    return NotSaved(early) if early is not None else last


def _that_act(found: list[Checkpoint]) -> list[Checkpoint]:
    """Checkpoints without critics and the like, if the part that acts has a file of its own."""
    pairs = [(one, _words(one.path.name)) for one in found]
    if not any(named & ACTING for _, named in pairs):
        return found
    return [one for one, named in pairs if named & ACTING or not named & SECONDARY]


def _proof(run_root: Path, checkpoint: Checkpoint, agent_steps: int, updates: Updates) -> TrainProof | str:
    name = checkpoint.path.relative_to(run_root).as_posix()
    if name != printable(name):
        return f"its checkpoint has a name that is not UTF-8: {printable(name)}"
    digest = checkpoint_hash(checkpoint.path)
    if isinstance(digest, Unreadable):
        return f"its checkpoint {digest}"
    size = size_of_file(checkpoint.path)
    return TrainProof(agent_steps, updates.count, digest, name, not updates.is_counted, size)


def times_were_lost(root: Path, checkpoint: Checkpoint, span: RunSpan) -> bool:
    """Whether the times of files show when they were copied, and not when they were written."""
    if span.attempt_began is not None and checkpoint.modified_unix_seconds >= span.attempt_began - CLOCK_SECONDS:
        return False
    if span.last_clock is not None and abs(span.ended - span.last_clock) <= AGREEING_SECONDS:
        return False
    times = [*span.file_times, *(modified(path) or span.ended for path in files_below(root))]
    seconds = max(times, default=0.0) - min(times, default=0.0)
    if span.recorded_seconds is not None and span.recorded_seconds > 2 * CLOCK_SECONDS:
        return seconds < COPIED_FRACTION * span.recorded_seconds
    return seconds < CLOCK_SECONDS


def written_early(checkpoint: Checkpoint, span: RunSpan) -> str | None:
    """Why a checkpoint is not the one of the last step, by file times; None if it may be."""
    written, whole = checkpoint.modified_unix_seconds, span.ended - span.started
    late = max(LAST_SECONDS * min(1.0, whole / LONG_SECONDS), min(EXIT_SECONDS, whole / 2))
    if whole <= 0 or span.ended - written <= late:
        return None
    fraction = max(0.0, (written - span.started) / whole)
    if fraction >= MIN_FRACTION:
        return None
    name, before = printable(checkpoint.path.name), duration_text(span.ended - written)
    return f"{name} was written at {fraction:.0%} of the run, {before} before its end: not the final one"


NO_SPAN = RunSpan(0.0, 0.0)
"""Of a run whose logs show nothing yet."""


def kept_steps(root: Path, agent_steps: int = 0, span: RunSpan = NO_SPAN) -> int:
    """Steps of the newest checkpoint; without a number, taking the run's speed as even."""
    found = find_checkpoints(root)
    if not found:
        return 0
    known = [one.agent_steps for one in found if one.agent_steps is not None]
    last = found[-1]
    if last.agent_steps is not None or (known and span.ended <= span.started):
        return max(known)
    if span.ended <= span.started or last.modified_unix_seconds >= span.ended:
        return agent_steps
    share = max(0.0, last.modified_unix_seconds - span.started) / (span.ended - span.started)
    even = int(agent_steps * share)
    return max([last.number if _is_near(last.number, even) else even, *known])


def _is_near(number: int | None, steps: int) -> TypeGuard[int]:
    """Whether the number in a name may count the steps that its time suggests."""
    return number is not None and 0.8 * steps <= number <= 1.2 * steps
