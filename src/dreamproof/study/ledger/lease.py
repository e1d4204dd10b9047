"""One supervisor per study: a kernel lock that ends with its holder, and a file that names the holder."""

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from dreamproof.base.errors import BadInput, Busy
from dreamproof.base.files import file_fault, open_own_file, read_json
from dreamproof.base.locks import is_locked
from dreamproof.base.text import quoted
from dreamproof.study.process.processes import ProcessIdentity, boot_id, is_alive

DYING_SECONDS = 60.0
"""Wait for a lock whose recorded holder is dead: on a busy machine its last child may take seconds to end."""
UNSEEN_SECONDS = 5.0
"""Wait for a lock of another machine or container: that it is held is the evidence that its holder lives."""


def read_holder(path: Path) -> ProcessIdentity | None:
    """Who wrote the lease last, alive or not."""
    return ProcessIdentity.read(read_json(path))


def living_holder(path: Path) -> ProcessIdentity | None:
    """The supervisor that holds the study here, or in a place of which nothing can be known from here."""
    holder = read_holder(path)
    if holder is None or is_copy(path):
        return None
    if holder.boot_id == boot_id() and not holder.is_visible:  # another container: the kernel lock decides
        return holder if is_locked(path) else None
    return holder if is_elsewhere(holder) or is_alive(holder) else None


def is_elsewhere(holder: ProcessIdentity) -> bool:
    """Whether a holder lives on a machine that cannot be seen from here; a container may change its name."""
    return holder.host != socket.gethostname() and holder.boot_id != boot_id()


def is_copy(path: Path) -> bool:
    """Whether a lease was copied together with its study: the holder then works elsewhere, on the original."""
    value = read_json(path)
    place = value.get("place") if isinstance(value, dict) else None
    try:
        return isinstance(place, int) and place != path.stat().st_ino
    except OSError:
        return False


class Lease:
    """Held from `take` to `release` or to the death of the process, whichever comes first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, from_lost_host: bool = False) -> None:
        """Takes the lease or raises Busy with the holder's name."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = open_own_file(self.path, os.O_RDWR)
        except OSError as error:
            folder = self.path.parent
            raise BadInput(
                f"{error.filename or folder}: cannot be written: {error.strerror}",
                f"ls -ld {quoted(folder)}; df -h {quoted(folder)}",
            ) from None
        try:
            fault = file_fault(self.path)
            if fault is not None:  # it may name the holder
                raise BadInput(f"{self.path.parent}: {fault}", f"ls -ld {quoted(self.path)}")
            self._lock(descriptor)
            holder = living_holder(self.path)
            if holder is not None and not self._own(holder) and not from_lost_host:
                raise self._busy(holder)
            self._write(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _lock(self, descriptor: int) -> None:
        """Takes the kernel lock. A child that a dead holder was just starting may keep it for a moment longer."""
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                holder = read_holder(self.path)
                is_unseen = holder is not None and not holder.is_visible
                patience = UNSEEN_SECONDS if is_unseen else DYING_SECONDS
                if is_alive(holder) or time.monotonic() >= began + patience:
                    raise self._busy(holder) from None
                time.sleep(0.02)

    def _own(self, holder: ProcessIdentity) -> bool:
        return holder == ProcessIdentity.of(os.getpid())

    def _busy(self, holder: ProcessIdentity | None) -> Busy:
        study = self.path.parent
        if holder is None:
            return Busy(f"{study}: another process is taking the lease", f"dreamproof status {quoted(study)}")
        who = f"process {holder.process_id} on {holder.host or 'this machine'}"
        if is_elsewhere(holder):
            return Busy(
                f"{study}: supervised by {who}, which is not visible from here",
                f"dreamproof run {quoted(study)} --from-lost-host (only if that machine is gone)",
            )
        return Busy(
            f"{study}: supervised by {who}", f"dreamproof watch {quoted(study)}, or dreamproof stop {quoted(study)}"
        )

    def _write(self, descriptor: int) -> None:
        identity = ProcessIdentity.of(os.getpid())
        assert identity is not None
        content = json.dumps({**identity.as_json(), "place": os.fstat(descriptor).st_ino}).encode()
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)

    def release(self, attempts_run_on: bool = False) -> None:
        """Releases the study; while attempts keep running, the lease still names their machine."""
        if self._descriptor is not None:
            if not attempts_run_on:
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
