"""Folders as unchanged trainers write them, for tests of the adapters that read them."""

import json
import os
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.settings.strict import validate
from dreamproof.settings.study import Study

BEGAN = 1_771_727_440.0
HOUR = 3600.0

PATTERN = r"update (?P<step>[0-9,]+)(?: of (?P<total>\d+))? \| return (?P<score>\S+)"


def put(path: Path, content: bytes | str, written: float) -> Path:
    """Writes a file as if at `written` Unix seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (written, written))
    return path


def rows_text(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def proof_of(found: TrainProof | str) -> TrainProof:
    assert isinstance(found, TrainProof), found
    return found


def study_of(**trainer: Any) -> Study:
    value = {
        "name": "foreign",
        "question": "?",
        "metric": {"smallest_difference": 1},
        "task": "CartPole-v1",
        "trainer": {"command": ["python", "train.py"], **trainer},
        "settings": {"risk": {"u": True}, "layers": [64, 64], "note": None},
        "arms": {"a": {}},
        "seeds": 1,
        "agent_steps": 1000,
    }
    return validate(Study, value, "study")


def dreamer_log(root: Path, steps: int = 4096, seconds: float = HOUR, began: float = BEGAN) -> Path:
    """A log folder as embodied writes it, without a checkpoint; replay chunks are named by the clock."""
    put(root / "config.yaml", "task: dummy_disc\nenv: {dummy: {repeat: 1}}\nrun: {save_every: 900}\n", began)
    for index in range(steps // 1024):
        written = began + seconds * (index + 1) * 1024 / steps
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(written))
        put(root / "replay" / f"{stamp}F000000-a{index}-b{index}-1024.npz", b"x", written)
    rows = [{"step": step, "train/model_loss": 1.0} for step in (1, steps // 2, steps)]
    put(root / "metrics.jsonl", rows_text(rows), began + seconds)
    return root


def dreamer_v3_checkpoint(folder: Path, step: int, weights: bytes, written: float) -> Path:
    put(folder / "step.pkl", pickle.dumps(step), written)
    put(folder / "agent.pkl", weights, written)
    put(folder / "replay.pkl", b"replay", written)
    put(folder / "done", b"", written)
    return folder


def sb3_model(path: Path, steps: int, updates: int = 40, written: float = BEGAN + HOUR) -> Path:
    """An archive as `model.save` writes it: JSON in `data`, weights as pickles that nobody opens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"num_timesteps": steps, "_n_updates": updates, "gamma": 0.99}))
        archive.writestr("policy.pth", b"weights")
    os.utime(path, (written, written))
    return path


PROGRESS_HEADER = (
    "time/fps,time/time_elapsed,time/iterations,time/total_timesteps,rollout/ep_rew_mean,train/loss,train/n_updates"
)


def sb3_run(root: Path, form: str = "csv", steps: int = 20_480) -> RunFolder:
    """PPO of `steps` time steps in one hour."""
    counts = range(2048, steps + 1, 2048)
    keys = PROGRESS_HEADER.split(",")
    table = [
        (500, int(HOUR * done / steps), done // 2048, done, done / 100, "" if done == 2048 else 0.5, done // 200)
        for done in counts
    ]
    if form == "csv":
        lines = [PROGRESS_HEADER, *(",".join(map(str, line)) for line in table)]
        put(root / "progress.csv", "\n".join(lines) + "\n", BEGAN + HOUR)
    if form == "json":
        rows = [{key: value for key, value in zip(keys, line, strict=True) if value != ""} for line in table]
        put(root / "progress.json", rows_text(rows), BEGAN + HOUR)
    if form == "monitor":
        episodes = "\n".join(f"{index}.0,{2048},{HOUR * done / steps}" for index, done in enumerate(counts))
        text = f'#{{"t_start": {BEGAN}, "env_id": "CartPole-v1"}}\nr,l,t\n{episodes}\n'
        put(root / "monitor.csv", text, BEGAN + HOUR)
    if form == "evaluations":
        root.mkdir(parents=True, exist_ok=True)
        count = len(counts)
        np.savez(
            root / "evaluations.npz",
            timesteps=np.array(counts),
            results=np.arange(5.0 * count).reshape(count, 5),
            ep_lengths=np.full((count, 5), 200),
        )
        os.utime(root / "evaluations.npz", (BEGAN + HOUR, BEGAN + HOUR))
    put(root / "args.txt", "ppo", BEGAN)
    return RunFolder(root)


def write_events(folder: Path, steps: list[int], began: float = BEGAN, tag: str = "train/loss") -> Path:
    """One event file with a scalar per step, one a minute, as a SummaryWriter of PyTorch writes it."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    for index, step in enumerate(steps):
        value = Summary.Value(tag=tag, simple_value=1.0 / (1 + step))
        summary = Summary(value=[value])
        writer.add_event(Event(wall_time=began + 60 * index, step=step, summary=summary))
    writer.close()
    [path] = [path for path in folder.iterdir() if ".tfevents." in path.name and not path.name.startswith("moved")]
    name = path.with_name(f"events.out.tfevents.{int(began)}.host.1.0")
    path.rename(name)
    os.utime(name, (began + 60 * (len(steps) - 1),) * 2)
    return name


def wandb_run(root: Path, summary: dict[str, Any] | None, printed: str = "") -> RunFolder:
    folder = root / "wandb" / "offline-run-20260222_023040-abcd1234"
    put(folder / "run-abcd1234.wandb", b"records", BEGAN + HOUR)
    put(folder / "files" / "output.log", printed, BEGAN + HOUR)
    if summary is not None:
        put(folder / "files" / "wandb-summary.json", json.dumps(summary), BEGAN + HOUR)
    put(root / "model.pt", b"weights", BEGAN + HOUR)
    put(root / "args.json", b"{}", BEGAN)
    return RunFolder(root)
