"""Foundations of all code that uses JAX."""

import os

# On a CPU, JAX 0.10 factorises matrices in one thread of a pool, which waits for work of other threads of that pool;
# a pool of two, on a machine of two cores, can deadlock.
ENOUGH_THREADS = 4


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if usable_cores() < ENOUGH_THREADS:
    os.environ.setdefault("PJRT_NPROC", str(ENOUGH_THREADS))
