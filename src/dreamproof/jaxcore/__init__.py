"""What every part that computes with JAX stands on."""

import os

# On a CPU some of JAX 0.10's programs factorise matrices in one thread of a pool and wait there for shares of it that
# other threads are to do; a pool of two, on a machine of two cores, can be full of such waits and stand still for ever.
ENOUGH_THREADS = 4


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if _usable_cores() < ENOUGH_THREADS:
    os.environ.setdefault("PJRT_NPROC", str(ENOUGH_THREADS))
