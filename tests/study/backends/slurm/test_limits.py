"""Waiting in a queue only for what can come: limits of partitions, reasons that never clear, probes that fit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dreamproof.base.errors import ExitCode
from dreamproof.base.files import write_json
from dreamproof.runs.layout import RunFolder, StudyFolder
from dreamproof.settings.backend import Slurm
from dreamproof.study.adapters.native import NativeAdapter
from dreamproof.study.backends.api import JobPlacement, Presence, Sighting
from dreamproof.study.backends.slurm.backend import SlurmBackend
from dreamproof.study.backends.slurm.commands import COLUMNS, SlurmCommands, SlurmError
from dreamproof.study.backends.slurm.limits import (
    UNLIMITED,
    Partition,
    Request,
    Site,
    find_stuck,
    group_limits_from_text,
    limit_seconds,
    never_starts,
    partitions_from_text,
    probe_time_limit,
)
from dreamproof.study.preflight import slurm as cluster_preflight
from dreamproof.study.preflight.slurm import ClusterPreflight, ClusterProbe
from dreamproof.study.views.slurm_jobs import place_text
from dreamproof.testing import slurm_accounting
from dreamproof.testing.one_node_slurm import OneNodeSlurm, missing_for, start_or_reason
from dreamproof.testing.small_study import TRAINER
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.long(110)

# Words of Slurm 22.05.8, of two partitions; what does not matter here is left out.
SCONTROL_PARTITIONS = (
    "PartitionName=work AllowGroups=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED "
    "MinNodes=0 State=UP TotalCPUs=32 DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=32,mem=16000M,node=1\n"
    "PartitionName=short AllowGroups=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=4 MaxTime=00:03:00 "
    "MinNodes=2 State=UP TotalCPUs=32 DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=32,mem=16000M,node=1\n"
)
WORK = Partition("work", True)
SHORT = Partition("short", max_time="00:03:00")
ASKED = Request("00:10:00", cpus=4, memory_mb=2048)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("00:30:00", 1800),
        ("04:00:00", 14_400),
        ("1-0", 86_400),
        ("1-12:30", 131_400),
        ("2-00:00:10", 172_810),
        ("UNLIMITED", UNLIMITED),
        ("INFINITE", UNLIMITED),
        ("", UNLIMITED),
    ],
)
def test_time_limits_are_read_as_sbatch_takes_them(text: str, seconds: float) -> None:
    assert limit_seconds(text) == seconds


def test_partitions_are_read_from_scontrol() -> None:
    assert partitions_from_text(SCONTROL_PARTITIONS) == [WORK, Partition("short", False, "00:03:00", 2, 4.0)]
    assert partitions_from_text("slurm_load_partitions error: Unable to contact slurm controller\n") == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "00:30:00"),
        ({"partition": "short"}, "00:03:00"),
        ({"partition": "short,work"}, "00:30:00"),
        ({"partition": "unheard_of"}, "00:30:00"),
        ({"time_limit": "00:20:00"}, "00:20:00"),
        ({"time_limit": "2", "partition": "short"}, "2"),
        ({"probe_time_limit": "00:01:00", "partition": "short"}, "00:01:00"),
    ],
)
def test_a_probe_asks_for_no_more_than_study_and_partition_allow(settings: dict[str, Any], expected: str) -> None:
    assert probe_time_limit(Slurm(**settings), [WORK, SHORT]) == expected


FINAL = (
    "PartitionTimeLimit",
    "AssocMaxWallDurationPerJobLimit",
    "QOSMaxWallDurationPerJobLimit",
    "AssocMaxCpuPerJobLimit",
    "AssocMaxMemPerJob",
    "AssocMaxCPUMinutesPerJobLimit",
    "QOSMaxGRESPerJob",
    "QOSMaxCpuPerNode",
    "QOSMinCpuNotSatisfied",
    "MaxMemPerLimit",
    "BadConstraints",
    "InvalidQOS",
    "InvalidAccount",
    "AccountNotAllowed",
    "PartitionConfig",
    "DependencyNeverSatisfied",
    "DeadLine",
    "ReservationDeleted",
    "launch failed requeued held",
    "JobHoldMaxRequeue",
)
DOUBTFUL = (
    "JobHeldUser",
    "JobHeldAdmin",
    "ReqNodeNotAvail, UnavailableNodes:n[1-3]",
    "PartitionDown",
    "PartitionInactive",
    "PartitionNodeLimit",
    "AssocGrpCpuLimit",
    "QOSGrpMemLimit",
    "AssocGrpCPUMinutesLimit",
)
NORMAL = (
    "",
    "None",
    "Priority",
    "Resources",
    "Dependency",
    "BeginTime",
    "JobArrayTaskLimit",
    "Licenses",
    "QOSMaxCpuPerUserLimit",
    "QOSMaxJobsPerUserLimit",
    "AssocMaxJobsLimit",
    "Reservation",
)


@pytest.mark.parametrize("reason", FINAL)
def test_what_never_clears_ends_the_wait_with_its_remedy(reason: str) -> None:
    assert never_starts(reason, Slurm(), ASKED, Site())


@pytest.mark.parametrize("reason", DOUBTFUL)
def test_what_a_person_or_a_node_may_clear_is_waited_for_with_a_hint(reason: str) -> None:
    assert never_starts(reason, Slurm(), ASKED, Site()) is None
    stuck = find_stuck(reason)
    assert stuck is not None and stuck.remedy in place_text(JobPlacement("7_0", state="PENDING", reason=reason))


@pytest.mark.parametrize("reason", NORMAL)
def test_what_clears_by_itself_is_waited_for(reason: str) -> None:
    assert find_stuck(reason) is None


def test_a_partition_that_takes_no_single_node_ends_the_wait_and_nodes_that_are_down_do_not() -> None:
    settings = Slurm(partition="short")
    assert never_starts("PartitionNodeLimit", settings, ASKED, Site(partitions_from_text(SCONTROL_PARTITIONS)))
    assert never_starts("PartitionNodeLimit", settings, ASKED, Site([SHORT])) is None


def test_with_several_partitions_the_longest_counts() -> None:
    several = Slurm(partition="short,work")
    assert never_starts("PartitionTimeLimit", several, ASKED, Site([WORK, SHORT])) is None
    assert never_starts("PartitionTimeLimit", several, ASKED, Site([SHORT, Partition("work", max_time="5:00")]))


# The same version, of an account that may use two processors together, and one hour of them.
ACCOUNT = """Association Records

