"""Keeps a supervisor of a small study running and injects one fault at a time."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from dreamproof.base.errors import ExitCode
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.process.processes import ProcessIdentity, is_alive
from dreamproof.study.supervisor import Ending
from dreamproof.testing.fault_kinds import ODD_BEATS, ONCE_A_CELL, ONCE_A_CELL_TOGETHER, SCRIPTED, Fault
from dreamproof.testing.fault_study import AGENT_STEPS
from dreamproof.testing.waiting import HANG_SECONDS

COMMAND = [sys.executable, "-m", "dreamproof.cli.main"]
RUN = [*COMMAND, "run"]
STUDY_SECONDS = 2 * HANG_SECONDS


class Driver:
    """One study under fire: keeps a supervisor running, injects faults, and looks at what came of it."""

    def __init__(self, file: Path, chance: random.Random) -> None:
        self.file = file
        self.chance = chance
        self.faults: list[Fault] = []
        self.hit: set[str] = set()
        self.injected_kinds: Counter[tuple[str, str]] = Counter()
        self.damaged_checkpoints: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.supervisor = self.start_supervisor()

    def start_supervisor(self) -> subprocess.Popen[bytes]:
        """Runs the study in a process of its own, as a person would."""
        command = [*RUN, str(self.file), "--no-check", "--no-report", "--plain"]
        log = self.file.with_suffix(".log").open("ab")
        with log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def kill_supervisor(self) -> bool:
        """Kills it, whatever it was doing; False where it had ended by itself."""
        if self.supervisor.poll() is not None:
            return False
        self.supervisor.kill()
        self.supervisor.wait()
        return True

    def opened(self) -> OpenStudy:
        """The study as its ledger stands."""
        return open_study(self.file)

    def targets(self, opened: OpenStudy, work: str = "train") -> list[AttemptState]:
        """Open attempts that were not hit as yet."""
        return [one for one in opened.state.open_attempts.values() if one.name not in self.hit and one.work == work]

    def identities(
        self, opened: OpenStudy, attempt: AttemptState
    ) -> tuple[ProcessIdentity | None, ProcessIdentity | None]:
        """Shim and child of an attempt, as its folder names them."""
        try:
            value = json.loads(opened.folder.attempt(attempt.name).shim.read_bytes())
        except (OSError, ValueError):
            return None, None
        return ProcessIdentity.read(value.get("shim")), ProcessIdentity.read(value.get("child"))

    def inject(self, kind: str) -> bool:
        """Injects one fault; False where nothing was there to be hit."""
        fault = getattr(self, INJECTORS[kind])(kind)
        if fault is None:
            return False
        self.faults.append(fault)
        if fault.attempt is not None:
            self.hit.add(fault.attempt)
        return True

    def _running_target(self, kind: str) -> tuple[OpenStudy, AttemptState, ProcessIdentity, ProcessIdentity] | None:
        opened = self.opened()
        for attempt in self.chance.sample(found := self.targets(opened), len(found)):
            shim, child = self.identities(opened, attempt)
            if kind in ONCE_A_CELL and self.injected_kinds[attempt.cells[0], kind]:
                continue
            earlier = sum(self.injected_kinds[attempt.cells[0], other] for other in ONCE_A_CELL_TOGETHER)
            if kind in ONCE_A_CELL_TOGETHER and earlier:
                continue
            if shim is not None and child is not None and is_alive(child) and is_alive(shim):
                return opened, attempt, shim, child
        return None

    def kill_attempt(self, kind: str) -> Fault | None:
        found = self._running_target(kind)
        if found is None:
            return None
        _, attempt, shim, child = found
        alone = {"kill -9 trainer": [child], "kill -9 wrapper": [child], "kill -9 shim": [shim]}
        for process in alone.get(kind, [shim, child]):
            try:
                os.kill(process.process_id, signal.SIGKILL)
            except ProcessLookupError:
                return None
        return Fault(kind, attempt.name)

    def stop_attempt(self, kind: str) -> Fault | None:
        found = self._running_target(kind)
        if found is None:
            return None
        try:
            os.kill(found[3].process_id, signal.SIGSTOP)
        except ProcessLookupError:
            return None
        return Fault(kind, found[1].name)

    def signal_attempt(self, kind: str) -> Fault | None:
        """Signals that must have no effect: a hangup or a stop of the shim, a pause of the trainer."""
        found = self._running_target(kind)
        if found is None:
            return None
        _, attempt, shim, child = found
        process = child if kind == "SIGSTOP and SIGCONT" else shim
        try:
            os.kill(process.process_id, signal.SIGHUP if kind == "SIGHUP shim" else signal.SIGSTOP)
            if kind == "SIGSTOP and SIGCONT":
                time.sleep(0.3)
                os.kill(process.process_id, signal.SIGCONT)
        except ProcessLookupError:
            return None
        return Fault(kind, attempt.name)

    def put_odd_file(self, kind: str) -> Fault | None:
        """Puts something into a run folder that no reader may stumble over; the next beat replaces it."""
        found = self._running_target(kind)
        if found is None:
            return None
        run = found[0].folder.runs / found[1].cells[0].replace("/", "-seed")
        draft = run / f".odd-{len(self.faults)}"
        if kind == "odd checkpoint names":
            for name in ("step-latest", "step-000000000010.tmp", "step-" + "9" * 200):
                (run / "checkpoints" / name).mkdir(parents=True, exist_ok=True)
            return Fault(kind)
        if kind == "heartbeat is a pipe":
            os.mkfifo(draft)
        elif kind == "heartbeat is a link loop":
            draft.symlink_to("heartbeat.json")
        else:
            draft.write_text(self.chance.choice(ODD_BEATS), errors="surrogatepass")
        heartbeat = run / "heartbeat.json"
        os.replace(draft, heartbeat)
        until = time.monotonic() + 3.0
        while time.monotonic() < until and not (heartbeat.is_file() and not heartbeat.is_symlink()):
            time.sleep(0.01)
        if heartbeat.is_symlink() or not heartbeat.is_file():  # its trainer died meanwhile: a person repairs it
            heartbeat.unlink(missing_ok=True)
        return Fault(kind)

    def stop_by_person(self, kind: str) -> Fault | None:
        """Somebody stops the study, politely, and starts it again."""
        if self.supervisor.poll() is not None:
            return None
        fault = Fault(kind)
        if kind == "stop":
            done = subprocess.run([*COMMAND, "stop", str(self.file)], capture_output=True, check=False)
            if done.returncode != ExitCode.OK:
                fault.wrong = f"stop ended with {done.returncode}: {done.stderr.decode()[:200]}"
        else:
            self.supervisor.send_signal(signal.SIGTERM if kind == "SIGTERM supervisor" else signal.SIGINT)
        try:
            self.supervisor.wait(STUDY_SECONDS)
        except subprocess.TimeoutExpired:
            fault.wrong = f"the supervisor did not end after '{kind}'"
            self.kill_supervisor()
        self.supervisor = self.start_supervisor()
        return fault

    def stop_copy(self, kind: str) -> Fault | None:
        """A stop of a copy must end nothing here."""
        opened = self.opened()
        copy = self.file.parent / f"copy-{len(self.faults)}"
        if not opened.folder.ledger.exists():
            return None
        subprocess.run(["cp", "-a", str(opened.folder.root), str(copy)], capture_output=True, check=False)
        done = subprocess.run([*COMMAND, "stop", str(copy)], capture_output=True, check=False)
        shutil.rmtree(copy, ignore_errors=True)
        fault = Fault(kind)
        if done.returncode not in (ExitCode.OK, ExitCode.BROKEN_EVIDENCE):
            fault.wrong = f"stop of a copy ended with {done.returncode}: {done.stderr.decode()[:200]}"
        return fault

    def inject_scripted(self, kind: str) -> Fault | None:
        """Injects a fault into the next step of the trainer and waits for it."""
        found = self._running_target(kind)
        if found is None:
            return None
        opened, attempt, _, child = found
        run = opened.folder.runs / attempt.cells[0].replace("/", "-seed")
        counted = run / "faults_injected"
        before = len(counted.read_text()) if counted.exists() else 0
        draft = run / ".fault"
        draft.write_text(json.dumps({"at": 0, "kind": SCRIPTED[kind], "times": before + 1}))
        os.replace(draft, run / "fault.json")
        until = time.monotonic() + HANG_SECONDS
        while time.monotonic() < until and is_alive(child):
            if counted.exists() and len(counted.read_text()) > before:
                break
            time.sleep(0.01)
        (run / "fault.json").unlink(missing_ok=True)
        hit = counted.exists() and len(counted.read_text()) > before
        if not hit:
            return None
        self.injected_kinds[attempt.cells[0], kind] += 1
        if kind == "full disk":
            time.sleep(0.5)
            (run / "fill").unlink(missing_ok=True)
        return Fault(kind, attempt.name)

    def damage_checkpoint(self, kind: str) -> Fault | None:
        """Damages the newest checkpoint and kills the trainer before it writes another."""
        found = self._running_target(kind)
        if found is None:
            return None
        opened, attempt, _, child = found
        try:
            os.kill(child.process_id, signal.SIGKILL)
        except ProcessLookupError:
            return None
        run = opened.folder.runs / attempt.cells[0].replace("/", "-seed")
        checkpoints = sorted((run / "checkpoints").glob("step-" + "[0-9]" * 12))
        if not checkpoints or int(checkpoints[-1].name.removeprefix("step-")) >= AGENT_STEPS:
            return Fault("kill -9 trainer", attempt.name, "no checkpoint to damage")
        weights = checkpoints[-1] / "weights.json"
        content = weights.read_bytes()
        half = content[: len(content) // 2]
        weights.write_bytes(half if kind == "torn checkpoint" else half + b"?" + content[len(half) + 1 :])
        self.damaged_checkpoints[attempt.cells[0]] += 1
        return Fault(kind, attempt.name)

    def restart_supervisor(self, kind: str) -> Fault | None:
        if not self.kill_supervisor():
            return None
        self.supervisor = self.start_supervisor()
        return Fault(kind)

    def kill_starting_supervisor(self, kind: str) -> Fault | None:
        if not self.kill_supervisor():
            return None
        self.supervisor = self.start_supervisor()
        time.sleep(self.chance.uniform(0.1, 0.9))
        killed = self.kill_supervisor()
        self.supervisor = self.start_supervisor()
        return Fault(kind if killed else "kill -9 supervisor")

    def tear_ledger(self, kind: str) -> Fault | None:
        """Cuts into the last line, or takes it away whole, as a crash between two disks may."""
        ledger = self.opened().folder.ledger
        if not ledger.exists() or not self.kill_supervisor():
            return None
        lines = ledger.read_bytes().splitlines(keepends=True)
        if len(lines) > 3:
            kept = b"".join(lines[:-1])
            rest = lines[-1][: self.chance.randrange(1, len(lines[-1]))] if kind == "torn ledger" else b""
            ledger.write_bytes(kept + rest)
        self.supervisor = self.start_supervisor()
        return Fault(kind)

    def edit_ledger(self, kind: str) -> Fault | None:
        """Changes a line in the middle: run must refuse, verify must name the line; then the copy is put back."""
        ledger = self.opened().folder.ledger
        if not ledger.exists() or not self.kill_supervisor():
            return None
        whole = ledger.read_bytes()
        lines = whole.splitlines(keepends=True)
        place = self.chance.randrange(len(lines))
        lines[place] = lines[place].replace(b'"t":1', b'"t":2', 1)
        ledger.write_bytes(b"".join(lines))
        fault = Fault(kind)
        for verb in ("run", "verify"):
            done = subprocess.run([*COMMAND, verb, str(self.file)], capture_output=True, check=False)
            named = f"line {place + 1} ".encode() in done.stderr
            if done.returncode != ExitCode.BROKEN_EVIDENCE or not named:
                fault.wrong = f"{verb} ended with {done.returncode}: {done.stderr.decode()[:200]}"
        ledger.write_bytes(whole)
        self.supervisor = self.start_supervisor()
        return fault

    def second_supervisor(self, kind: str) -> Fault | None:
        """A second run beside the first: the one that comes later to the lock must be refused and start nothing."""
        if self.supervisor.poll() is not None:
            return None
        command = [*RUN, str(self.file), "--no-check", "--no-report", "--plain"]
        if kind == "supervisor in a second container":
            command = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child", *command]
        done = subprocess.run(command, capture_output=True, check=False)
        if self.supervisor.poll() == ExitCode.BUSY:  # it had only just begun, and the second was quicker
            self.supervisor = self.start_supervisor()
            return Fault(kind)
        if self.supervisor.poll() is not None or b"Operation not permitted" in done.stderr:
            return None
        if done.returncode == ExitCode.OK and self._first_was_done():
            return None
        fault = Fault(kind)
        if done.returncode != ExitCode.BUSY:
            fault.wrong = f"a second run ended with {done.returncode}: {done.stderr.decode()[:200]}"
        return fault

    def _first_was_done(self) -> bool:
        """Whether the first supervisor had recorded its end, and only printed, when the second one began."""
        before = self.opened().state.supervisors[-2:-1]
        return bool(before) and before[0].reason == Ending.COMPLETE.value

    def finish(self) -> None:
        """Lets the study end by itself."""
        until = time.monotonic() + STUDY_SECONDS
        while time.monotonic() < until:
            if self.supervisor.poll() is None:
                time.sleep(0.1)
            elif self.supervisor.returncode == ExitCode.OK:
                return
            else:
                self.wrong.append(f"{self.file.name}: run ended with {self.supervisor.returncode}: {self.log_tail()}")
                return
        self.kill_supervisor()
        self.wrong.append(f"{self.file.name}: not over after {STUDY_SECONDS:g} s")

    def log_tail(self) -> str:
        """The end of what the supervisors printed."""
        return self.file.with_suffix(".log").read_text(errors="replace")[-400:]


INJECTORS = {
    "kill -9 trainer": "kill_attempt",
    "kill -9 shim": "kill_attempt",
    "kill -9 shim and trainer": "kill_attempt",
    "kill -9 supervisor": "restart_supervisor",
    "kill -9 supervisor as it starts": "kill_starting_supervisor",
    "SIGSTOP": "stop_attempt",
    "torn checkpoint": "damage_checkpoint",
    "corrupted checkpoint": "damage_checkpoint",
    "torn ledger": "tear_ledger",
    "lost ledger line": "tear_ledger",
    "edited ledger": "edit_ledger",
    "two supervisors": "second_supervisor",
    "supervisor in a second container": "second_supervisor",
    "SIGTERM supervisor": "stop_by_person",
    "Ctrl-C": "stop_by_person",
    "stop": "stop_by_person",
    "stop of a copy": "stop_copy",
    "SIGHUP shim": "signal_attempt",
    "SIGSTOP shim": "signal_attempt",
    "SIGSTOP and SIGCONT": "signal_attempt",
    "kill -9 wrapper": "kill_attempt",
    "kill -9 shim and wrapper": "kill_attempt",
    "odd checkpoint names": "put_odd_file",
    "heartbeat is a pipe": "put_odd_file",
    "heartbeat is a link loop": "put_odd_file",
    "heartbeat of garbage": "put_odd_file",
    **dict.fromkeys(SCRIPTED, "inject_scripted"),
}
