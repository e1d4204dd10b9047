"""The path of every file. The only module that knows file names."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.files import Unreadable, list_folder, read_json

CHECKPOINT_NAME = re.compile(r"step-([0-9]{12,18})", re.ASCII)
SEED = re.compile(r"[0-9]{1,18}", re.ASCII)


def named_agent_steps(name: str) -> int | None:
    """The steps in the name of a checkpoint folder; None for any other name, e.g. step-latest or step-….tmp."""
    found = CHECKPOINT_NAME.fullmatch(name)
    return int(found[1]) if found else None


ATTEMPT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,100}\Z")


@dataclass(frozen=True, order=True)
class Cell:
    """One thing to train: an arm with a seed."""

    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.arm}/{self.seed}"

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """The cell written as `arm/seed`."""
        arm, slash, seed = text.rpartition("/")
        if not slash or not arm or not SEED.fullmatch(seed):
            raise ValueError(f"'{text}' is not a cell; write arm/seed, e.g. baseline/0")
        return cls(arm, int(seed))


@dataclass(frozen=True)
class RunFolder:
    """Everything one cell reads and writes."""

    root: Path

    @property
    def settings(self) -> Path:
        """What the trainer gets; written before the first attempt."""
        return self.root / "settings.json"

    @property
    def resolved(self) -> Path:
        """Every setting after defaults, with its hash and the code; written before every attempt that trains."""
        return self.root / "resolved.json"

    @property
    def heartbeat(self) -> Path:
        """Progress counters, replaced at least every 30 s."""
        return self.root / "heartbeat.json"

    @property
    def metrics(self) -> Path:
        """One JSON row per log event."""
        return self.root / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def checkpoint(self, agent_steps: int) -> "CheckpointFolder":
        return CheckpointFolder(self.checkpoints / f"step-{agent_steps:012d}")

    def checkpoint_folders(self) -> list["CheckpointFolder"]:
        """Committed checkpoints, oldest first; none if the folder cannot be read, which `run_fault` reports."""
        entries = list_folder(self.checkpoints)
        if isinstance(entries, Unreadable):
            return []
        found = [(steps, entry.path) for entry in entries if (steps := named_agent_steps(entry.name)) is not None]
        return [CheckpointFolder(Path(path)) for _, path in sorted(found) if os.path.isdir(path)]

    @property
    def selected(self) -> Path:
        """Names the checkpoint chosen on validation layouts."""
        return self.root / "selected.json"

    @property
    def frozen(self) -> Path:
        """Written when this replica stopped being finite."""
        return self.root / "frozen.json"

    @property
    def collapses(self) -> Path:
        """One row per sudden fall of the validation return, and what was done about it."""
        return self.root / "collapses.jsonl"

    @property
    def summary(self) -> Path:
        """Peak, final and area of the validation curve so far."""
        return self.root / "summary.json"

    @property
    def probe(self) -> Path:
        """What a preflight of this cell measured."""
        return self.root / "probe.json"

    @property
    def frozen_before(self) -> Path:
        """Where the record of an earlier death is put before the cell is tried again."""
        return self.root / "frozen-before.json"

    @property
    def official(self) -> Path:
        """What the final checkpoint did on the official task that ours implements."""
        return self.root / "official.json"

    @property
    def read_files(self) -> list[Path]:
        """Files in the folder itself from which progress, proofs and reports are read."""
        return [
            self.settings, self.heartbeat, self.metrics, self.selected, self.frozen, self.collapses, self.summary,
        ]  # fmt: skip

    @property
    def lock(self) -> Path:
        """Locked by whatever works on this cell, as long as it lives."""
        return self.root / ".dreamproof.lock"

    @property
    def evaluations(self) -> Path:
        return self.root / "evaluations"

    def evaluation(self, condition: str) -> Path:
        return self.evaluations / f"{condition}.json"


@dataclass(frozen=True)
class CheckpointFolder:
    """One committed checkpoint: its files and the record that names them."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "record.json"

    @property
    def aside(self) -> Path:
        """Where a checkpoint that cannot be used is put; nothing is deleted."""
        return self.root.with_name(f"corrupt-{self.root.name}")

    @property
    def agent_steps(self) -> int:
        """The steps in its name."""
        return named_agent_steps(self.root.name) or 0


@dataclass(frozen=True)
class AttemptFolder:
    """What one start of one process leaves behind."""

    root: Path

    @property
    def order(self) -> Path:
        """What the shim is to start."""
        return self.root / "order.json"

    @property
    def shim(self) -> Path:
        """Who the shim and its child are: boot id, pids, start times."""
        return self.root / "shim.json"

    @property
    def output(self) -> Path:
        return self.root / "output.log"

    @property
    def exit(self) -> Path:
        """How the child ended; written once, by the shim."""
        return self.root / "exit.json"

    @property
    def exit_reserve(self) -> Path:
        """Room taken for the exit record before the disk can fill up."""
        return self.root / ".exit.reserve"

    @property
    def memory(self) -> Path:
        """Resident memory over time, one row per sample."""
        return self.root / "memory.jsonl"

    @property
    def stop(self) -> Path:
        """Why and how fast the shim is to stop its child."""
        return self.root / "stop.json"

    @property
    def job(self) -> Path:
        """Which job of a cluster this attempt is."""
        return self.root / "job.json"

    @property
    def lease(self) -> Path:
        """Whether the attempt may still write; its shim reads it every second."""
        return self.root / "lease.json"

    @property
    def stacks(self) -> Path:
        """The stacks of the process when it was found stalled."""
        return self.root / "stacks.txt"