ClusterName=c Account=lab UserName= Partition= Priority=0 ID=3
    GrpJobs=N(0) GrpJobsAccrue=N(1)
    GrpTRES=cpu=2(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0)
    GrpTRESMins=cpu=60(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0)
ClusterName=c Account=lab UserName=root(0) Partition= Priority=0 ID=4
    GrpTRES=cpu=N(0),mem=4096(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0)
    GrpTRESMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0)
"""


def test_limits_of_a_group_are_read_from_scontrol() -> None:
    assert group_limits_from_text(ACCOUNT) == {"cpu": 2.0, "mem": 4096.0, "cpu-minutes": 60.0}


@pytest.mark.parametrize(
    ("request_", "ends"),
    [
        (Request("00:10:00", cpus=4), True),
        (Request("00:10:00", cpus=2), False),
        (Request("01:00:00", cpus=2), True),
        (Request("00:10:00", memory_mb=5000), True),
    ],
)
def test_a_shared_limit_is_waited_for_unless_one_job_alone_is_more(request_: Request, ends: bool) -> None:
    site = Site(group_limits=group_limits_from_text(ACCOUNT))
    assert (never_starts("AssocGrpCpuLimit", Slurm(), request_, site) is not None) is ends


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def pending(reason: str) -> str:
    row = dict.fromkeys(COLUMNS, "") | {"exit_code": "0", "DerivedEC": "0", "RestartCnt": "0", "Reason": reason}
    row |= {"ArrayJobID": "7", "ArrayTaskID": "0", "JobID": "7", "State": "PENDING", "Comment": "s000001"}
    return "|".join(row[column] for column in COLUMNS) + "|"


def fake_commands(folder: Path, clock: Clock, reason: str = "Priority") -> SlurmCommands:
    """Slurm's commands as scripts that write down how they were called."""
    folder.mkdir()
    (folder / "partitions").write_text(SCONTROL_PARTITIONS)
    (folder / "queue").write_text(pending(reason) + "\n")
    answers = {
        "sbatch": f'case "$1" in --test-only) cp "$2" {folder}/tested-$(basename $(dirname "$2"));; *) echo 7;; esac',
        "squeue": f'case "$1" in --version) echo "slurm 22.05.8";; *) cat {folder}/queue;; esac',
        "scontrol": f"cat {folder}/partitions",
        "sinfo": "printf 'work*|up|1|16000|gpu:2|infinite\\nshort|up|1|16000|gpu:2|3:00\\n'",
        "scancel": "true",
        "sacct": "true",
    }
    for name, answer in answers.items():
        (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {folder}/calls\n{answer}\n')
        (folder / name).chmod(0o755)
    return SlurmCommands({"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}, clock, clock.pause)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_an_attempt_that_can_never_start_is_cancelled_and_its_end_names_the_remedy(tmp_path: Path, path: Path) -> None:
    clock = Clock()
    commands = fake_commands(path, clock, "PartitionTimeLimit")
    place = StudyFolder(tmp_path / "study")
    backend = SlurmBackend(Slurm(partition="short", poll_seconds=1), place, "study", commands, clock)
    attempt = place.attempt("a000001")
    write_json(attempt.order, {})
    backend.start(attempt)
    backend.close()  # hands it in
    heir = SlurmBackend(Slurm(partition="short", poll_seconds=1), place, "study", commands, clock)
    clock.pause(5)
    sighting = heir.look(attempt)
    assert sighting.presence is Presence.LOST and sighting.never_began
    evidence = sighting.facts["slurm"]
    assert evidence.reason.startswith("PartitionTimeLimit: its time limit is longer than the partition allows: lower")
    heir.close()
    assert [line for line in (path / "calls").read_text().splitlines() if line.startswith("scancel")][-1].endswith(
        " 7_0"
    )


def test_the_scheduler_is_asked_about_the_script_and_about_a_probe_that_fits(tmp_path: Path, path: Path) -> None:
    slurm = Slurm(partition="short", time_limit="00:03:00", gres="gpu:1", memory="2G")
    commands = fake_commands(path, Clock())
    ClusterPreflight(slurm, StudyFolder(tmp_path / "study"), "study", commands).ask()
    main, probe = (path / "tested-test").read_text(), (path / "tested-test-probe").read_text()
    assert "#SBATCH --time=00:03:00\n" in main and "#SBATCH --time=00:03:00\n" in probe
    for line in ("--mem=2048M", "--gres=gpu:1", "--partition=short"):
        assert f"#SBATCH {line}\n" in main and f"#SBATCH {line}\n" in probe


def test_a_time_limit_beyond_the_partitions_is_refused_before_anything_queues(tmp_path: Path, path: Path) -> None:
    slurm = Slurm(partition="short", time_limit="04:00:00")
    commands = fake_commands(path, Clock())
    folder = StudyFolder(tmp_path / "study")
    with pytest.raises(SlurmError, match="time_limit is 04:00:00, but partition short allows 00:03:00"):
        ClusterPreflight(slurm, folder, "study", commands).ask()
    assert "sbatch" not in (path / "calls").read_text()
    lifted = slurm.model_copy(update={"qos": "long"})  # a QOS may lift the partition's limit
    ClusterPreflight(lifted, folder, "study", commands).ask()


def test_the_keeper_of_a_job_stays_small() -> None:
    """Its memory counts as the job's, so it does without the libraries of the supervisor."""
    script = "import sys; import dreamproof.study.backends.slurm.node; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


class Queued:
    """A backend whose job waits for one reason until it is stopped."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.stopped: list[str] = []

    def stop(self, folder: Any, reason: str, grace_seconds: float) -> None:
        self.stopped.append(reason)


@pytest.mark.parametrize(("reason", "gives_up"), [("JobHeldAdmin", True), ("Resources", False)])
def test_a_probe_waits_a_while_for_what_a_person_must_clear(
    tmp_path: Path, path: Path, reason: str, gives_up: bool
) -> None:
    clock = Clock()
    preflight = ClusterPreflight(Slurm(), StudyFolder(tmp_path / "study"), "study", fake_commands(path, clock))
    preflight.monotonic = clock
    probe = ClusterProbe("low", RunFolder(tmp_path / "run"), ["x"], {}, str(tmp_path), False, NativeAdapter())
    backend: Any = Queued(reason)
    attempt = StudyFolder(tmp_path / "study").attempt("a000001")
    waiting = Sighting(Presence.WAITING, placement=JobPlacement("7_0", state="PENDING", reason=reason))
    for _ in range(int(cluster_preflight.STUCK_SECONDS) // 60 + 1):
        assert backend.stopped == []
        preflight._watch(backend, probe, attempt, waiting, 900.0)
        clock.pause(60)
    assert bool(backend.stopped) is gives_up
    preflight._judge(probe, attempt, Sighting(Presence.LOST, never_began=True))
    if gives_up:
        assert (probe.passed, probe.cause) == (False, "bad_config")
        assert probe.reason == "JobHeldAdmin for 10 min 0 s: held by an administrator: ask them, or scancel JOB"


@pytest.fixture(scope="module")
def slurm() -> Iterator[OneNodeSlurm]:
    found = start_or_reason("plain")
    if isinstance(found, str):
        pytest.skip(found)
    yield found
    found.stop()


def declare(place: Path, **slurm: Any) -> Path:
    study = {
        "name": "short",
        "question": "Does it wait for ever?",
        "metric": {"name": "return", "smallest_difference": 1.0},
        "task": "counting",
        "trainer": {"command": [sys.executable, str(TRAINER), "{run_dir}", "--step-seconds", "0.1"]},
        "arms": {"low": {"level": 1}},
        "seeds": 1,
        "agent_steps": 5,
        "backend": {
            "kind": "slurm",
            "slurm": {"memory": "150M", "cpus_per_task": 1, "poll_seconds": 1, "lease_seconds": 3, **slurm},
        },
    }
    file = place / "short.yaml"
    file.write_text(yaml.safe_dump(study))
    return file


def dreamproof(slurm: OneNodeSlurm, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """A verb as a person calls it, beside the real Slurm."""
    command = [sys.executable, "-m", "dreamproof.cli.main", *map(str, arguments)]
    variables = {**os.environ, **slurm.environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


def test_real_check_probes_within_three_minutes_and_refuses_a_longer_study(tmp_path: Path, slurm: OneNodeSlurm) -> None:
    fits = dreamproof(slurm, "check", declare(tmp_path, partition="short", time_limit="00:03:00"))
    assert fits.returncode == 0, fits.stdout + fits.stderr
    assert "probe jobs request 00:03:00" in fits.stdout
    longer = dreamproof(slurm, "check", declare(tmp_path, partition="short", time_limit="00:10:00"))
    assert longer.returncode == ExitCode.PREFLIGHT_FAILED
    assert "partition short allows 00:03:00" in longer.stderr
    assert "set time_limit to at most 00:03:00" in longer.stderr


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"partition": "short", "time_limit": "00:10:00"}, "PartitionTimeLimit: its time limit is longer"),
        ({"partition": "wide", "time_limit": "00:01:00"}, "PartitionNodeLimit: the partition's nodes are down, or"),
    ],
)
def test_real_jobs_that_can_never_start_end_with_their_remedy_and_leave_the_queue(
    tmp_path: Path, slurm: OneNodeSlurm, request_: dict[str, str], reason: str
) -> None:
    file = declare(tmp_path, **request_)
    ended = dreamproof(slurm, "run", file, "--no-check", "--no-report", "--plain")
    assert ended.returncode == ExitCode.GAP_REMAINS, ended.stdout + ended.stderr
    assert f"ended: bad_config — Slurm: job state PENDING, {reason}" in ended.stdout
    wait_for(lambda: not slurm.command("squeue", "--noheader").strip(), pause_seconds=0.5)


@pytest.fixture(scope="module")
def limited() -> Iterator[OneNodeSlurm]:
    """A Slurm whose accounts have limits."""
    reason = missing_for("plain") or slurm_accounting.missing()
    if reason is not None:
        pytest.skip(reason)
    found = OneNodeSlurm("plain", accounting=True, enforce_limits=True)
    try:
        found.start()
        for arguments in ("lab GrpTRES=cpu=2", "wall MaxWall=00:02:00"):
            found.command("sacctmgr", "--quiet", "--immediate", "add", "account", *arguments.split())
            found.command(
                "sacctmgr", "--quiet", "--immediate", "add", "user", "root", f"account={arguments.split()[0]}"
            )
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"account": "lab", "cpus_per_task": 4, "time_limit": "00:01:00"}, "AssocGrpCpuLimit: the account's or QOS's"),
        ({"account": "wall", "time_limit": "00:10:00"}, "AssocMaxWallDurationPerJobLimit: its time limit is longer"),
    ],
)
def test_real_limits_of_an_account_end_the_wait(
    tmp_path: Path, limited: OneNodeSlurm, request_: dict[str, Any], reason: str
) -> None:
    ended = dreamproof(limited, "run", declare(tmp_path, **request_), "--no-check", "--no-report", "--plain")
    assert ended.returncode == ExitCode.GAP_REMAINS, ended.stdout + ended.stderr
    assert f"ended: bad_config — Slurm: job state PENDING, {reason}" in ended.stdout


def test_real_probe_beyond_the_limit_of_an_account_ends_the_check(tmp_path: Path, limited: OneNodeSlurm) -> None:
    checked = dreamproof(limited, "check", declare(tmp_path, account="wall", time_limit="00:10:00"))
    assert checked.returncode == ExitCode.PREFLIGHT_FAILED, checked.stdout + checked.stderr
    assert "AssocMaxWallDurationPerJobLimit: its time limit is longer than the account or QOS allows" in checked.stderr
