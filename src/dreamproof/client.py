"""Makes any training loop one that dreamproof watches, resumes, proves and evaluates.

One file without dependencies, for Python 3.8 and later: import it as `dreamproof.client`, or copy it next to a script.

    from dreamproof.client import Run

    run = Run()
    step = run.restore(read_weights)
    while step < run.agent_steps and not run.stopping:
        step, loss = train_a_little(step)
        run.log(step, updates=step, loss=loss)
        if run.save_is_due(step, every=10_000):
            run.save(step, updates=step, write=write_weights)
    run.finish(step, updates=step, write=write_weights)

`read_weights(folder)` and `write_weights(folder)` load and save the trainer's own files in a folder (a pathlib.Path).
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEAT_SECONDS = 0.5
KEPT_CHECKPOINTS = 3
CHECKPOINT_NAME = "step-{:012d}"
RECORD = "record.json"


class Run:
    """One cell: what it is to train, and where its progress, checkpoints and evaluations go."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        place = folder or os.environ.get("DREAMPROOF_RUN_DIR")
        if not place:
            raise RuntimeError("no run folder: start this script with dreamproof, or name one: Run('FOLDER')")
        self.folder = Path(place)
        self.given = _read_given(self.folder / "settings.json")
        self.updates = 0
        """Updates of the checkpoint that was restored, then those reported last."""
        self.stopping = False
        """Whether dreamproof asked to save and end."""
        self._beats = 0
        self._beaten = 0.0
        self._phase = ""
        self._saved = 0
        self._values: dict[str, float] = {}
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._stop)
            if hasattr(signal, "SIGUSR1"):
                faulthandler.register(signal.SIGUSR1, all_threads=True)

    def _stop(self, *_: Any) -> None:
        self.stopping = True

    @property
    def agent_steps(self) -> int:
        """Steps to train to."""
        return int(self.given["agent_steps"])

    @property
    def seed(self) -> int:
        """The seed of this cell."""
        return int(self.given.get("seed", 0))

    @property
    def arm(self) -> str:
        """The arm of this cell."""
        return str(self.given.get("arm", ""))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the arm, laid over those that all arms share."""
        return dict(self.given.get("settings", {}))

    @property
    def episodes(self) -> int:
        """Complete episodes that an evaluation needs."""
        return int(self.given.get("evaluation_episodes", 50))

    def beat(self, step: int, updates: int = 0, phase: str = "train") -> None:
        """Shows progress; call it from the loop that works, as often as you like: it writes twice a second."""
        self.updates = max(self.updates, updates)
        now = time.monotonic()
        if phase == self._phase and now - self._beaten < BEAT_SECONDS and step < self.agent_steps:
            return
        self._beats, self._beaten, self._phase = self._beats + 1, now, phase
        beat = {"agent_steps": step, "gradient_steps": self.updates, "phase": phase, "beat": self._beats}
        _write_json(self.folder / "heartbeat.json", {**beat, "process_id": os.getpid(), "unix_seconds": time.time()})

    def log(self, step: int, updates: int = 0, **values: float) -> None:
        """Adds one row of named values to metrics.jsonl, and shows progress."""
        self.beat(step, updates)
        self._values = {name: float(value) for name, value in values.items()}
        with open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"agent_steps": step, **self._values}) + "\n")

    def save_is_due(self, step: int, every: int) -> bool:
        """Whether another `every` steps were passed since the last checkpoint."""
        return step // every > self._saved // every

    def save(
        self,
        step: int,
        updates: int,
        write: Callable[[Path], Any],
        finite: bool | None = None,
    ) -> Path:
        """Commits a checkpoint: `write` fills a folder, which appears under its name only when it is whole.

        `finite` says whether all parameters are numbers; if left out, whether the values logged last are.
        """
        self.beat(step, updates, "save")
        target = self.folder / "checkpoints" / CHECKPOINT_NAME.format(step)
        partial = target.with_name(f".partial-{target.name}-{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write(partial)
        files = {path.relative_to(partial).as_posix(): _hash(path) for path in _files(partial)}
        if not files:
            raise RuntimeError(f"the function that writes a checkpoint wrote no file into {partial}")
        record = {
            "agent_steps": step,
            "gradient_steps": updates,
            "finite": all(map(math.isfinite, self._values.values())) if finite is None else finite,
            "files": files,
            "parameter_hash": _hash_of_hashes(files),
            "task": self.given.get("task", ""),
        }
        _write_json(partial / RECORD, record)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        self._saved = step
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)
        self.beat(step, updates)
        return target

    def finish(self, step: int, updates: int, write: Callable[[Path], Any]) -> None:
        """Saves what is not saved yet, and says that the work is done or that it was asked to stop."""
        if step > self._saved:
            self.save(step, updates, write)
        done = step >= self.agent_steps
        self.beat(step, updates, "done" if done else "save")
        if self.stopping and not done:
            print(f"stopped by SIGTERM at {step} agent steps; saved", flush=True)

    def restore(self, read: Callable[[Path], Any]) -> int:
        """Hands the newest checkpoint whose files are as saved to `read`; returns its step, 0 if there is none."""
        for folder in reversed(self._checkpoints()):
            record = _good_record(folder)
            if record is not None:
                read(folder)
                self._saved, self.updates = int(record["agent_steps"]), int(record["gradient_steps"])
                return self._saved
        return 0

    def _checkpoints(self) -> list[Path]:
        return sorted((self.folder / "checkpoints").glob("step-" + "[0-9]" * 12))

    @property
    def checkpoint(self) -> Path:
        """What an evaluation is to load: the proven checkpoint, whatever adapter proved it."""
        named = os.environ.get("DREAMPROOF_CHECKPOINT")
        if named:
            return Path(named)
        good = [folder for folder in self._checkpoints() if _good_record(folder) is not None]
        if not good:
            raise RuntimeError(f"{self.folder}: no trained checkpoint to evaluate")
        return good[-1]

    def write_evaluation(self, condition: str, episodes: dict[str, list[float]]) -> None:
        """Records complete episodes of the proven checkpoint: one list per metric, one value per episode."""
        record = _good_record(self.checkpoint) or {}
        made = {
            "agent_steps": record.get("agent_steps", self.agent_steps),
            "gradient_steps": record.get("gradient_steps", 1),
            "parameter_hash": os.environ.get("DREAMPROOF_CHECKPOINT_HASH") or record["parameter_hash"],
            "episodes": {name: [float(value) for value in values] for name, values in episodes.items()},
        }
        known = [one for one in self.given.get("conditions", []) if one.get("name") == condition]
        kind = (known[0].get("kind") if known else None) or "in_distribution"
        facts = {"condition": condition, "kind": kind, "task": self.given.get("task", "")}
        _write_json(self.folder / "evaluations" / f"{condition}.json", {**facts, "checkpoints": {"final": made}})


def sb3_callback(run: Run, save_every: int = 10_000) -> Any:
    """A callback for `model.learn` of stable-baselines3: progress, checkpoints (model.zip), and the end when asked."""
    from stable_baselines3.common.callbacks import BaseCallback

    class DreamproofCallback(BaseCallback):  # type: ignore[misc,unused-ignore]
        """Reports every step; saves every `save_every` steps and at the end."""

        def _on_step(self) -> bool:
            run.beat(self.num_timesteps, self._updates())
            if run.save_is_due(self.num_timesteps, save_every):
                run.save(self.num_timesteps, self._updates(), self._write)
            return not run.stopping

        def _on_training_end(self) -> None:
            run.finish(self.num_timesteps, self._updates(), self._write)

        def _updates(self) -> int:
            return int(getattr(self.model, "_n_updates", 0))

        def _write(self, folder: Path) -> None:
            self.model.save(str(folder / "model.zip"))

    return DreamproofCallback()


def _read_given(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        example = '{"agent_steps": 1000, "seed": 0, "task": "mine", "settings": {}}'
        raise FileNotFoundError(
            f"{path} is missing; dreamproof writes it. To try the script alone, write: {example}"
        ) from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")
    return value


def _write_json(path: Path, value: Any) -> None:
    """Replaces a file as a whole: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value), encoding="utf-8")
    os.replace(partial, path)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RECORD)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def _hash_of_hashes(files: dict[str, str]) -> str:
    lines = "".join(f"{files[name]}  {name}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def _good_record(folder: Path) -> dict[str, Any] | None:
    """The record of a checkpoint whose files are what was saved; None for any other folder."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        whole = all(_hash(folder / name) == digest for name, digest in record["files"].items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return record if whole and record["files"] else None
