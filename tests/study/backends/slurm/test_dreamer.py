"""A pack of the real SafeDreamer agent, tiny, from sbatch to the proof on a real Slurm."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tiny import declare_packed

from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.one_node_slurm import OneNodeSlurm, start_or_reason
from dreamproof.testing.waiting import HANG_SECONDS

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]


@pytest.fixture
def slurm() -> Iterator[OneNodeSlurm]:
    made = start_or_reason("plain")
    if isinstance(made, str):
        pytest.skip(made)
    yield made
    made.stop()


def test_cells_of_the_real_agent_are_trained_and_evaluated_through_sbatch(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    asked = {"memory": "6G", "cpus_per_task": 2, "time_limit": "00:20:00", "poll_seconds": 2}
    file = declare_packed(tmp_path, backend={"kind": "slurm", "slurm": asked})
    variables = {**os.environ, **slurm.environment, "JAX_PLATFORMS": "cpu"}
    arguments = [sys.executable, "-m", "dreamproof.cli.main", "run", str(file), "--plain", "--no-check", "--no-report"]
    done = subprocess.run(arguments, env=variables, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    state = open_study(file).state
    assert all(state.trained(cell) for cell in state.cells.values())
    assert all(state.evaluated(one) for one in state.eval_cells.values())
    assert [(one.work, one.cause) for one in state.attempts.values()] == [
        ("train", "completed"),
        ("evaluate", "completed"),
    ]
    assert all(one.job and one.placement["state"] == "COMPLETED" for one in state.attempts.values())
