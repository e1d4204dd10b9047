"""Who a process is, beyond its number: boot id, process id and start time; what the kernel says of it."""

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
DEAD_STATES = "ZX"
STATE, PARENT, USER_TICKS, SYSTEM_TICKS, START_TICKS = 0, 1, 11, 12, 19


def boot_id() -> str:
    """Names this boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(process_id: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on, or None where there is no such process."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


@dataclass(frozen=True)
class Identity:
    """One process for ever: a reused process id has another start time, a reboot another boot id."""

    boot_id: str
    process_id: int
    start_ticks: int
    host: str = ""

    @classmethod
    def of(cls, process_id: int) -> "Identity | None":
        """The identity of a process of this machine, or None where it is gone."""
        fields = _stat(process_id)
        if fields is None:
            return None
        return cls(boot_id(), process_id, int(fields[START_TICKS]), socket.gethostname())

    @classmethod
    def read(cls, value: Any) -> "Identity | None":
        """The identity in a JSON value, or None where there is no whole one."""
        try:
            return cls(
                str(value["boot_id"]), int(value["process_id"]), int(value["start_ticks"]), str(value.get("host", ""))
            )
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            return None

    def as_json(self) -> dict[str, Any]:
        """The identity as a JSON value."""
        return asdict(self)


@dataclass(frozen=True)
class ProcessFacts:
    """A living process at one instant."""

    state: str
    """Letter of the kernel: R running, S sleeping, D disk, T stopped."""
    cpu_seconds: float


def process_facts(identity: Identity, this_boot: str) -> ProcessFacts | None:
    """What the kernel says of exactly this process, or None where it is dead."""
    if identity.boot_id != this_boot:
        return None
    fields = _stat(identity.process_id)
    if fields is None or int(fields[START_TICKS]) != identity.start_ticks or fields[STATE] in DEAD_STATES:
        return None
    ticks = int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
    return ProcessFacts(fields[STATE], ticks / TICKS_PER_SECOND)


def is_alive(identity: Identity | None) -> bool:
    """Whether exactly this process lives on this machine."""
    return identity is not None and process_facts(identity, boot_id()) is not None


def signal_group(leader: Identity, number: int) -> bool:
    """Sends a signal to the process group that `leader` leads; False where it is gone."""
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


def resident_bytes(process_id: int) -> int:
    """Resident memory of one process; 0 where it is gone."""
    try:
        with open(f"/proc/{process_id}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0
