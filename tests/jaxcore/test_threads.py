"""A pool of few threads can stand still for ever in JAX 0.10; see dreamproof/jaxcore/__init__.py."""

import os
import subprocess
import sys

import pytest

from dreamproof.testing.waiting import HANG_SECONDS

TELL = "import os; os.sched_setaffinity(0, {core}); import dreamproof.jaxcore; print(os.environ.get('PJRT_NPROC'))"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="kernel: this system cannot bind a process to cores")
@pytest.mark.parametrize(("said", "found"), [(None, "4"), ("2", "2")])
def test_where_cores_are_few_there_are_four_threads_unless_told_otherwise(said: str | None, found: str) -> None:
    surroundings = {name: value for name, value in os.environ.items() if name != "PJRT_NPROC"}
    if said is not None:
        surroundings["PJRT_NPROC"] = said
    core = {min(os.sched_getaffinity(0))}
    command = [sys.executable, "-c", TELL.format(core=core)]
    told = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    assert told.stdout.strip() == found
