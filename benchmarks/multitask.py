"""Milliseconds per offline update of a 48M model of MT30: `python -m benchmarks.multitask`.

Model rows learn from episodes that are all on the device, or streamed to it from chunk files; behaviour rows learn the
policies of one or of eight tasks in the frozen model. Episodes are synthetic, with the sizes of MT30, and repeat one
episode. All rows run in one process, through the pack that `trainer: pwm_offline` trains; each is kept in --output as a
JSON line. The peak of device memory is that of all rows so far.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.chunks import OBSERVED, ROWS, TAKEN
from benchmarks.pwm import memory
from dreamproof.base.commit import code_name
from dreamproof.base.files import write_json
from dreamproof.base.lines import append_rows
from dreamproof.data.chunk_writer import write_members
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import RunSettings
from dreamproof.settings.cell import PwmOfflineCell
from dreamproof.settings.several_tasks import merge
from dreamproof.settings.task_sets import TASK_SETS
from dreamproof.train.loop import read_job
from dreamproof.train.offline_pack import OfflinePack

MODEL: dict[str, Any] = {"size": "48M", "tasks": 30, "task_size": 64, "reward": "two_hot"}
BEHAVIOR: dict[str, Any] = {"horizon": 16, "rounds": 1, "critic_passes": 1}
TINY = {
    "agent": {
        "world_model": {"units": [32, 32], "encoder_units": [32], "latent": 32},
        "behavior": {"horizon": 2, "actor_units": [16], "critic_units": [16]},
    },
    "train": {"batch": 16, "window": 5},
}
UPDATES = 1_000_000
BLOCKS = 7


class Row(NamedTuple):
    """One measured configuration; the target is the largest ratio to the row that it is compared with."""

    name: str
    data: dict[str, Any]
    policies: int = 0
    starts: int = 128
    compared: str | None = None
    target: float | None = None

    @property
    def is_behavior(self) -> bool:
        return self.policies > 0


def rows(held: int) -> list[Row]:
    """All rows; streamed ones hold as many episodes on the device as the others."""
    found = []
    for storage, starts in (("float32", 128), ("float16", 512)):
        on_device, one = f"model, on the device, {storage}", f"behaviour, 1 policy, {starts} starts"
        found += [
            Row(on_device, {"storage": storage}),
            Row(f"model, streamed, {storage}", {"storage": storage, "device_episodes": held}, 0, 128, on_device, 1.1),
            Row(one, {}, 1, starts),
            Row(f"behaviour, 8 policies, {starts} starts", {}, 8, starts, one, 3.0),
        ]
    return found


def write_episodes(path: Path, count: int) -> None:
    """A chunk of MT30's sizes in which the tasks take turns and all episodes have the same values."""
    chance = np.random.default_rng(0)
    one = {
        "obs": chance.normal(size=(1, ROWS, OBSERVED)).astype(np.float32),
        "action": chance.uniform(-1, 1, (1, ROWS, TAKEN)).astype(np.float32),
        "reward": chance.uniform(0, 2, (1, ROWS)).astype(np.float32),
    }
    shared = {name: np.broadcast_to(value, (count, *value.shape[1:])) for name, value in one.items()}
    task = (np.arange(count, dtype=np.int32) % len(TASK_SETS["mt30"]))[:, None]
    with path.open("wb") as file:
        write_members(file, shared | {"task": np.broadcast_to(task, (count, ROWS))})


def settings_of(row: Row, files: list[Path], is_tiny: bool) -> dict[str, Any]:
    """The settings of the cell of a row, as a study would say them."""
    names = [task.name for task in TASK_SETS["mt30"]]
    behavior = BEHAVIOR | {"replayed_starts": row.starts, "warm_up_epochs": 0 if row.is_behavior else UPDATES}
    data = {"files": list(map(str, files)), "tasks": "mt30", **row.data}
    given = {
        "agent": {"world_model": MODEL, "behavior": behavior, "precision": "bfloat16"},
        "data": data | ({"policies": names[: row.policies]} if row.policies > 1 else {}),
        "train": {"batch": 1024, "window": 17},
    }
    return merge(given, TINY) if is_tiny else given


