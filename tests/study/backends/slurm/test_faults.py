"""Studies through the verbs on a real one-node Slurm: killed supervisors and controllers, lost nodes, limits, stops."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dreamproof.base.files import read_json
from dreamproof.runs.layout import Cell
from dreamproof.study.backends.slurm.commands import SlurmCommands, jobs_from_json
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.process.processes import ProcessIdentity, is_alive
from dreamproof.testing.one_node_slurm import OneNodeSlurm, missing_for, start_or_reason
from dreamproof.testing.served import dashboard
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.long(200)

TRAINER = Path(__file__).parent / "dying_trainer.py"


@pytest.fixture
def slurm(started: OneNodeSlurm) -> OneNodeSlurm:
    started.tidy()
    return started


@pytest.fixture(scope="module")
def started() -> Iterator[OneNodeSlurm]:
    made = start_or_reason("cgroup" if missing_for("cgroup") is None else "plain")
    if isinstance(made, str):
        pytest.skip(made)
    yield made
    made.stop()


HELD = {"steady": {"kind": "works", "hold_at": 8}}


def release(file: Path) -> None:
    """Lets the cells of a held study train to their end."""
    (open_study(file).folder.root / "continue").touch()


def declare(place: Path, step_seconds: float, agent_steps: int, slurm: dict[str, Any], **changes: Any) -> Path:
    """A study of the small real trainer, two seeds of one arm unless `changes` say otherwise."""
    study: dict[str, Any] = {
        "name": "faults",
        "question": "Does anything get lost?",
        "metric": {"name": "return", "smallest_difference": 1.0},
        "task": "counting",
        "trainer": {"command": [sys.executable, str(TRAINER), "{run_dir}", "{settings.kind}", str(step_seconds)]},
        "arms": {"steady": {"kind": "works"}},
        "seeds": 2,
        "agent_steps": agent_steps,
        "retries": {"first_wait_seconds": 0.1, "longest_wait_seconds": 1.0},
        "backend": {
            "kind": "slurm",
            "slurm": {
                "memory": "200M",
                "cpus_per_task": 1,
                "time_limit": "00:10:00",
                "poll_seconds": 1,
                "lease_seconds": 3,
                "signal_seconds_before_limit": 0,
                **slurm,
            },
        },
    } | changes
    place.mkdir(exist_ok=True)
    file = place / "faults.yaml"
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    return file


def dreamproof(slurm: OneNodeSlurm, *arguments: str) -> "subprocess.Popen[str]":
    """A verb as a person calls it on a login node of this cluster."""
    return subprocess.Popen(
        [sys.executable, "-m", "dreamproof.cli.main", *arguments],
        env={**os.environ, **slurm.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(slurm: OneNodeSlurm, file: Path, *more: str) -> "subprocess.Popen[str]":
    return dreamproof(slurm, "run", str(file), "--plain", "--no-report", "--no-check", *more)


def finish(process: "subprocess.Popen[str]", wanted: int = 0) -> str:
    shown = process.communicate(timeout=HANG_SECONDS)[0]
    assert process.returncode == wanted, shown
    return shown


def steps(file: Path, arm: str = "steady", seed: int = 0) -> list[tuple[int, int]]:
    """(process, step) of every step that was ever made for a cell, in the order of writing."""
    log = open_study(file).folder.run(Cell(arm, seed)).root / "steps.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def turns(file: Path, seed: int = 0) -> list[int]:
    """Processes that worked on a cell, one entry a change: a process that comes back would stand twice."""
    found: list[int] = []
    for process, _ in steps(file, seed=seed):
        if found[-1:] != [process]:
            found.append(process)
    return found


def proven(opened: OpenStudy) -> int:
    return sum(opened.state.trained(cell) for cell in opened.state.cells.values())


def test_killed_supervisor_and_killed_controller_lose_nothing_and_do_nothing_twice(
    slurm: OneNodeSlurm, tmp_path: Path
) -> None:
    file = declare(tmp_path, 0.02, 30, {}, arms=HELD, seeds=4)
    first = run(slurm, file)
    wait_for(lambda: all(steps(file, seed=seed) for seed in range(4)))
    slurm.wait_until_written_down()  # or it would end its own jobs as unmatched when it comes back
    first.send_signal(signal.SIGKILL)
    first.wait()
    slurm.kill("slurmctld")
    blind = finish(dreamproof(slurm, "status", str(file)))
    assert "the controller does not answer" in blind
    second = run(slurm, file)
    time.sleep(3.0)
    slurm.start_controller()
    release(file)
    finish(second)
    opened = open_study(file)
    assert proven(opened) == 4
    for seed in range(4):
        assert [step for _, step in steps(file, seed=seed)] == list(range(1, 31))
        assert len(turns(file, seed)) == 1
    assert opened.state.attempts["a000001"].cause == "completed"


def test_a_controller_that_lost_its_memory_costs_only_the_steps_since_the_last_checkpoint(
    slurm: OneNodeSlurm, tmp_path: Path
) -> None:
    file = declare(tmp_path, 0.02, 30, {}, arms=HELD, seeds=2)
    supervisor = run(slurm, file)
    wait_for(lambda: all(len(steps(file, seed=seed)) > 6 for seed in range(2)))
    slurm.kill("slurmctld")
    slurm.forget_jobs()
    slurm.start_controller()

    def all_ended_once() -> bool:
        return all(cell.last_cause is not None for cell in open_study(file).state.cells.values())

    # A supervisor that ended too early shows its output below.
    wait_for(lambda: all_ended_once() or supervisor.poll() is not None)
    release(file)
    finish(supervisor)
    opened = open_study(file)
    assert proven(opened) == 2
    for seed in range(2):
        made = turns(file, seed)
        assert len(made) == len(set(made)) == 2, made
        first = opened.state.attempts[opened.state.cells[Cell("steady", seed)].attempts[0]]
        again = [step for process, step in steps(file, seed=seed) if process == made[1]]
        assert again[0] == first.kept_agent_steps[f"steady/{seed}"] + 1 > 1
        assert (first.cause, first.placement["reason"]) == ("vanished", "job unknown to Slurm"), first.evidence


def test_a_supervisor_that_dies_before_it_hears_of_its_job_adopts_it_by_name(
    slurm: OneNodeSlurm, tmp_path: Path
) -> None:
    file = declare(tmp_path, 0.1, 10, {"extra": ["--hold"]})
    first = run(slurm, file)
    attempts = open_study(file).folder.attempts
    wait_for(lambda: len(list(attempts.glob("*/job.json"))) == 2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    alone = finish(dreamproof(slurm, "status", str(file)))
    assert "queued: JobHeldUser" in alone and "attempts run without a supervisor" in alone, alone
    for given in attempts.glob("*/job.json"):
        given.unlink()
    second = run(slurm, file)
    wait_for(lambda: len(list(attempts.glob("*/job.json"))) == 2)
    name = re.search(r"faults-\w+", slurm.command("squeue", "--noheader", "--format=%j"))
    assert name is not None
    slurm.command("scontrol", "release", f"jobname={name[0]}")
    finish(second)
    opened = open_study(file)
    assert (proven(opened), len(opened.state.attempts)) == (2, 2)


def test_a_study_on_the_cluster_is_shown_by_the_dashboard_of_a_login_node(
    slurm: OneNodeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    file = declare(tmp_path, 0.02, 30, {}, arms=HELD, seeds=2)
    supervisor = run(slurm, file)
    with dashboard(file) as served:

        def places() -> list[str]:
            return [one["place"] for one in served.data("/studies/faults/status")["running"]]

        wait_for(lambda: len(places()) == 2 and all(" on " in place for place in places()))
        jobs = {attempt.job for attempt in open_study(file).state.attempts.values()}
        assert {place.split()[0] for place in places()} == jobs
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
        wait_for(lambda: served.data("/studies")["studies"][0]["state"] == "killed")
        second = run(slurm, file)
        release(file)
        finish(second)
        wait_for(lambda: served.data("/studies/faults/status")["complete"])


def test_a_cell_on_a_lost_node_is_fenced_and_continues_elsewhere(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    watched = declare(tmp_path / "watched", 0.02, 30, {"requeue": False}, arms=HELD, seeds=1)
    alone = declare(tmp_path / "alone", 0.02, 30, {}, arms=HELD, seeds=1)
    supervisor, killed = run(slurm, watched), run(slurm, alone)
    wait_for(lambda: len(steps(watched)) == len(steps(alone)) == 8)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    child = ProcessIdentity.read(read_json(open_study(alone).folder.attempt("a000001").shim)["child"])
    slurm.lose_node()
    wait_for(lambda: open_study(watched).state.cells[Cell("steady", 0)].last_cause is not None)
    first = open_study(watched).state.attempts["a000001"]
    assert (first.cause, first.placement["state"]) == ("node_lost", "NODE_FAIL"), first.evidence
    assert len(turns(watched)) == 1
    assert is_alive(child), "a lost node's process works on, so that there is something to fence"
    slurm.start_node()
    wait_for(lambda: not is_alive(child))
    release(watched)
    successor = run(slurm, alone)
    wait_for(lambda: open_study(alone).state.attempts["a000001"].cause is not None)
    release(alone)
    finish(supervisor)
    finish(successor)
    assert (proven(open_study(watched)), proven(open_study(alone))) == (1, 1)
    assert (len(turns(watched)), len(turns(alone))) == (2, 2)
    requeued = open_study(alone).state.attempts
    assert [name.partition("r")[2] for name in requeued] == ["", "1"], {
        name: (attempt.cause, attempt.evidence) for name, attempt in requeued.items()
    }
    assert requeued["a000001"].cause in ("node_lost", "preempted")
    assert requeued["a000001r1"].placement["restarts"] == 1


def test_out_of_memory_is_submitted_again_with_more_within_the_cap(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    arms = {"fits": {"kind": "needs_160"}, "never": {"kind": "needs_600"}}
    memory = {"memory": "120M", "memory_cap": "280M"}
    file = declare(tmp_path, 0.05, 10, memory, arms=arms, seeds=1, retries={"first_wait_seconds": 0.1})
    finish(run(slurm, file), wanted=3)
    opened = open_study(file)
    assert opened.state.trained(opened.state.cells[Cell("fits", 0)])
    asked = [row["memory_bytes"] >> 20 for row in opened.state.remedies if row["action"] == "more_memory"]
    assert asked and max(asked) <= 280
    never = opened.state.cells[Cell("never", 0)]
    assert never.stopped is not None and "host_oom" in never.stopped
    scripts = "".join(path.read_text() for path in opened.folder.submissions.glob("s*/script.sh"))
    assert "--mem=120M" in scripts and "--mem=280M" in scripts


def test_stop_cancels_what_it_started_and_nothing_else(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    other = slurm.command(
        "sbatch", "--parsable", "--mem=50M", "--job-name=other", "--output=/dev/null", "--wrap=sleep 300"
    ).strip()
    file = declare(tmp_path, 0.2, 1000, {"array_throttle": 1})
    printed = finish(dreamproof(slurm, "run", str(file), "--detach", "--no-report", "--no-check"))
    assert "runs the study" in printed
    wait_for(lambda: len(steps(file)) > 2)
    status = finish(dreamproof(slurm, "status", str(file)))
    assert re.search(r"a000001 .*running +\d+_0 on \w+", status), status
    assert "queued: JobArrayTaskLimit" in status, status
    why = finish(dreamproof(slurm, "why", str(file), "steady/0"))
    assert re.search(r"Slurm: RUNNING, \d+_0 on \w+", why), why
    assert re.search(r"Slurm: peak memory [\d.]+ \w+ so far of [\d.]+ \w+ asked for", why), why
    assert "supervised by process" in finish(run(slurm, file), wanted=5)
    finish(dreamproof(slurm, "stop", str(file)))
    left = slurm.command("squeue", "--noheader", "--format=%i %T").split()
    slurm.command("scancel", other)
    assert left == [other, "RUNNING"]
    opened = open_study(file)
    assert {attempt.cause for attempt in opened.state.attempts.values()} == {"stopped_by_user"}
    assert opened.state.cells[Cell("steady", 0)].kept_agent_steps == steps(file)[-1][1]


def test_a_job_taken_out_of_the_queue_by_hand_is_not_put_back(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    file = declare(tmp_path, 0.1, 10, {"extra": ["--hold"]})
    supervisor = run(slurm, file)
    wait_for(lambda: any(open_study(file).folder.attempts.glob("*/job.json")))
    job = slurm.command("squeue", "--noheader", "--format=%F").split()[0]
    slurm.command("scancel", f"{job}_1")
    wait_for(lambda: any(cell.stopped for cell in open_study(file).state.cells.values()))
    slurm.command("scontrol", "release", f"{job}_0")
    finish(supervisor, wanted=3)
    opened = open_study(file)
    assert (proven(opened), len(opened.state.attempts)) == (1, 2)
    assert "--retry-stopped" in (opened.state.cells[Cell("steady", 1)].stopped or "")


def test_an_arm_whose_probe_job_fails_stops_the_submission_and_is_quoted(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    file = declare(tmp_path, 0.05, 10, {}, arms={"good": {"kind": "works"}, "bad": {"kind": "import_error"}})
    printed = finish(dreamproof(slurm, "run", str(file), "--plain", "--no-report"), wanted=4)
    assert "arm bad: import_error: ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in printed
    assert not open_study(file).state.attempts
    assert "arm good: passed" in printed


def test_what_the_scheduler_would_refuse_stops_before_any_job(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    file = declare(tmp_path, 0.05, 10, {"gres": "gpu:7"})
    printed = finish(dreamproof(slurm, "check", str(file)), wanted=4)
    assert "Requested node configuration is not available" in printed
    nowhere = declare(tmp_path, 0.05, 10, {"partition": "nowhere"})
    printed = finish(dreamproof(slurm, "check", str(nowhere)), wanted=4)
    assert "no partition 'nowhere' (partitions: work, cheap, again, dear" in printed


def test_a_waiting_cell_says_why_and_until_when_and_waiting_costs_nothing(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    other = slurm.command(
        "sbatch", "--parsable", "--gres=gpu:2", "--time=5", "--mem=50M", "--output=/dev/null", "--wrap=sleep 300"
    ).strip()
    file = declare(
        tmp_path, 0.1, 10, {"gres": "gpu:2"}, seeds=1, money={"price_per_gpu_hour": 1800.0, "currency": "CNY"}
    )
    supervisor = run(slurm, file)
    expected = re.compile(r"queued +\d+_0 queued: (Resources|Priority), expected \d\d \w+ \d\d:\d\d")
    wait_for(lambda: expected.search(finish(dreamproof(slurm, "status", str(file)))) is not None)
    assert "Slurm: PENDING" in finish(dreamproof(slurm, "why", str(file), "steady/0"))
    slurm.command("scancel", other)
    finish(supervisor)
    given = finish(dreamproof(slurm, "money", str(file)))
    assert re.search(r"in the queue +[\d.]+ (s|min).* not paid for", given), given
    attempt = open_study(file).state.attempts["a000001"]
    assert attempt.queue_seconds >= 2.0
    allocated = attempt.placement["allocated_seconds"]
    # Two GPUs at half the price a second each.
    assert f"¥{allocated:.2f} bought: 1 of 1 cell trained" in given, given


def test_the_script_that_is_shown_is_the_one_that_is_submitted(slurm: OneNodeSlurm, tmp_path: Path) -> None:
    file = declare(tmp_path, 0.02, 10, {"array_throttle": 1, "setup": ["export SETUP_WAS=done"]})
    shown = finish(dreamproof(slurm, "plan", str(file), "--show-script"))
    finish(run(slurm, file))
    folder = open_study(file).folder
    name = str(read_json(folder.cluster)["job_name"])
    submitted = (folder.submissions / "s000001" / "script.sh").read_text()
    assert shown.replace("XXXXXXXX", name.rpartition("-")[2]) == submitted
    columns = SlurmCommands(slurm.environment).jobs(name)
    assert {job.state for job in columns} == {"COMPLETED"}
    assert sorted(jobs_from_json(slurm.command("squeue", "--json"), name), key=str) == sorted(columns, key=str)
