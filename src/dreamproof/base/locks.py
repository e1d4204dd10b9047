"""Kernel locks on files: held by processes, shared with their children, ended by the death of the last holder."""

import errno
import fcntl
import os
from pathlib import Path

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def try_lock(descriptor: int) -> bool:
    """Takes the lock of an open file; True as well on a disk that knows no locks, where identities have to decide."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock of a file, in whatever container of this machine."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