@dataclass(frozen=True)
class StudyFolder:
    """Everything one study reads and writes; it may be moved as a whole."""

    root: Path

    @property
    def declaration(self) -> Path:
        """The declaration as the ledger knows it."""
        return self.root / "study.yaml"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.jsonl"

    @property
    def ledger_head(self) -> Path:
        """How many events the ledger holds and the hash of its last one, kept apart from it."""
        return self.root / "ledger.head"

    @property
    def index(self) -> Path:
        """A cache of a long ledger's replay; it may be deleted at any time."""
        return self.root / "ledger.index.json"

    @property
    def lease(self) -> Path:
        return self.root / "lease.json"

    @property
    def stop_request(self) -> Path:
        return self.root / "stop.json"

    @property
    def sightings(self) -> Path:
        """How long each running cell has made no progress, as the supervisor counts it; it may be deleted."""
        return self.root / "sightings.json"

    @property
    def keep_running(self) -> Path:
        """Its presence cancels a shutdown that is waiting."""
        return self.root / "keep-running"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def train_status(self) -> Path:
        return self.manifests / "train_status.tsv"

    @property
    def eval_status(self) -> Path:
        return self.manifests / "eval_status.tsv"

    @property
    def preflight(self) -> Path:
        return self.manifests / "preflight.json"

    @property
    def preflight_text(self) -> Path:
        return self.manifests / "preflight.txt"

    @property
    def probes(self) -> Path:
        """Scratch run folders of the preflight, one per arm."""
        return self.root / "probes"

    def code_manifest(self, code_hash: str) -> Path:
        """The files of the code that this hash names, each with its own hash."""
        return self.manifests / "code" / f"{code_hash[:16]}.json"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    def reports_in(self, language: str) -> Path:
        """Reports in a language: English ones stand in `reports`, others in a folder of their own in it."""
        return self.reports if language == "en" else self.reports / language

    def figures_in(self, language: str) -> Path:
        """Figures in a language, in the same way."""
        return self.figures if language == "en" else self.figures / language

    def tables_in(self, language: str) -> Path:
        """Tables with text in a language, in the same way."""
        return self.tables if language == "en" else self.tables / language

    @property
    def imported(self) -> Path:
        """Tables of runs that were made elsewhere."""
        return self.root / "imported"

    @property
    def imported_results(self) -> Path:
        """Values that others reported: arm, seed, condition, checkpoint, metric, value."""
        return self.imported / "results.csv"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @staticmethod
    def run_name(cell: Cell) -> str:
        """The run folder of a cell, seen from the study folder."""
        return f"runs/{cell.arm}-seed{cell.seed}"

    def run(self, cell: Cell) -> RunFolder:
        return RunFolder(self.root / self.run_name(cell))

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    @property
    def submissions(self) -> Path:
        """What was submitted to a scheduler, one folder per call, with its output per element."""
        return self.root / "submissions"

    @property
    def cluster(self) -> Path:
        """The name of all jobs of this study."""
        return self.root / "cluster.json"

    @property
    def queue(self) -> Path:
        """The status of the study's jobs at the last poll of a supervisor."""
        return self.root / "queue.json"

    @staticmethod
    def attempt_name(number: int) -> str:
        """The name of the attempt with this number."""
        return f"a{number:06d}"

    @staticmethod
    def is_attempt_name(name: object) -> bool:
        """Whether a name from a ledger or a folder is a plain one, and so no path to elsewhere."""
        return isinstance(name, str) and ATTEMPT_NAME.match(name) is not None

    def attempt(self, name: str) -> AttemptFolder:
        return AttemptFolder(self.attempts / name)

    @property
    def archive(self) -> Path:
        """Records of all runs in one file, where a study is kept without its run folders."""
        return self.root / "runs.tar.xz"

    @property
    def export_mark(self) -> Path:
        """Stands in an exported copy of a study, which may lack checkpoints."""
        return self.root / "export.json"

    @property
    def export_list(self) -> Path:
        """Every file of an exported copy with its size and hash; the mark names the hash of this list."""
        return self.root / "files.json"

    @property
    def is_export(self) -> bool:
        """Whether this is an exported copy of a study, in which nothing was ever started.

        A ledger that was ever written has its head beside it. A mark without a list is one of an earlier version.
        """
        mark = read_json(self.export_mark)
        if not isinstance(mark, dict) or os.path.lexists(self.ledger_head):
            return False
        listed = mark.get("files_sha256") is not None
        return listed or ("version" in mark and not os.path.lexists(self.attempts))

    def relative(self, path: Path) -> str:
        """A path as the ledger writes it: relative to the study folder if it is inside."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
