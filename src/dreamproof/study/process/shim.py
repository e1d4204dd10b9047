"""The parent of one attempt: starts its commands, knows exactly how they ended, and outlives the supervisor.

Started as `python -m dreamproof.study.process.shim ATTEMPT_DIR`. It needs the standard library only and starts quickly.
"""

import ctypes
import errno
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamproof.base.files import is_full, new_temp_file, open_own_file, read_json
from dreamproof.base.lines import append_rows
from dreamproof.base.locks import try_lock
from dreamproof.runs.layout import AttemptFolder
from dreamproof.study.process import cgroup
from dreamproof.study.process.processes import ProcessIdentity, family, resident_bytes

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LISTENED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1}
LIMIT_IS_NEAR = signal.SIGUSR1
LONGEST_SAMPLE_GAP_SECONDS = 10.0
FAMILY_EVERY_SAMPLES = 6
STOP_FILE_GAP_SECONDS = 1.0
EXIT_RESERVE_BYTES = 16384
CLAIM_BYTES = 2048
OUTPUT_RESERVE_BYTES = 65536
FALLOC_FL_KEEP_SIZE = 1
LIBC = ctypes.CDLL(None, use_errno=True)
CANNOT_START = 127
LEFTOVER_SECONDS = 5.0
"""What a command that ended by itself left running gets to end as well."""
FAMILY_GAP_SECONDS = 0.1
LOCK_SECONDS = 10.0
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass
class Child:
    """The command that runs, and what was seen of it."""

    process_id: int
    spawn_error: str | None = None
    status: int | None = None
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    is_over: bool = False
    """Whether the command and everything it started have ended."""
    seen_process_ids: set[int] = field(default_factory=set)


