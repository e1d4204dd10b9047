"""A study in the middle of its work, made of files alone: cells that run, stall, wait, were stopped or are missing."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dreamproof.base.lines import json_line
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.study.ledger import events
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.lease import Lease
from dreamproof.study.session import supervisor_started
from dreamproof.testing.made_study import Plan, make_study

HOUR = 3600.0
OPEN = ("full/1", "full/2", "full/3", "full/4", "cert_only/4")
LOG = """\
[dreamproof] pack of 1, 1 GPU, batch 16 x 64
compile     38.2 s
step   18,400  return   9.81  cost  3.1  1,204 steps/s
step   18,800  return  10.02  cost  2.8  1,211 steps/s
step   19,200  return  10.37  cost  2.9  1,198 steps/s
"""


class LivelyStudy:
    """The study folder, with the ledger open for more."""

    def __init__(self, root: Path) -> None:
        self.now = time.time()
        plan = Plan(name="safe_navigation", start=self.now - 3.0 * HOUR, missing=OPEN, agent_steps=40_000)
        self.folder = StudyFolder(make_study(root, plan))
        self.steps = plan.agent_steps
        self.ledger = Ledger(self.folder.ledger, clock=lambda: Moment(self.now))
        self.lease = Lease(self.folder.lease)

    def at(self, hours_ago: float, *what: events.Event) -> None:
        """Appends events with a time."""
        self.now = time.time() - hours_ago * HOUR
        self.ledger.append_all(list(what), durable=False)

    def start(self, name: str, cell: str, hours_ago: float, agent_steps: int = 0) -> None:
        """An attempt that begins."""
        started = events.AttemptStarted(name, "train", [cell], [], ["train", cell], {cell: agent_steps})
        self.at(hours_ago, started)
        folder = self.folder.attempt(name)
        folder.root.mkdir(parents=True, exist_ok=True)
        folder.output.write_text(LOG)
        samples = [{"seconds": 10.0 * n, "bytes": int(3.1e9 + 4e6 * n + 2e8 * np.sin(n / 9))} for n in range(200)]
        folder.memory.write_text("".join(map(json_line, samples)))

    def end(self, name: str, cell: str, cause: str, evidence: list[str], hours_ago: float, agent_steps: int) -> None:
        """An attempt that dies."""
        steps = {cell: agent_steps}
        self.at(hours_ago, events.AttemptEnded(name, cause, evidence, 900.0, steps, {cell: agent_steps // 2}))

    def progress(self, cell: str, agent_steps: int) -> None:
        """What a running cell has written so far."""
        run = self.folder.run(Cell.parse(cell))
        run.root.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(len(cell))
        with run.metrics.open("w") as file:
            for step in np.linspace(0, agent_steps, 60):
                level = 13.0 * (1 - np.exp(-5 * step / self.steps))
                value = float(level + generator.normal(0, 0.6))
                file.write(
                    json_line({"agent_steps": int(step), "return": value, "cost": 8.0 * float(np.exp(-step / 2e4))})
                )
        beat = {"agent_steps": agent_steps, "gradient_steps": agent_steps // 4, "phase": "train", "beat": 7}
        run.heartbeat.write_text(json.dumps(beat))

    def fill(self) -> None:
        """Everything that can happen to a cell."""
        self.at(0.6, supervisor_started())
        self.start("a000101", "full/1", 0.55)
        self.start("a000102", "full/2", 0.5)
        self.start("a000103", "full/3", 0.5)
        oom = ["memory.events: oom_kill 0 → 1", "wait status: signal 9"]
        self.end("a000101", "full/1", "host_oom", oom, 0.4, 12_000)
        self.at(0.4, events.Remedy(["full/1"], "resume", "transient death: host_oom"))
        bug = ["RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 640x256)", "exit code 1"]
        self.end("a000102", "full/2", "bug", bug, 0.35, 400)
        self.at(0.35, events.CellStopped("full/2", "failed 2 times with the same cause: bug", "bug"))
        self.start("a000104", "full/4", 0.3)
        self.progress("full/1", 12_000)
        self.progress("full/3", 19_200)
        self.progress("full/4", 9_600)
        self.at(0.1, events.LivenessChanged("a000104", "stalled", "no progress for 6 min 2 s, longest gap before 12 s"))
        self.lease.take()

    def close(self) -> None:
        """Lets the study go."""
        self.lease.release()
        self.ledger.close()


@contextmanager
def lively_study(root: Path) -> Iterator[LivelyStudy]:
    """A filled study that this process seems to supervise."""
    study = LivelyStudy(root)
    study.fill()
    try:
        yield study
    finally:
        study.close()