def make_pack(folder: Path, settings: dict[str, Any]) -> OfflinePack:
    """The pack that would train such a cell."""
    run = RunFolder(folder)
    folder.mkdir()
    given = RunSettings(
        study="multitask",
        arm="arm",
        seed=0,
        task=TASK_SETS["mt30"][0].name,
        trainer="pwm_offline",
        agent_steps=2 * UPDATES,
        settings=settings,
    )
    write_json(run.settings, given.model_dump(mode="json"))
    pack = read_job([run]).pack
    assert isinstance(pack, OfflinePack)
    return pack


def measure(row: Row, folder: Path, files: list[Path], asked: argparse.Namespace) -> dict[str, Any]:
    """Everything that is reported of one row."""
    began = time.monotonic()
    pack = make_pack(folder / row.name.replace(" ", "_").replace(",", ""), settings_of(row, files, asked.tiny))
    state = jax.block_until_ready(pack.init())
    loaded = time.monotonic()
    state, metrics = pack.chunk(state, asked.updates)
    jax.block_until_ready((state, metrics))
    compiled = time.monotonic()
    state, found = block_milliseconds(pack, state, asked.updates)
    device, peak, host = memory()
    return {
        "name": row.name,
        "milliseconds": sorted(found)[len(found) // 2],
        "fastest": min(found),
        "slowest": max(found),
        "updates": asked.updates,
        "load_seconds": loaded - began,
        "first_block_seconds": compiled - loaded,
        "device_gib": device,
        "peak_gib_so_far": peak,
        "host_gib": host,
        "finite": bool(state.agent.finite.all()),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "commit": code_name(),
    }


def block_milliseconds(pack: OfflinePack, state: Any, updates: int) -> tuple[Any, list[float]]:
    """Milliseconds per update of several blocks of so many updates, after one that is not counted."""
    found = []
    for _ in range(BLOCKS + 1):
        started = time.monotonic()
        state, metrics = pack.chunk(state, updates)
        jax.block_until_ready((state, metrics))
        found.append(1000 * (time.monotonic() - started) / updates)
    return state, found[1:]


def line(result: dict[str, Any], row: Row, known: dict[str, float]) -> str:
    """One row as people read it."""
    ratio = ""
    if row.compared in known:
        ratio = f", {result['milliseconds'] / known[row.compared]:.2f} times '{row.compared}' (target {row.target:g})"
    return (
        f"{result['name']:<32} {result['milliseconds']:7.2f} ms per update, {result['fastest']:.2f} to "
        f"{result['slowest']:.2f}{ratio}; data {result['load_seconds']:.0f} s, first block with compiling "
        f"{result['first_block_seconds']:.0f} s; device {result['device_gib']:.2f} GiB, peak so far "
        f"{result['peak_gib_so_far']:.2f}; host {result['host_gib']:.2f} GiB"
    )


def main() -> None:
    """Writes the episodes, measures the rows one after the other and prints as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/multitask.jsonl"))
    parser.add_argument("--held", type=int, default=48_000, help="episodes on the device; a quarter more is streamed")
    parser.add_argument("--updates", type=int, default=100, help="updates of a block; a shard is renewed every 50")
    parser.add_argument("--only", default="", help="measure rows whose name contains this")
    parser.add_argument("--budget-seconds", type=float, default=200.0, help="no new row after so long")
    parser.add_argument("--folder", type=Path, help="where the episodes are written for the time of the run")
    parser.add_argument("--plan", action="store_true", help="check and print the rows, and measure nothing")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to try the script")
    asked = parser.parse_args()
    if asked.plan:
        for row in rows(asked.held):
            print(f"{row.name}: {PwmOfflineCell.model_validate(settings_of(row, [Path('chunk.pt')], asked.tiny)).data}")
        return
    began = time.monotonic()
    use_compilation_cache()
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        folder = Path(place)
        files = [folder / f"chunk_{number}.pt" for number in range(5)]
        for file in files:
            write_episodes(file, asked.held // 4)
        print(f"5 chunks of {asked.held // 4:,} episodes written in {time.monotonic() - began:.0f} s", flush=True)
        for row in rows(asked.held):
            if asked.only not in row.name:
                continue
            if time.monotonic() - began > asked.budget_seconds:
                print(f"{row.name}: no time is left", flush=True)
                continue
            # Behaviours learn from one chunk: their time does not depend on the number of episodes.
            own = files[:1] if row.is_behavior else files if "device_episodes" in row.data else files[:4]
            result = measure(row, folder, own, asked)
            known[row.name] = result["milliseconds"]
            append_rows(asked.output, [result])
            print(line(result, row, known), flush=True)


if __name__ == "__main__":
    main()
