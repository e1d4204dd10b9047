"""Damages one file of a small recorded study and calls a verb over it: no traceback, no hang, other cells unharmed.

`python -m dreamproof.testing.fuzz [EXAMPLES]`; the tests run a short, repeatable part of it.
"""

import contextlib
import errno
import io
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from dreamproof.base.errors import ExitCode
from dreamproof.base.files import write_json
from dreamproof.cli.main import main as dreamproof
from dreamproof.report.figures import draw
from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.runs.records import EvaluationRecord, ExitRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study import session
from dreamproof.study.attempts.settle import prove_evaluations, prove_training
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.ledger.chain import FIRST_PREVIOUS, sealed_line
from dreamproof.study.ledger.events import AttemptEnded, AttemptStarted
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.testing.small_study import declare, write_weights

LONGEST_SECONDS = 600
CELLS = ["low/0", "low/1", "high/0", "high/1"]
STEPS = 20
ERRORS = [errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT]
CALLS = ["open", "stat", "lstat", "fstat", "scandir", "fsync", "replace", "write", "pwrite", "listdir", "unlink"]


def train(opened: OpenStudy, text: str, steps: int = STEPS) -> None:
    """Leaves what a trainer leaves of one cell."""
    writer = RunWriter(opened.folder.run(Cell.parse(text)))
    writer.beat(steps, steps, "train", agent_steps_per_second=3.0)
    writer.log({"agent_steps": steps // 2, "return": 1.0})
    writer.log({"agent_steps": steps, "return": 2.0})
    facts = {"agent_steps": steps, "gradient_steps": steps, "parameter_hash": f"{text:0>64}", "finite": True}
    writer.save(write_weights(f"{text} {steps}"), {**facts, "task": "counting"})


def evaluate(opened: OpenStudy, text: str, condition: str = "id") -> None:
    """Leaves what an evaluation leaves of one cell."""
    writer = RunWriter(opened.folder.run(Cell.parse(text)))
    final = {"agent_steps": STEPS, "gradient_steps": STEPS, "parameter_hash": f"{text:0>64}"}
    value = {"condition": condition, "kind": "proxy", "task": "counting"}
    episodes = {"return": [1.0, 2.0, 3.0 + len(text)]}
    writer.write_evaluation(
        EvaluationRecord.model_validate({**value, "checkpoints": {"final": {**final, "episodes": episodes}}})
    )


class QuickBackend:
    """Attempts that do their work the moment they start; those of an earlier supervisor are gone."""

    def __init__(self, opened: OpenStudy, from_lost_host: bool = False) -> None:
        del from_lost_host
        self.opened = opened
        self.done: set[str] = set()

    def start(self, folder: AttemptFolder) -> None:
        attempt = self.opened.state.attempts[folder.root.name]
        for text in attempt.cells:
            train(self.opened, text) if attempt.work == "train" else evaluate(self.opened, text)
        self.done.add(folder.root.name)

    def look(self, folder: AttemptFolder) -> Sighting:
        if folder.root.name in self.done:
            return Sighting(Presence.ENDED, ExitRecord(exit_code=0, wall_seconds=1.0))
        return Sighting(Presence.LOST)

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        write_json(folder.stop, {"reason": reason})

    def wait(self, seconds: float) -> None:
        time.sleep(0.001)

    def close(self) -> None:
        pass


def record_study(place: Path) -> Path:
    """A small study: two cells proven, one that an attempt works on, one that nobody began."""
    opened = open_study(declare(place, folder="study", retries={"first_wait_seconds": 0.001}))
    with session.open_ledger(opened) as ledger:
        session.declare(opened, ledger)
        session.record(opened, ledger, session.supervisor_started())
        for number, text in enumerate(CELLS[:3], start=1):
            name, is_open = f"a{number:06d}", number == 3
            start = AttemptStarted(name, "train", [text], [], ["trainer"], {text: 0})
            folder = opened.folder.attempt(name)
            write_json(folder.order, {"attempt": name, "commands": [["trainer"]], "event": start.row()})
            folder.output.write_text("[10/20] R: 1.0\n[20/20] R: 2.0\n")
            write_json(folder.shim, {"shim": {"boot_id": "x", "process_id": 7, "start_ticks": 1, "host": "box"}})
            folder.memory.write_text('{"seconds": 1.0, "bytes": 1000}\n')
            session.record(opened, ledger, start)
            train(opened, text, STEPS // 2 if is_open else STEPS)
            if is_open:
                continue
            evaluate(opened, text)
            write_json(folder.exit, {"exit_code": 0, "wall_seconds": 2.0})
            ended = AttemptEnded(name, "completed", ["exit code 0"], 2.0, {text: STEPS}, {text: STEPS})
            proof = prove_training(opened, Cell.parse(text), None, name)
            assert not isinstance(proof, str)
            session.record(opened, ledger, ended, proof)
            session.record(opened, ledger, *prove_evaluations(opened, Cell.parse(text), ["id"], name)[0])
        session.write_manifests(opened)
    write_json(opened.folder.preflight, {"rates": {"low": 3.0, "high": 4.0}, "needs": {"host_bytes": 1e9}})
    return opened.folder.root


def as_socket(path: Path) -> None:
    """A socket at a path of any length."""
    with socket.socket(socket.AF_UNIX) as server, _opened(path.parent) as folder:
        server.bind(f"/proc/self/fd/{folder}/{path.name}"[:107])


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def as_huge(path: Path) -> None:
    """Five GiB that take no room."""
    with path.open("wb") as file:
        file.truncate(5 << 30)


NODES: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": as_socket,
    "loop": lambda path: path.symlink_to(path.name),
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "huge": as_huge,
    "missing": lambda path: None,
    "unreadable": lambda path: path.touch(0o000),
}
ODD_VALUES: list[Any] = [
    None, True, -1, 0, 10**17, float("nan"), float("inf"), 1e308, "", "²", "x" * 300, "\0", "../../..", "/", [], {},
    [[]], {"a": None}, "\n", "9" * 400, "low/0", ["low/0"], "id",
]  # fmt: skip
ODD_TEXTS = [
    b"", b"\0" * 100, b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b'{"agent_steps": ' + b"9" * 400 + b"}", b"NaN",
    b'"\\ud800"', b'{"agent_steps": 1e999, "phase": "\\udfff"}', b"[[1,2],[3]]", b"\n" * 50, b"arm,seed\n\"", b"{}",
    b"arm\tseed\tstatus\nlow\t\xc2\xb2\tdone\n", b"arm\tseed\nlow\t" + b"0" * 200_000 + b"\n", b"- &a [*a]\n",
    b"a: b: c",
]  # fmt: skip
ODD_NAMES = ["step-000000000010.tmp", "step-latest", "step-", "x" * 250, "a\nb", "b\udcffc", "step-999999999999", "-"]


@dataclass(frozen=True)
class Damage:
    """What is done to which file; `content` is a node's name, bytes, or a value for one place of a JSON file."""

    way: str
    place: float
    content: Any = None
    where: float = 0.0

    def apply(self, root: Path) -> Path:
        """Damages one file below a study folder and returns it."""
        files = sorted(path for path in root.rglob("*") if not path.is_symlink())
        path = files[int(self.place * len(files))]
        if self.way == "name":
            target = (path if path.is_dir() else path.parent) / str(self.content)
            with contextlib.suppress(OSError):
                target.mkdir()
            return target
        if self.way == "value" and path.is_file():
            _change_value(path, self.where, self.content)
        elif self.way == "cut" and path.is_file():
            os.truncate(path, int(self.where * path.stat().st_size))
        elif self.way in ("node", "bytes"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            NODES[self.content](path) if self.way == "node" else path.write_bytes(self.content)
        return path


def _change_value(path: Path, where: float, value: Any) -> None:
    """Puts an odd value into a JSON file; into a ledger so that its chain holds again."""
    lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError:
        return
    place = int(where * len(rows))
    rows[place] = _replaced(rows[place], (where * len(rows)) % 1.0, value)
    if path.name == "ledger.jsonl":
        path.write_bytes(_sealed(rows))
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")


def _replaced(row: Any, where: float, value: Any) -> Any:
    if not isinstance(row, dict | list) or not row:
        return value
    keys = list(row) if isinstance(row, dict) else list(range(len(row)))
    place = where * len(keys)
    key = keys[int(place)]
    inner = (
        _replaced(row[key], place % 1.0, value) if isinstance(row[key], dict | list) and place % 1.0 > 0.3 else value
    )
    changed = dict(row) if isinstance(row, dict) else list(row)
    changed[key] = inner
    return changed


def _sealed(rows: list[Any]) -> bytes:
    previous, lines = FIRST_PREVIOUS, []
    for row in rows:
        if not isinstance(row, dict):
            continue
        line, previous = sealed_line({key: one for key, one in row.items() if key != "hash"} | {"prev": previous})
        lines.append(line)
    return b"".join(lines)


UNIT = st.floats(0.0, 1.0, exclude_max=True)
DAMAGES = st.one_of(
    st.builds(Damage, st.just("node"), UNIT, st.sampled_from(sorted(NODES))),
    st.builds(Damage, st.just("bytes"), UNIT, st.one_of(st.sampled_from(ODD_TEXTS), st.binary(max_size=200))),
    st.builds(Damage, st.just("value"), UNIT, st.sampled_from(ODD_VALUES), UNIT),
    st.builds(Damage, st.just("cut"), UNIT, st.none(), UNIT),
    st.builds(Damage, st.just("name"), UNIT, st.sampled_from(ODD_NAMES)),
)
VERBS: dict[str, list[str]] = {
    "status": ["status", "STUDY"],
    "status --json": ["status", "STUDY", "--json"],
    "watch": ["watch", "STUDY", "--once"],
    "why": ["why", "STUDY", "low/0"],
    "why, unfinished": ["why", "STUDY", "high/0", "--json"],
    "cost": ["cost", "STUDY"],
    "plan": ["plan", "STUDY"],
    "verify": ["verify", "STUDY"],
    "stop": ["stop", "STUDY", "--wait", "1"],
    "run": ["run", "STUDY", "--no-check", "--no-report", "--plain"],
    "import": ["import", "FILE", "STUDY/runs"],
    "import, adapted": ["import", "FILE", "STUDY/runs", "--dry-run", "--adapter", "embodied"],
    "import, jsonl": ["import", "FILE", "STUDY/runs", "--dry-run", "--adapter", "jsonl"],
    "import, lines": ["import", "FILE", "STUDY/runs", "--dry-run", "--adapter", "bracket_lines"],
    "import table": ["import", "FILE", "STUDY/manifests/train_status.tsv", "--dry-run"],
    "export": ["export", "STUDY", "TARGET"],
    "report": ["report", "STUDY"],
}


class TooLong(BaseException):
    """A verb did not come to its end."""


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raises TooLong in a verb that hangs; only the main thread can be interrupted."""

    def stop(*_: object) -> None:
        raise TooLong

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(verb: str, root: Path) -> int:
    """Runs a verb in this process as a person would; raises what would be a traceback."""
    names = {"STUDY": str(root), "FILE": str(root.parent / "small.yaml"), "TARGET": str(root.parent / "exported")}
    argv = [names.get(word, word.replace("STUDY/", f"{root}/")) for word in VERBS[verb]]
    figures = mock.patch.object(draw, "draw_all", return_value={})
    backend = mock.patch.object(session, "make_backend", QuickBackend)
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with (
        mock.patch.object(sys, "argv", ["dreamproof", *argv]),
        figures,
        backend,
        silent[0],
        silent[1],
        time_limit(),
    ):
        try:
            dreamproof()
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def survive(recorded: Path, damage: Damage, verb: str) -> str:
    """Damages a copy of a study, calls a verb and returns how it ended; raises if it must not end so."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        place = Path(scratch) / "copy"
        shutil.copytree(recorded.parent, place)
        root = place / recorded.name
        damaged = damage.apply(root)
        code = call(verb, root)
        assert code in set(ExitCode), f"exit code {code}"
        if verb == "run":
            _check_others(root, damaged)
        return f"{verb}: {ExitCode(code).name}"


def _check_others(root: Path, damaged: Path) -> None:
    """Where one run folder was damaged, every other cell is proven after `run`."""
    inside = damaged.relative_to(root).parts
    if len(inside) < 2 or inside[0] != "runs":
        return
    state = open_study(root).state
    for cell, known in state.cells.items():
        if inside[1] != f"{cell.arm}-seed{cell.seed}":
            assert state.trained(known), f"{cell} is not trained after {'/'.join(inside)} was damaged"


@contextlib.contextmanager
def failing_call(name: str, index: int, number: int, lasting: bool) -> Iterator[None]:
    """Lets the `index`-th call of an os function fail, or all from there on."""
    real, seen = getattr(os, name), [0]

    def wrapped(*arguments: Any, **named: Any) -> Any:
        seen[0] += 1
        if seen[0] == index + 1 or (lasting and seen[0] > index and number != errno.ENOSPC):  # `run` waits for room
            raise OSError(number, os.strerror(number), str(arguments[0])[:200] if arguments else None)
        return real(*arguments, **named)

    with mock.patch.object(os, name, wrapped):
        yield


FAILURES = st.tuples(st.sampled_from(CALLS), st.integers(0, 60), st.sampled_from(ERRORS), st.booleans())


def survive_failure(recorded: Path, failure: tuple[str, int, int, bool], verb: str) -> str:
    """Calls a verb over a whole study while the system fails."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        place = Path(scratch) / "copy"
        shutil.copytree(recorded.parent, place)
        with failing_call(*failure):
            code = call(verb, place / recorded.name)
        assert code in set(ExitCode), f"exit code {code}"
        return f"{verb}: {ExitCode(code).name}"


def main() -> None:
    """Fuzzes for as many examples as asked for and prints how the verbs ended."""
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    ends: Counter[str] = Counter()
    shared = settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        recorded = record_study(Path(scratch) / "recorded")

        @shared
        @given(DAMAGES, st.sampled_from(sorted(VERBS)))
        def damaged(damage: Damage, verb: str) -> None:
            ends[f"damaged, {survive(recorded, damage, verb)}"] += 1

        @shared
        @given(FAILURES, st.sampled_from(sorted(VERBS)))
        def failing(failure: tuple[str, int, int, bool], verb: str) -> None:
            ends[f"failing, {survive_failure(recorded, failure, verb)}"] += 1

        damaged()
        failing()
    for name, count in sorted(ends.items()):
        print(f"{count:6}  {name}")
    print(f"{sum(ends.values()):6}  in all: no traceback, no hang, other cells unharmed")


if __name__ == "__main__":
    main()
