"""Cells that are worked on: how far, how fast, by which process, on which GPU, and how long they still take."""

import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dreamproof.base.files import read_json, unless_full, write_json
from dreamproof.base.text import shown_conditions
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.runs.reader import read_exit
from dreamproof.study.adapters.api import Adapter, Reading
from dreamproof.study.adapters.folders import change_times
from dreamproof.study.adapters.metrics import metric_value
from dreamproof.study.backends.api import JobPlacement
from dreamproof.study.backends.local import is_gone
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.money.spending import known_rates, open_seconds
from dreamproof.study.plan.gap import Gap, find_gap
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.plan.packs import count_jobs
from dreamproof.study.process.gpus import VISIBLE, GpuUse, read_gpu_use
from dreamproof.study.process.processes import ProcessIdentity, family, is_alive
from dreamproof.study.views import slurm_jobs

OVER = ("dead", "ended", "finished")
"""Liveness of what no process works on any more."""
NOT_OURS_TEXT = "not ours"
LONGEST_SECONDS = 1e9
SIGHTINGS_SECONDS = 2.0


@dataclass(frozen=True)
class RunningCell:
    """One cell that an attempt works on."""

    cell: str
    attempt: str
    work: str
    agent_steps: int
    declared_agent_steps: int
    phase: str
    agent_steps_per_second: float | None
    seconds_left: float | None
    wall_seconds: float
    money: float
    liveness: str
    reason: str
    place: str = ""
    """Job and node on a cluster, or why it waits."""
    fault: str = ""
    """A file of the cell that cannot be read, and why."""
    process_id: int | None = None
    progress_age_seconds: float | None = None
    """Time since any of its counters grew, or since it wrote a file."""
    metric: float | None = None
    """The newest value of the study's metric in its log."""
    gpu_percent: float | None = None
    gpu_bytes: int | None = None
    """GPU memory of its processes; of the whole GPU where they are not known."""

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else started it."""
        return self.attempt == NOT_OURS_TEXT


def running_cells(opened: OpenStudy, now: Moment, supervised: bool) -> list[RunningCell]:
    """Every cell of every open attempt, read from its run folder; without a supervisor its process is checked here."""
    found = [_read_foreign(opened, cell, now) for cell, known in opened.state.cells.items() if known.foreign]
    if opened.study.backend.has_queue:
        return found + _running_on_cluster(opened, now, supervised)
    for attempt in opened.state.open_attempts.values():
        dead = not supervised and is_gone(opened.folder.attempt(attempt.name))
        for text in attempt.cells:
            running = _read_own(opened, attempt, Cell.parse(text), now)
            found.append(_over(opened, running) if dead else running)
    return with_use(opened, found, supervised)


def with_use(opened: OpenStudy, running: list[RunningCell], supervised: bool) -> list[RunningCell]:
    """The same with process, GPU and the age of the last progress."""
    devices = read_gpu_use() if running else []
    seen = read_sightings(opened.folder) if supervised else {}
    return [_with_use(opened, one, devices, seen) for one in running]


def _with_use(opened: OpenStudy, one: RunningCell, devices: list[GpuUse], seen: Mapping[str, float]) -> RunningCell:
    if one.liveness in OVER:
        return one
    process_id, visible = _process(opened, one)
    percent, used = gpu_use_of(process_id, visible, devices)
    age = seen.get(one.cell)
    if age is None:
        times = change_times(opened.run(Cell.parse(one.cell)).root)
        age = max(0.0, time.time() - max(times)) if times else None
    return replace(one, process_id=process_id, progress_age_seconds=age, gpu_percent=percent, gpu_bytes=used)


def _process(opened: OpenStudy, one: RunningCell) -> tuple[int | None, str | None]:
    """The process that works on a cell, and the GPUs that it was given."""
    if one.is_foreign:
        known = opened.state.cells[Cell.parse(one.cell)].foreign or {}
        return (known.get("process") or {}).get("process_id"), None
    folder = opened.folder.attempt(one.attempt)
    shim, order = _mapping(read_json(folder.shim)), _mapping(read_json(folder.order))
    process_id = _mapping(shim.get("child")).get("process_id")
    visible = _mapping(order.get("environment")).get(VISIBLE, os.environ.get(VISIBLE))
    return process_id if isinstance(process_id, int) else None, visible if isinstance(visible, str) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def gpu_use_of(process_id: int | None, visible: str | None, devices: list[GpuUse]) -> tuple[float | None, int | None]:
    """Busy share in percent and memory in bytes of a process and all below it; of its GPU if only that is known."""
    if process_id is None or not devices:
        return None, None
    members = {process_id, *family(process_id)}
    own = [device for device in devices if members & device.processes.keys()]
    if own:
        used = sum(device.processes[one] for device in own for one in members & device.processes.keys())
        return max(device.percent for device in own), used
    named = [device for device in devices if str(device.index) in (visible or "").split(",")]
    given = named or (devices if len(devices) == 1 else [])
    if not given:
        return None, None
    return max(device.percent for device in given), sum(device.used_bytes for device in given)


class SightingsWriter:
    """Leaves for `status`, `watch` and `why` how long each running cell has made no progress."""

    def __init__(self, folder: StudyFolder) -> None:
        self._path = folder.sightings
        self._next = 0.0

    def write(self, now: float, progress_ages: Mapping[Cell, float]) -> None:
        """Writes them where it is due, by a monotonic clock."""
        if now < self._next:
            return
        self._next = now + SIGHTINGS_SECONDS
        ages = {str(cell): round(seconds, 1) for cell, seconds in progress_ages.items()}
        with unless_full():
            write_json(self._path, {"unix_seconds": time.time(), "progress_age_seconds": ages}, durable=False)


def read_sightings(folder: StudyFolder) -> dict[str, float]:
    """By cell: seconds since its last progress, as the supervisor saw it."""
    value = _mapping(read_json(folder.sightings))
    written, ages = value.get("unix_seconds"), _mapping(value.get("progress_age_seconds"))
    if not isinstance(written, int | float):
        return {}
    passed = max(0.0, time.time() - written)
    counted = {cell: one for cell, one in ages.items() if isinstance(one, int | float) and 0 <= one < LONGEST_SECONDS}
    return {cell: seconds + min(passed, LONGEST_SECONDS) for cell, seconds in counted.items()}


def _gone(running: RunningCell) -> RunningCell:
    """The same of a process that is no more: it has neither rate nor time left."""
    reason = "its process is gone; the next run records how it ended"
    return replace(running, liveness="dead", reason=reason, agent_steps_per_second=None, seconds_left=None)


def _over(opened: OpenStudy, running: RunningCell) -> RunningCell:
    """The same of a process that is no more: finished if its exit record shows no failure."""
    end = read_exit(opened.folder.attempt(running.attempt).exit)
    if end is None or end.exit_code != 0 or end.asked_to_stop is not None:
        return _gone(running)
    reason = "it finished without a supervisor; the next run takes in what it left"
    return replace(_gone(running), liveness="finished", reason=reason)


def _running_on_cluster(opened: OpenStudy, now: Moment, supervised: bool) -> list[RunningCell]:
    """The same on a cluster: the scheduler reports where each attempt is."""
    places = slurm_jobs.placements(opened, supervised)
    found: list[RunningCell] = []
    for attempt in opened.state.open_attempts.values():
        place = places.get(attempt.name, JobPlacement(attempt.job or "", attempt.nodes))
        state = slurm_jobs.liveness(place)
        for text in attempt.cells:
            running = replace(_read_own(opened, attempt, Cell.parse(text), now), place=slurm_jobs.place_text(place))
            found.append(replace(running, liveness=state[0], reason=state[1]) if state is not None else running)
    return found


def _read_own(opened: OpenStudy, attempt: AttemptState, cell: Cell, now: Moment) -> RunningCell:
    adapter = opened.adapter(cell)
    output = opened.folder.attempt(attempt.name).output
    read = adapter.read if attempt.work == "train" else adapter.read_evaluation
    running = running_cell(opened, attempt, cell, read(opened.run(cell), output), now)
    return replace(running, metric=_metric(opened, adapter, cell, output)) if attempt.work == "train" else running


def _read_foreign(opened: OpenStudy, cell: Cell, now: Moment) -> RunningCell:
    named = (opened.state.cells[cell].foreign or {}).get("output")
    adapter, output = opened.adapter(cell), Path(named) if named is not None else None
    running = foreign_cell(opened, cell, adapter.read(opened.run(cell), output), now)
    process = ProcessIdentity.read((opened.state.cells[cell].foreign or {}).get("process"))
    if process is not None and process.can_be_judged and not is_alive(process):
        return replace(_gone(running), reason="its process is gone; the next run takes in what it left")
    return replace(running, metric=_metric(opened, adapter, cell, output))


def _metric(opened: OpenStudy, adapter: Adapter, cell: Cell, output: Path | None) -> float | None:
    """The newest value of the study's metric in the log of a cell."""
    return metric_value(adapter.latest(opened.run(cell), output), opened.study.metric.name)


