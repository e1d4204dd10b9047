"""What Slurm's commands print, as read by us; pace and back-off towards the controller. Needs no Slurm."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dreamproof.settings.backend import Slurm, gpus_of, memory_bytes
from dreamproof.settings.study import Study
from dreamproof.study.backends.slurm.commands import (
    COLUMNS,
    SlurmBusy,
    SlurmCommands,
    SlurmError,
    SlurmJob,
    job_from_accounting,
    jobs_from_json,
    jobs_from_table,
    listed_elements,
)
from dreamproof.study.backends.slurm.queue import JobTable
from dreamproof.study.backends.slurm.script import Submission, script_text
from dreamproof.study.diagnosis.memory_trend import judge_trend


def line(**given: str) -> str:
    row = dict.fromkeys(COLUMNS, "") | {"exit_code": "0", "DerivedEC": "0", "RestartCnt": "0", "Reason": "None"} | given
    return "|".join(row[column] for column in COLUMNS) + "|"


def test_a_wait_status_becomes_code_and_signal() -> None:
    failed = line(ArrayJobID="7", ArrayTaskID="3", JobID="9", State="FAILED", exit_code="768", Reason="NonZeroExitCode")
    killed = line(ArrayJobID="7", ArrayTaskID="4", JobID="10", State="OUT_OF_MEMORY", exit_code="125", DerivedEC="125")
    first, second = jobs_from_table(f"{failed}\n{killed}\n")
    assert (first.element, first.exit_code, first.reason) == ("3", "3:0", "NonZeroExitCode")
    assert (second.exit_code, second.derived_exit_code, second.over) == ("0:125", "0:125", True)


def test_times_give_queue_and_allocation_apart() -> None:
    done = line(ArrayJobID="7", ArrayTaskID="0", State="COMPLETED", SubmitTime="100", StartTime="160", EndTime="400")
    job = jobs_from_table(done)[0]
    assert (job.queue_seconds, job.allocated_seconds) == (60.0, 240.0)
    waiting = line(ArrayJobID="7", ArrayTaskID="1-3%2", State="PENDING", SubmitTime="100", StartTime="900")
    assert jobs_from_table(waiting)[0].queue_seconds is None


def test_a_list_of_elements_is_read_with_ranges_steps_and_throttle() -> None:
    assert listed_elements("0-3,7,10-20:5%4") == {0, 1, 2, 3, 7, 10, 15, 20}
    assert listed_elements("N/A") == set()


OLD: dict[str, Any] = {
    "name": "mine",
    "job_id": 9,
    "array_job_id": 7,
    "array_task_id": 3,
    "array_task_string": "",
    "job_state": "FAILED",
    "exit_code": 768,
    "derived_exit_code": 125,
    "state_reason": "NonZeroExitCode",
    "restart_cnt": 1,
    "nodes": "n1",
    "submit_time": 100,
    "start_time": 160,
    "end_time": 400,
    "comment": "s000001",
}
NEW = OLD | {
    "job_id": 9,
    "array_job_id": {"set": True, "infinite": False, "number": 7},
    "array_task_id": {"set": True, "infinite": False, "number": 3},
    "job_state": ["FAILED"],
    "exit_code": {"status": ["ERROR"], "return_code": {"set": True, "number": 3}, "signal": {"id": {"set": False}}},
    "derived_exit_code": {
        "status": ["SIGNALED"],
        "return_code": {"set": False, "number": 0},
        "signal": {"id": {"set": True, "number": 125}},
    },
    "start_time": {"set": True, "infinite": False, "number": 160},
    "submit_time": {"set": True, "infinite": False, "number": 100},
    "end_time": {"set": True, "infinite": False, "number": 400},
}


@pytest.mark.parametrize("row", [OLD, NEW], ids=["22.05", "23.11"])
def test_json_of_old_and_new_versions_says_the_same(row: dict[str, Any]) -> None:
    foreign = row | {"name": "somebody_elses"}
    jobs = jobs_from_json(json.dumps({"jobs": [row, foreign]}), "mine")
    reason, comment = "NonZeroExitCode", "s000001"
    assert jobs == [SlurmJob("7", "3", "FAILED", "3:0", "0:125", reason, 1, "n1", 100.0, 160.0, 400.0, comment)]


def test_accounting_separates_steps_and_survives_odd_numbers() -> None:
    text = (
        "7_3|FAILED|1:0|0:125|None|n1|100|160|400\n"
        "7_3.batch|FAILED|1:0|||n1|160|160|400\n"
        "7_3.0|OUT_OF_MEMORY|0:125|||n1|160|160|400\n"
    )
    job = job_from_accounting(text, "7_3")
    assert job is not None
    assert (job.state, job.derived_exit_code, job.step_states["0"]) == ("FAILED", "0:125", "OUT_OF_MEMORY")
    cancelled = job_from_accounting("7_3|CANCELLED by 0|0:15|0:0|None|n1|100|160|400\n", "7_3")
    assert cancelled is not None and (cancelled.state, cancelled.allocated_seconds) == ("CANCELLED", 240.0)
    assert job_from_accounting("", "7_3") is None


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def fake_commands(folder: Path, clock: Clock, script: str) -> SlurmCommands:
    """Slurm's commands as one shell script that knows its own name."""
    folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo"):
        (folder / name).write_text(f"#!/bin/bash\nname={name}\n{script}\n")
        (folder / name).chmod(0o755)
    return SlurmCommands({"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}, clock, clock.pause)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_calls_are_a_second_apart(path: Path) -> None:
    clock = Clock()
    commands = fake_commands(path, clock, "[ \"$1\" = --version ] && echo 'slurm 22.05.8'; exit 0")
    for _ in range(5):
        commands.jobs("mine")
    assert clock.now >= 104.0
    assert commands.calls == 5


def test_a_busy_controller_is_left_alone_longer_every_time(path: Path) -> None:
    clock = Clock()
    busy = "echo 'slurm_load_jobs error: Socket timed out on send/recv operation' >&2; exit 1"
    commands = fake_commands(path, clock, f"[ \"$1\" = --version ] && echo 'slurm 22.05.8' && exit 0; {busy}")
    table = JobTable(commands, "mine", 1.0, clock)
    waits = []
    for _ in range(4):
        assert table.refresh() is False
        began = clock.now
        while commands.is_backing_off():
            clock.now += 0.5
        waits.append(clock.now - began)
        clock.now += 1.0
    assert waits == sorted(waits) and waits[-1] >= 8 * waits[0]


ODD_LINE = "|".join(["7", "0", "8", "RUNNING", "no number"] + ["0"] * 20)


@pytest.mark.parametrize("words", ["Communication connection failure", "something that nobody has seen before", ""])
def test_a_controller_that_answered_once_may_fail_in_any_words(path: Path, words: str) -> None:
    clock = Clock()
    script = f"""[ "$1" = --version ] && echo 'slurm 22.05.8' && exit 0
[ -e {path}/down ] && echo '{words}' >&2 && exit 1
[ -e {path}/odd ] && echo '{ODD_LINE}'
exit 0"""
    commands = fake_commands(path, clock, script)
    table = JobTable(commands, "mine", 1.0, clock)
    assert table.refresh() is True
    (path / "down").touch()
    for _ in range(3):
        clock.now += 100.0
        assert table.refresh() is False
    (path / "down").rename(path / "odd")
    clock.now += 100.0
    assert table.refresh() is False
    (path / "odd").unlink()
    clock.now += 100.0
    assert table.refresh() is True


def test_a_controller_that_never_answered_is_an_error(path: Path) -> None:
    commands = fake_commands(
        path, Clock(), "[ \"$1\" = --version ] && echo 'slurm 22.05.8' && exit 0; echo odd >&2; exit 1"
    )
    with pytest.raises(SlurmError, match="odd"):
        JobTable(commands, "mine", 1.0, Clock()).refresh()


def test_a_refusal_is_separated_from_a_busy_controller(path: Path, tmp_path: Path) -> None:
    script = '[ "$name" = sbatch ] && echo "sbatch: error: Batch job submission failed: $WORDS" >&2; exit 1'
    commands = fake_commands(path, Clock(), script)
    commands._environment["WORDS"] = "Invalid account or account/partition combination specified"
    with pytest.raises(SlurmError, match="Invalid account") as refused:
        commands.submit(tmp_path / "script.sh")
    assert not isinstance(refused.value, SlurmBusy)
    commands._environment["WORDS"] = "Unable to contact slurm controller (connect failure)"
    with pytest.raises(SlurmBusy):
        commands.submit(tmp_path / "script.sh")


def test_accounting_that_is_switched_off_is_separated_from_one_that_fails(path: Path) -> None:
    commands = fake_commands(path, Clock(), 'echo "$WORDS" >&2; exit 1')
    commands._environment["WORDS"] = 'sacct: error: Invalid field requested: "Colour"'
    with pytest.raises(SlurmError, match="Invalid field"):
        commands.accounted(["7_3"])
    assert commands.has_accounting
    commands._environment["WORDS"] = "Slurm accounting storage is disabled"
    assert commands.accounted(["7_3"]) == {}
    assert not commands.has_accounting


def test_a_persons_own_formats_do_not_reach_the_commands(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SBATCH_PARTITION", "elsewhere")
    commands = fake_commands(path, Clock(), 'echo "sbatch: [$SQUEUE_FORMAT$SBATCH_PARTITION]" >&2; exit 0')
    assert commands.test_submission(path / "script.sh") == "[]"


SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=paper-0a1b2c3d
#SBATCH --comment=s000002
#SBATCH --array=0-2%2
#SBATCH --output="/scratch/my study/submissions/s000002/%a.out"
#SBATCH --open-mode=append
#SBATCH --chdir="/scratch/my study/submissions/s000002"
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --qos=long
#SBATCH --constraint=a100&nvlink
#SBATCH --gres=gpu:1
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16384M
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --exclude=n7

module load cuda
source activate paper
attempts=(a000004 a000005 a000006)
"""


def test_the_script_says_everything_that_the_study_declares() -> None:
    settings = Slurm(
        partition="gpu",
        account="lab",
        qos="long",
        constraint="a100&nvlink",
        gres="gpu:1",
        cpus_per_task=4,
        memory="16G",
        setup=["module load cuda", "source activate paper"],
        extra=["--exclude=n7"],
        array_throttle=2,
    )
    folder = Path("/scratch/my study")
    submission = Submission(
        "s000002",
        "paper-0a1b2c3d",
        folder / "submissions/s000002",
        folder / "attempts",
        ["a000004", "a000005", "a000006"],
        memory_bytes("16G"),
        "04:00:00",
    )
    text = script_text(settings, submission)
    assert text.startswith(SCRIPT)
    assert "slurm.node '/scratch/my study/attempts' \"${attempts[$SLURM_ARRAY_TASK_ID]}\"" in text


def test_a_node_that_does_not_see_a_path_says_which_and_starts_nothing(tmp_path: Path) -> None:
    attempts = tmp_path / "not there"
    submission = Submission("s000001", "paper-0a1b2c3d", tmp_path, attempts, ["a000001"], 1 << 30, "04:00:00")
    script = tmp_path / "script.sh"
    script.write_text(script_text(Slurm(), submission))
    variables = {**os.environ, "SLURM_ARRAY_TASK_ID": "0"}
    done = subprocess.run(["bash", script], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"dreamproof: {attempts} cannot be seen from node " in done.stderr


@pytest.mark.parametrize(
    ("gres", "gpus"), [("gpu:2", 2), ("gpu:a100:4", 4), ("gpu", 1), ("shard:3", None), (None, None), ("gpu:a100", 1)]
)
def test_the_request_says_how_many_gpus_are_paid_for(gres: str | None, gpus: int | None) -> None:
    assert gpus_of(gres) == gpus


def test_a_study_on_a_cluster_pays_for_its_gres_and_queues_everything() -> None:
    study = Study.model_validate(
        {
            "name": "s",
            "question": "?",
            "metric": {"smallest_difference": 1},
            "task": "t",
            "trainer": {"command": ["true"]},
            "arms": {"a": {}},
            "seeds": 3,
            "agent_steps": 1,
            "backend": {"kind": "slurm", "slurm": {"gres": "gpu:2", "array_throttle": 7}},
        }
    )
    assert study.money.gpus_per_attempt == 2
    assert (study.backend.slots, study.backend.max_parallel) == (1000, 7)


def test_memory_that_grows_all_the_time_is_a_leak_and_a_plateau_is_none() -> None:
    leak = judge_trend([(second, 1e9 + 2e7 * second) for second in range(0, 600, 10)])
    level = judge_trend([(second, 4e9 if second > 50 else 1e9) for second in range(0, 600, 10)])
    assert leak is not None and leak.kind == "grows" and "a leak" in leak.text
    assert level is not None and level.kind == "level"
    assert judge_trend([(0.0, 1e9), (10.0, 2e9)]) is None
