"""The identity of a process: boot, pid namespace, process id and start time; and its state in the kernel."""

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
DEAD_STATES = "ZX"
ATTEMPT_VARIABLE = "DREAMPROOF_ATTEMPT"
"""Set in every process of an attempt, so that what outlives its parents is still known."""
STATE, PARENT, USER_TICKS, SYSTEM_TICKS, START_TICKS = 0, 1, 11, 12, 19


def boot_id() -> str:
    """Names this boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Names the pid namespace of this process: processes of another container cannot be seen from here."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _stat(process_id: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on, or None if there is no such process."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


@dataclass(frozen=True)
class ProcessIdentity:
    """One process forever: a reused process id has another start time, a reboot another boot id."""

    boot_id: str
    process_id: int
    start_ticks: int
    host: str = ""
    pid_namespace: str = ""
    """Empty in records from before it was written."""

    @classmethod
    def of(cls, process_id: int) -> "ProcessIdentity | None":
        """The identity of a process of this machine, or None if it is gone."""
        fields = _stat(process_id)
        if fields is None:
            return None
        return cls(boot_id(), process_id, int(fields[START_TICKS]), socket.gethostname(), pid_namespace())

    @classmethod
    def read(cls, value: Any) -> "ProcessIdentity | None":
        """The identity in a JSON value, or None if there is no whole one."""
        try:
            return cls(
                str(value["boot_id"]),
                int(value["process_id"]),
                int(value["start_ticks"]),
                str(value.get("host", "")),
                str(value.get("pid_namespace", "")),
            )
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            return None

    def as_json(self) -> dict[str, Any]:
        """The identity as a JSON value."""
        return asdict(self)

    @property
    def is_visible(self) -> bool:
        """Whether a living process of this identity could be seen from here: same boot, same pid namespace."""
        return self.boot_id == boot_id() and self.pid_namespace in ("", pid_namespace())

    @property
    def can_be_judged(self) -> bool:
        """Whether it is certain here if the process lives: it could be seen, or this machine was restarted since."""
        return self.is_visible or (self.boot_id != boot_id() and self.host == socket.gethostname())


@dataclass(frozen=True)
class ProcessFacts:
    """A living process at one instant."""

    state: str
    """Letter of the kernel: R running, S sleeping, D disk, T stopped."""
    cpu_seconds: float


def process_facts(identity: ProcessIdentity, this_boot: str) -> ProcessFacts | None:
    """The kernel's facts about exactly this process, or None if it is dead."""
    if identity.boot_id != this_boot or identity.pid_namespace not in ("", pid_namespace()):
        return None
    fields = _stat(identity.process_id)
    if fields is None or int(fields[START_TICKS]) != identity.start_ticks or fields[STATE] in DEAD_STATES:
        return None
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
    return ProcessFacts(fields[STATE], ticks / TICKS_PER_SECOND)


def is_alive(identity: ProcessIdentity | None) -> bool:
    """Whether exactly this process lives on this machine."""
    return identity is not None and process_facts(identity, boot_id()) is not None


def signal_group(leader: ProcessIdentity, number: int) -> bool:
    """Sends a signal to the process group that `leader` leads; False if it is gone."""
    try:
        os.killpg(leader.process_id, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def family(process_id: int) -> list[int]:
    """Process ids below one process, parents before children; reads the whole process table."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else None
        if fields is not None and fields[STATE] not in DEAD_STATES:
            children.setdefault(int(fields[PARENT]), []).append(int(name))
    found: list[int] = []
    waiting = [process_id]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.extend(below)
        waiting.extend(below)
    return found


def processes_with_variable(variable: str, value: str) -> list[int]:
    """Living processes that were started with this environment variable, whatever their parent is now."""
    wanted = f"{variable}={value}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and wanted in _environment(name) and _is_living(int(name)):
            found.append(int(name))
    return found


def _environment(process_id: str) -> list[bytes]:
    try:
        with open(f"/proc/{process_id}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # gone, or another user's
        return []


def _is_living(process_id: int) -> bool:
    fields = _stat(process_id)
    return fields is not None and fields[STATE] not in DEAD_STATES


def has_variable(process_id: int, variable: str) -> bool:
    """Whether a process was started with this environment variable; False if it cannot be read."""
    prefix = f"{variable}=".encode()
    return any(entry.startswith(prefix) for entry in _environment(str(process_id)))


def cpu_and_io(process_id: int) -> tuple[float, float]:
    """CPU seconds and bytes read and written by one process so far; zeros if it is gone or not ours."""
    fields = _stat(process_id)
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS]) if fields is not None else 0
    try:
        with open(f"/proc/{process_id}/io", "rb") as file:
            rows = dict(line.split(b": ") for line in file.read().splitlines())
        moved = float(rows.get(b"rchar", 0)) + float(rows.get(b"wchar", 0))
    except (OSError, ValueError):
        moved = 0.0
    return ticks / TICKS_PER_SECOND, moved


def is_runnable(process_id: int) -> bool:
    """Whether a thread of this process runs, waits for a core (R) or for a disk (D) at this instant."""
    try:
        threads = os.listdir(f"/proc/{process_id}/task")
    except OSError:
        return False
    states = (_stat(int(thread)) for thread in threads)
    return any(fields is not None and fields[STATE] in "RD" for fields in states)


def is_stopped(process_id: int) -> bool:
    """Whether a signal stopped this process (state T)."""
    fields = _stat(process_id)
    return fields is not None and fields[STATE] in "Tt"


def resident_bytes(process_id: int) -> int:
    """Resident memory of one process; 0 if it is gone."""
    try:
        with open(f"/proc/{process_id}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0
