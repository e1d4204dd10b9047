"""A pool of few threads can stand still for ever in JAX 0.10; see dreamproof/jaxcore/__init__.py."""

import os
import subprocess
import sys

import pytest

from dreamproof.testing.waiting import HANG_SECONDS

THREADS = "import os; os.sched_setaffinity(0, {core}); import dreamproof.jaxcore; print(os.environ.get('PJRT_NPROC'))"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="kernel: this system cannot bind a process to cores")
@pytest.mark.parametrize(("given", "found"), [(None, "4"), ("2", "2")])
def test_where_cores_are_few_there_are_four_threads_unless_set_otherwise(given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PJRT_NPROC"}
    if given is not None:
        environment["PJRT_NPROC"] = given
    core = {min(os.sched_getaffinity(0))}
    command = [sys.executable, "-c", THREADS.format(core=core)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    assert done.stdout.strip() == found