def foreign_cell(opened: OpenStudy, cell: Cell, reading: Reading, now: Moment) -> RunningCell:
    """One cell that the run of somebody else works on; its money is not the study's."""
    known = opened.state.cells[cell].foreign or {}
    wall = max(0.0, now.unix_seconds - (known.get("started") or known["found"]))
    rate = reading.agent_steps / wall if known.get("started") and reading.agent_steps > 0 and wall > 0 else None
    left = (opened.study.agent_steps - reading.agent_steps) / rate if rate else None
    return RunningCell(
        str(cell),
        NOT_OURS_TEXT,
        "train",
        reading.agent_steps,
        opened.study.agent_steps,
        reading.phase,
        rate,
        max(0.0, left) if left is not None else None,
        wall,
        0.0,
        known["liveness"],
        known["reason"] or known["evidence"],
    )


def running_cell(opened: OpenStudy, attempt: AttemptState, cell: Cell, reading: Reading, now: Moment) -> RunningCell:
    """One cell of an open attempt from a reading of its run folder."""
    study = opened.study
    wall = open_seconds(opened.state, attempt, now)
    done = reading.agent_steps - attempt.first_agent_steps(str(cell))
    moves = attempt.work == "train" and done > 0 and wall > 0 and attempt.liveness != "stalled"
    rate = done / wall if moves else None
    left = (study.agent_steps - reading.agent_steps) / rate if rate else None
    share = wall * study.money.gpus_per_attempt / 3600.0 / max(1, len(attempt.cells))
    return RunningCell(
        str(cell),
        attempt.name,
        attempt.work,
        reading.agent_steps,
        study.agent_steps,
        reading.phase if attempt.work == "train" else f"evaluate {','.join(shown_conditions(attempt.conditions))}",
        rate,
        max(0.0, left) if left is not None else None,
        wall,
        share * study.money.price_per_gpu_hour,
        attempt.liveness or "running",
        attempt.liveness_reason or "",
        fault=str(reading.fault) if reading.fault is not None else "",
    )