class Shim:
    """One attempt from its claim to its exit record."""

    def __init__(self, folder: AttemptFolder) -> None:
        self.folder = folder
        self.order: dict[str, Any] = json.loads(folder.order.read_bytes())
        self.started = time.monotonic()
        self.started_unix_seconds = time.time()
        self.asked_to_stop: str | None = None
        self.limit_is_near = False
        self.status = CANNOT_START << 8
        self.lease_seconds: float | None = self.order.get("lease_seconds")
        self.lease_seen = self.started
        self.kill_at: float | None = None
        self.stop_began: float | None = None
        self.killed_after_seconds: float | None = None
        self.next_sample = self.started + 1.0
        self.samples = 0
        self.locks: list[int] = []
        own = cgroup.find_own_group()
        self.limit_bytes: int | None = self.order.get("memory_limit_bytes")
        self.group: Path | None = None
        if self.limit_bytes is not None:
            name = cgroup.group_name(self.order["attempt"], os.getpid())
            self.group = cgroup.make_limited_group(own, name, self.limit_bytes)
        self.counted_group = self.group or own
        self.kills_before = cgroup.kill_count(self.counted_group)

    def run(self) -> None:
        """Runs the order's commands one after the other and writes the exit record."""
        self._reserve_disk_space()
        child = Child(0)
        blocked = self._lock_runs()
        for command in self.order["commands"] if blocked is None else ():
            child = self._start(command)
            self._wait_for_end(child)
            if child.status != 0 or self.asked_to_stop is not None:
                break
        if blocked is not None:
            self.asked_to_stop = f"locked: {blocked}"
        for descriptor in self.locks:
            os.close(descriptor)  # no process of the attempt is left, so its cells are free before its exit is recorded
        self.status = child.status if child.status is not None else self.status
        self._write_exit(child)
        self._release_output()
        if self.group is not None:
            cgroup.remove(self.group)

    def _lock_runs(self) -> str | None:
        """Locks the cells' run folders for this process and all it starts; why not, where another process holds one.

        The lock ends with the last process that inherited it, so a trainer that outlives this shim keeps its cell.
        """
        until = time.monotonic() + LOCK_SECONDS
        for name in self.order.get("locks", []):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            os.set_inheritable(descriptor, True)
            self.locks.append(descriptor)
            while not try_lock(descriptor):
                if time.monotonic() >= until:
                    return f"{name} is locked: another process works on this cell"
                time.sleep(0.1)  # a reader may hold it for an instant
        return None

    def _start(self, command: list[str]) -> Child:
        """Forks the child; it executes the command only after its identity is on disk."""
        gate_out, gate_in = os.pipe()
        error_out, error_in = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            os.close(gate_in)
            os.close(error_out)
            _become_command(self.order, command, self.folder.output, (gate_out, error_in))
        os.close(gate_out)
        os.close(error_in)
        with suppress(OSError):
            os.setpgid(process_id, process_id)
        child = Child(process_id, seen_process_ids={process_id})
        if self.group is not None and not cgroup.enter(self.group, process_id):
            cgroup.remove(self.group)
            self.group = None
        identity = ProcessIdentity.of(process_id)
        who = {"shim": own_identity(), "child": identity.as_json() if identity else None}
        rewrite_claim(self.folder, {**who, "place": folder_inode(self.folder)})
        os.write(gate_in, b"g")
        os.close(gate_in)
        with os.fdopen(error_out, "rb") as pipe:
            child.spawn_error = pipe.read().decode("utf-8", errors="replace") or None
        return child

    def _wait_for_end(self, child: Child) -> None:
        """Waits for the end of the command and of all it started; passes a stop on to all of them; samples memory."""
        while not child.is_over:
            now = time.monotonic()
            gap = STOP_FILE_GAP_SECONDS if child.status is None else FAMILY_GAP_SECONDS
            until = min(self.next_sample, now + gap, self.kill_at or now + 3600.0)
            heard = signal.sigtimedwait(LISTENED, max(0.0, until - now))
            self._reap(child)
            if child.status is not None and self._is_family_over(child):
                return
            asked = heard is not None and heard.si_signo == signal.SIGTERM
            if heard is not None and heard.si_signo == LIMIT_IS_NEAR and self.asked_to_stop is None:
                self.limit_is_near = True
                self._begin_stop(child, "timeout: the time limit is near")
                self.kill_at = None  # the limit itself ends what does not end
            self._check_lease(child)
            if self.asked_to_stop is None and (asked or self.folder.stop.exists()):
                self._begin_stop(child)
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                _signal_family(child.process_id, signal.SIGKILL)
                self.kill_at = time.monotonic() + 1.0
                if self.stop_began is not None and self.killed_after_seconds is None:
                    self.killed_after_seconds = round(time.monotonic() - self.stop_began, 1)
            if time.monotonic() >= self.next_sample:
                self._sample(child)

    def _is_family_over(self, child: Child) -> bool:
        """Whether nothing is left of an ended command; what is left is asked to end, once, and gets its time."""
        child.is_over = not family(os.getpid())
        if not child.is_over and self.kill_at is None:
            killed = child.status is not None and os.WIFSIGNALED(child.status)
            patient = killed or self.asked_to_stop is not None
            grace = float(self.order.get("stop_grace_seconds", 60.0)) if patient else LEFTOVER_SECONDS
            self.kill_at = time.monotonic() + grace
            if self.asked_to_stop is None:
                _signal_family(child.process_id, signal.SIGTERM)
        return child.is_over

    def _check_lease(self, child: Child) -> None:
        """Kills the child at once where its lease was taken away, or could not be read for too long."""
        if self.lease_seconds is None:
            return
        try:
            lease = read_json(self.folder.lease)  # opening a file asks the server; a look for a missing one may not
        except OSError:
            lease = None
        if isinstance(lease, dict) and "fenced" not in lease:
            self.lease_seen = time.monotonic()
            return
        fenced = lease["fenced"] if isinstance(lease, dict) else None
        if fenced is None and time.monotonic() - self.lease_seen < self.lease_seconds:
            return
        self.asked_to_stop = f"fenced: {fenced or f'its lease could not be read for {self.lease_seconds:g} s'}"
        _signal_family(child.process_id, signal.SIGKILL)

    def _reap(self, child: Child) -> None:
        while True:
            try:
                process_id, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process_id == 0:
                return
            if process_id == child.process_id:
                child.status = status
                child.cpu_seconds = usage.ru_utime + usage.ru_stime
                child.peak_bytes = max(child.peak_bytes, usage.ru_maxrss * 1024)

    def _begin_stop(self, child: Child, reason: str | None = None) -> None:
        request = read_json(self.folder.stop) or {}
        self.asked_to_stop = reason or str(request.get("reason", "a signal to the shim"))
        grace = float(request.get("grace_seconds", self.order.get("stop_grace_seconds", 60.0)))
        self.stop_began = time.monotonic()
        self.kill_at = self.stop_began + grace
        _signal_family(child.process_id, signal.SIGTERM)
        _signal_family(child.process_id, signal.SIGCONT)

    def _sample(self, child: Child) -> None:
        self.samples += 1
        with suppress(OSError):
            self._reserve_output()
        guard = self.limit_bytes is not None and self.group is None
        if guard or self.samples % FAMILY_EVERY_SAMPLES == 1:
            child.seen_process_ids |= set(family(child.process_id))
        resident = sum(map(resident_bytes, child.seen_process_ids))
        child.peak_bytes = max(child.peak_bytes, resident)
        now = time.monotonic()
        with suppress(OSError):
            append_rows(self.folder.memory, [{"seconds": round(now - self.started, 1), "bytes": resident}])
        self.next_sample = now + (1.0 if guard else min(LONGEST_SAMPLE_GAP_SECONDS, now - self.started))
        if guard and self.limit_bytes is not None and resident > self.limit_bytes and self.asked_to_stop is None:
            self._begin_stop(child, f"memory: {resident:,} bytes resident of {self.limit_bytes:,} allowed")

    def _reserve_disk_space(self) -> None:
        """Reserves disk space for the last output and the exit record: a full disk must not hide itself."""
        with os.fdopen(open_own_file(self.folder.exit_reserve, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(b" " * EXIT_RESERVE_BYTES)
        self._reserve_output()

    def _reserve_output(self) -> None:
        """Room beyond the end of the output; raises if the disk is full, not if the disk cannot do it."""
        with os.fdopen(open_own_file(self.folder.output, os.O_WRONLY | os.O_APPEND), "ab") as output:
            start = ctypes.c_long(os.fstat(output.fileno()).st_size)
            reserve = ctypes.c_long(OUTPUT_RESERVE_BYTES)
            if LIBC.fallocate(output.fileno(), FALLOC_FL_KEEP_SIZE, start, reserve) != 0:
                error = OSError(ctypes.get_errno(), "no room for the output", str(self.folder.output))
                if is_full(error):
                    raise error

    def _release_output(self) -> None:
        """Gives the room back that was reserved and not used; the file keeps the time of the last output."""
        with suppress(OSError), os.fdopen(open_own_file(self.folder.output, os.O_WRONLY), "wb") as output:
            before = os.fstat(output.fileno())
            output.truncate(before.st_size)
            os.utime(output.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))

    def _write_exit(self, child: Child) -> None:
        status = child.status if child.status is not None else CANNOT_START << 8
        after = cgroup.kill_count(self.counted_group)
        known = after is not None and self.kills_before is not None
        kills = max(0, (after or 0) - (self.kills_before or 0)) if known else None
        killed = os.WIFSIGNALED(status) or bool(kills)
        record = {
            "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            "wall_seconds": time.monotonic() - self.started,
            "cpu_seconds": child.cpu_seconds,
            "peak_bytes": child.peak_bytes,
            "oom_kills": kills,
            "kernel_lines": cgroup.kernel_lines(child.seen_process_ids, self.started) if killed else [],
            "started_unix_seconds": self.started_unix_seconds,
            "ended_unix_seconds": time.time(),
            "asked_to_stop": self.asked_to_stop,
            "spawn_error": child.spawn_error,
            "killed_after_seconds": self.killed_after_seconds,
        }
        reserve = self.folder.exit_reserve
        with os.fdopen(open_own_file(reserve, os.O_WRONLY), "wb") as file:
            file.write(json.dumps(record).encode())
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        os.replace(reserve, self.folder.exit)


def own_identity() -> dict[str, Any]:
    """Who this process is."""
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    return identity.as_json()


def folder_inode(folder: AttemptFolder) -> int:
    """The inode of an attempt's folder: renaming keeps it, copying does not."""
    return os.stat(folder.root).st_ino


def claim(folder: AttemptFolder, value: dict[str, Any]) -> bool:
    """Takes the attempt: exactly one claimant, shim or supervisor, wins; the others see False."""
    descriptor, draft = new_temp_file(folder.shim)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_claim_content(value))
        os.link(draft, folder.shim)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _claim_without_links(folder, value)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _claim_without_links(folder: AttemptFolder, value: dict[str, Any]) -> bool:
    """The same on disks without hard links; only a kill between the two calls leaves an empty claim."""
    try:
        descriptor = os.open(folder.shim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(_claim_content(value))
    return True


def rewrite_claim(folder: AttemptFolder, value: dict[str, Any]) -> None:
    """Replaces the claim by one write of the same size: a full disk has no room for a second file."""
    with os.fdopen(open_own_file(folder.shim, os.O_WRONLY), "wb", buffering=0) as file:
        file.write(_claim_content(value))


def _claim_content(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode().ljust(CLAIM_BYTES)


def _signal_family(leader: int, number: int) -> None:
    """Signals everything below this shim: the command's process group at once, what left the group one by one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
    for process_id in family(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process_id) != leader:
                os.kill(process_id, number)


def _become_command(order: dict[str, Any], command: list[str], output: Path, pipes: tuple[int, int]) -> None:
    """In the forked child: waits for the go-ahead, then becomes the command; never returns."""
    gate, error = pipes
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        if os.read(gate, 1) != b"g":
            os._exit(CANNOT_START)
        if order.get("lease_seconds") is not None:
            # A command cannot be fenced without its shim, so it must not outlive it.
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (*LISTENED, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = open_own_file(output, os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(order["working_folder"])
        os.execvpe(command[0], command, os.environ | order["environment"])
    except OSError as failure:
        os.write(error, f"{' '.join(command[:1])}: {failure}".encode())
    finally:
        os._exit(CANNOT_START)


def main() -> None:
    """Runs the attempt whose folder is the only argument."""
    run_attempt(AttemptFolder(Path(sys.argv[1])))


def run_attempt(folder: AttemptFolder) -> Shim | None:
    """Runs an attempt to its end; None if another claimed it before."""
    with suppress(OSError):
        os.setsid()
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, LISTENED)
    os.chdir(folder.root)  # a study folder that is renamed takes this shim's files along
    folder = AttemptFolder(Path())
    shim: Shim | None = None
    if claim(folder, {"shim": own_identity(), "child": None, "place": folder_inode(folder)}):
        try:
            shim = Shim(folder)
            shim.run()
        except OSError as failure:
            failed = {"child": None, "place": folder_inode(folder), "failure": str(failure)[:1000]}
            rewrite_claim(folder, {"shim": own_identity(), **failed})
            raise
    return shim


if __name__ == "__main__":
    main()
