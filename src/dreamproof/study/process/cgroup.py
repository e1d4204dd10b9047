"""The kernel's memory controller (cgroup v1 or v2): counts its kills and, where allowed, limits one attempt."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
OOM_PATTERN = re.compile(r"oom-kill|oom_kill|[Oo]ut of memory|Killed process")
KERNEL_HEAD = re.compile(r"^\d+,\d+,(\d+),")
KERNEL_CLOCK_SLACK_SECONDS = 5.0
MAX_KERNEL_LINES = 4
OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def own_group(table: str, mount: Path = MOUNT) -> Path | None:
    """The memory controller's folder of this process, from the text of /proc/self/cgroup."""
    for line in table.splitlines():
        _, controllers, place = line.split(":", 2)
        if "memory" in controllers.split(","):
            inside = mount / "memory" / place.lstrip("/")
            return inside if inside.is_dir() else mount / "memory"
    for line in table.splitlines():
        if line.startswith("0::"):
            inside = mount / line[3:].lstrip("/")
            for folder in (inside, mount, mount / "unified"):
                if (folder / "memory.events").is_file():
                    return folder
    return None


def find_own_group() -> Path | None:
    """The memory controller's folder of this process, or None if there is none to read."""
    try:
        return own_group(Path("/proc/self/cgroup").read_text())
    except (OSError, ValueError):
        return None


def kill_count(group: Path | None) -> int | None:
    """Processes of the group that the memory controller killed so far; None if it cannot be read."""
    if group is None:
        return None
    for name in ("memory.oom_control", "memory.events"):
        try:
            found = OOM_KILL.search((group / name).read_text())
        except OSError:
            continue
        if found:
            return int(found[1])
    return None


def make_limited_group(parent: Path | None, name: str, limit_bytes: int) -> Path | None:
    """A group below `parent` that may hold `limit_bytes`; None if this user may not make one."""
    if parent is None:
        return None
    group = parent / name
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    for limit in (group / "memory.limit_in_bytes", group / "memory.max"):
        if limit.exists():
            try:
                limit.write_text(str(limit_bytes))
            except OSError:
                break
            _forbid_swap(group, limit_bytes)
            return group
    with suppress(OSError):
        group.rmdir()
    return None


def _forbid_swap(group: Path, limit_bytes: int) -> None:
    """Memory that moves to swap would pass the limit unseen; kernels without swap accounting lack these files."""
    for name, value in (("memory.memsw.limit_in_bytes", str(limit_bytes)), ("memory.swap.max", "0")):
        with suppress(OSError):
            (group / name).write_text(value)


def enter(group: Path, process_id: int) -> bool:
    """Moves a process into the group."""
    try:
        (group / "cgroup.procs").write_text(str(process_id))
    except OSError:
        return False
    return True


def remove(group: Path) -> None:
    """Ends what is left in the group and removes it."""
    with suppress(OSError):
        for word in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(word), signal.SIGKILL)
        group.rmdir()


def remove_left(attempt: str, shim_process_id: int) -> None:
    """Removes the empty group that a killed shim left behind; one in which something lives stays."""
    own = find_own_group()
    if own is not None and "/" not in attempt:
        with suppress(OSError):
            (own / group_name(attempt, shim_process_id)).rmdir()


def group_name(attempt: str, shim_process_id: int) -> str:
    """The group of one attempt: its shim distinguishes it from one of the same name in another study."""
    return f"dreamproof-{attempt}-{shim_process_id}"


def kernel_lines(process_ids: set[int], since_monotonic_seconds: float) -> list[str]:
    """What the kernel logged about running out of memory and these processes; nothing if it may not be read."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found: list[str] = []
    try:
        while True:
            try:
                line = os.read(descriptor, 8192).decode("utf-8", errors="replace")
            except BrokenPipeError:
                continue  # the oldest lines were overwritten while reading
            except OSError:
                break
            if _mentions(line, process_ids, since_monotonic_seconds):
                found.append(line.split(";", 1)[-1].split("\n", 1)[0])
    finally:
        os.close(descriptor)
    return found[-MAX_KERNEL_LINES:]


def _mentions(line: str, process_ids: set[int], since_monotonic_seconds: float) -> bool:
    head = KERNEL_HEAD.match(line)
    if head is None or int(head[1]) / 1e6 < since_monotonic_seconds - KERNEL_CLOCK_SLACK_SECONDS:
        return False
    numbers = {int(number) for number in re.findall(r"(?:pid=|[Pp]rocess )(\d+)", line)}
    return bool(numbers & process_ids) and OOM_PATTERN.search(line) is not None