def study_seconds_left(opened: OpenStudy, running: list[RunningCell], probed: Mapping[str, float]) -> float | None:
    """How long the study still takes at the speeds of its running cells, else those seen or probed before.

    Cells of one attempt end together. Like `known_rates`, the speed of an arm is that of the attempt's machine time:
    a pack makes so many steps as all its cells together.
    """
    study, gap = opened.study, find_gap(opened.state)
    now = {Cell.parse(one.cell): one for one in running if one.work == "train"}
    sizes = Counter(_attempt_of(one) for one in now.values())
    known = known_rates(opened.state)
    current = {
        cell.arm: one.agent_steps_per_second * sizes[_attempt_of(one)]
        for cell, one in now.items()
        if one.agent_steps_per_second
    }
    any_rate = next(iter(current.values()), known.get(""))
    busy = len(gap.evaluate) * (opened.state.totals.seconds_per_evaluation() or 0.0)
    longest: dict[str, float] = {}
    for missing in gap.train:
        arm, one = missing.cell.arm, now.get(missing.cell)
        rate = current.get(arm) or known.get(arm) or probed.get(arm) or any_rate
        if rate is None:
            return None
        if one is None:
            busy += max(0, study.agent_steps - missing.kept_agent_steps) / rate
            continue
        attempt = _attempt_of(one)
        own = one.agent_steps_per_second or rate / sizes[attempt]
        longest[attempt] = max(longest.get(attempt, 0.0), max(0, study.agent_steps - one.agent_steps) / own)
    busy += sum(longest.values())
    waiting = Gap([one for one in gap.train if one.cell not in now], gap.evaluate if not gap.train else [])
    parallel = max(1, min(study.backend.max_parallel, len(longest) + count_jobs(opened.state, waiting)))
    return max([busy / parallel, *(one.seconds_left for one in now.values() if one.seconds_left is not None)])


def _attempt_of(one: RunningCell) -> str:
    """The attempt that trains a cell; every run of somebody else is its own."""
    return one.cell if one.is_foreign else one.attempt
