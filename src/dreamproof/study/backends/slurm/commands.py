"""Runs Slurm's own commands, at most one per second: sbatch, squeue, scontrol, sacct, sstat, scancel, sinfo.

Leaves it to the backend what to do about the answers.
"""

import getpass
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput, DreamproofError, ExitCode
from dreamproof.study.backends.slurm.limits import Partition, group_limits_from_text, partitions_from_text

MIN_GAP_SECONDS = 1.0
CALL_SECONDS = 60.0
FIRST_BACK_OFF_SECONDS = 2.0
LONGEST_BACK_OFF_SECONDS = 30.0
BUSY_SHARE = 20.0
"""A controller that takes t seconds for its answers is asked again after 20 t at the earliest."""
JSON_WITH_FILTERS = (23, 11)
"""Older versions have --json too, but then print the jobs of every user whatever is asked for."""
OUR_FORMATS = ("SBATCH_", "SQUEUE_", "SCANCEL_", "SACCT_", "SINFO_", "SSTAT_")
BUSY = re.compile(
    r"timed out|unable to contact|connection (?:refused|reset)|temporarily|zero bytes were transmitted"
    r"|message (?:send|receive) failure|unexpected message received|in recovery|MaxSubmit|submit limit|try again"
    r"|slurm backup controller in standby|io error|cannot resolve|address already in use"
    r"|communication (?:connection|shutdown) failure|header lengths are longer|broken pipe|not connected"
    r"|no route to host|unreachable",
    re.IGNORECASE,
)
COLUMNS = (
    "ArrayJobID",
    "ArrayTaskID",
    "JobID",
    "State",
    "exit_code",
    "DerivedEC",
    "Reason",
    "RestartCnt",
    "NodeList",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "Comment",
)
ACCOUNTED = "JobID,State,ExitCode,DerivedExitCode,Reason,NodeList,Submit,Start,End"
# 12, 12_3, 12_[0-3], 12+1, 12.batch; never an option.
JOB = re.compile(r"[0-9][\w\[\],%+.-]*\Z")
NO_ACCOUNTING = re.compile(r"accounting storage is disabled", re.IGNORECASE)
OVER = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
        "BOOT_FAIL",
        "PREEMPTED",
        "DEADLINE",
        "REVOKED",
    }
)


class SlurmError(DreamproofError):
    """A command of Slurm was refused."""

    exit_code = ExitCode.BAD_INPUT


class SlurmBusy(SlurmError):
    """The controller could not answer now; whether it did what was asked is not known."""


@dataclass(frozen=True)
class SlurmJob:
    """One element as Slurm reports it; times are Unix seconds of the controller, codes are written code:signal."""

    array_job: str
    element: str
    state: str
    exit_code: str = "0:0"
    derived_exit_code: str = "0:0"
    reason: str = ""
    restarts: int = 0
    nodes: str = ""
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    comment: str = ""
    step_states: dict[str, str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether Slurm holds no process of it any more, nor will start one."""
        return self.state in OVER

    @property
    def allocated_seconds(self) -> float | None:
        """Time between start and end, both by the controller's clock."""
        if self.started is None or self.ended is None or not self.over:
            return None
        return max(0.0, self.ended - self.started)

    @property
    def queue_seconds(self) -> float | None:
        """Time between submission and start; None while it has not begun."""
        if self.submitted is None or self.started is None or self.state == "PENDING":
            return None
        return max(0.0, self.started - self.submitted)


class SlurmCommands:
    """Every call of a Slurm command in one place: paced, timed, with back-off."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._environment = dict(environment or {})
        self._monotonic, self._pause = monotonic, pause
        self._last_call = float("-inf")
        self._back_off_seconds = 0.0
        self._quiet_until = float("-inf")
        self._answer_seconds = (0.0, 0.0)
        self.calls = 0
        self.has_accounting = True
        self._version: tuple[int, int] | None = None

    @property
    def available(self) -> bool:
        """Whether Slurm's commands are on this machine."""
        return shutil.which("sbatch", path=self._environment.get("PATH")) is not None

    def is_backing_off(self) -> bool:
        """Whether calls are paused because the controller was busy."""
        return self._monotonic() < self._quiet_until

    def submit(self, script: Path) -> str:
        """Hands a script in; returns the number of the (array) job."""
        return self._call(["sbatch", "--parsable", str(script)]).strip().partition(";")[0]

    def test_submission(self, script: Path) -> str:
        """What the scheduler would do with a script; raises SlurmError with its message if it would refuse it."""
        done = self._run(["sbatch", "--test-only", str(script)])
        answer = _one_line(done.stderr or done.stdout)
        if done.returncode != 0:
            raise _failure("sbatch --test-only", answer)
        return answer.removeprefix("sbatch: ")

    def jobs(self, name: str) -> list[SlurmJob]:
        """Every job of ours with this name that the controller remembers, in one call."""
        asked = ["squeue", "--me", "--states=all", f"--name={name}"]
        if self.version() >= JSON_WITH_FILTERS:
            answer = self._call([*asked, "--json"])
            return _read_answer(lambda: jobs_from_json(answer, name), answer)
        columns = ",".join(f"{column}:|" for column in COLUMNS)
        answer = self._call([*asked, "--noheader", f"--Format={columns}"])
        return _read_answer(lambda: jobs_from_table(answer), answer)

    def requeue(self, job: str) -> None:
        """Puts a job back into the queue; its process is ended for it."""
        self._call(["scontrol", "requeue", *_job_arguments([job])])

    def accounted(self, jobs: list[str]) -> dict[str, SlurmJob]:
        """What the accounting remembers of elements, steps included, in one call; nothing if there is none."""
        arguments = ["sacct", "--noheader", "--parsable2", f"--format={ACCOUNTED}", f"--jobs={','.join(jobs)}"]
        done = self._run(arguments)
        if done.returncode != 0:
            if not NO_ACCOUNTING.search(done.stderr):
                raise _failure("sacct", _one_line(done.stderr))
            self.has_accounting = False
            return {}
        found = {job: job_from_accounting(done.stdout, job) for job in jobs}
        return {job: record for job, record in found.items() if record is not None}

    def live_peak_bytes(self, job_id: str) -> int | None:
        """The most memory that any step of a running job has had; an element goes by its own number here."""
        arguments = ["sstat", "--noheader", "--parsable2", "--allsteps", "--noconvert", "--format=MaxRSS"]
        done = self._run([*arguments, f"--jobs={job_id}"])
        sizes = [int(text) for text in done.stdout.split() if text.isdigit()]
        return max(sizes, default=None)

    def cancel(self, name: str, jobs: list[str]) -> None:
        """Cancels these jobs if they have this name; those that are over already are ignored."""
        done = self._run(["scancel", "--quiet", f"--name={name}", *_job_arguments(jobs)])
        if done.returncode != 0 and BUSY.search(done.stderr):
            raise _failure("scancel", _one_line(done.stderr))

    def signal(self, name: str, jobs: list[str], number: str = "TERM") -> None:
        """Sends a signal to the batch process of these jobs if they have this name."""
        done = self._run(
            ["scancel", "--quiet", "--batch", f"--signal={number}", f"--name={name}", *_job_arguments(jobs)]
        )
        if done.returncode != 0 and BUSY.search(done.stderr):
            raise _failure("scancel --signal", _one_line(done.stderr))

    def partitions(self) -> list[dict[str, str]]:
        """Partitions as sinfo reports them: name, availability, nodes, memory in MB, gres."""
        lines = self._call(["sinfo", "--noheader", "--format=%P|%a|%D|%m|%G|%l"]).splitlines()
        names = ("name", "available", "nodes", "memory_mb", "gres", "time_limit")
        return [dict(zip(names, line.split("|"), strict=False)) for line in lines if line.strip()]

    def partition_limits(self) -> list[Partition]:
        """What each partition allows; empty if the controller does not answer."""
        try:
            return partitions_from_text(self._call(["scontrol", "show", "partition", "--oneliner"]))
        except SlurmError:
            return []

    def group_limits(self, account: str | None, qos: str | None) -> dict[str, float]:
        """What jobs of this account and QOS may use together; nothing if neither is named or there is no answer."""
        filters = [["flags=assoc", f"accounts={account}", f"users={getpass.getuser()}"]] if account else []
        filters += [["flags=qos", f"qos={qos}"]] if qos else []
        try:
            answers = [self._call(["scontrol", "show", "assoc_mgr", *arguments]) for arguments in filters]
        except SlurmError:
            return {}
        return group_limits_from_text("\n".join(answers))

    def version(self) -> tuple[int, int]:
        """(year, month) of this Slurm; asks no controller."""
        if self._version is None:
            done = subprocess.run(
                ["squeue", "--version"],
                capture_output=True,
                text=True,
                env=self._variables("squeue"),
                timeout=CALL_SECONDS,
                check=False,
            )
            found = re.search(r"(\d+)\.(\d+)", done.stdout)
            self._version = (int(found[1]), int(found[2])) if found else (0, 0)
        return self._version

    def next_poll_seconds(self, poll_seconds: float) -> float:
        """How long to wait between two polls: longer where the controller was slow twice in a row."""
        slow_seconds = BUSY_SHARE * min(self._answer_seconds)
        return max(poll_seconds, min(LONGEST_BACK_OFF_SECONDS, slow_seconds))

    def _call(self, arguments: list[str]) -> str:
        done = self._run(arguments)
        if done.returncode != 0:
            raise _failure(arguments[0], _one_line(done.stderr or done.stdout))
        return done.stdout

    def _run(self, arguments: list[str]) -> "subprocess.CompletedProcess[str]":
        """One paced call; a controller that does not answer is left alone for a while, longer every time."""
        gap = self._last_call + MIN_GAP_SECONDS - self._monotonic()
        if gap > 0:
            self._pause(gap)
        began = self._last_call = self._monotonic()
        self.calls += 1
        try:
            done = subprocess.run(
                arguments,
                capture_output=True,
                text=True,
                env=self._variables(arguments[0]),
                timeout=CALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._back_off()
            raise SlurmBusy(f"{arguments[0]}: no answer within {CALL_SECONDS:g} s", "scontrol ping") from None
        except FileNotFoundError:
            raise SlurmError(
                f"{arguments[0]}: no such command on this machine",
                "run it on a login node of the cluster: which sbatch",
            ) from None
        self._last_call = self._monotonic()
        self._answer_seconds = (self._answer_seconds[1], self._last_call - began)
        if done.returncode != 0 and BUSY.search(done.stderr):
            self._back_off()
        else:
            self._back_off_seconds = 0.0
        return done

    def _back_off(self) -> None:
        doubled = max(FIRST_BACK_OFF_SECONDS, 2 * self._back_off_seconds)
        self._back_off_seconds = min(LONGEST_BACK_OFF_SECONDS, doubled)
        self._quiet_until = self._monotonic() + self._back_off_seconds

    def _variables(self, command: str) -> dict[str, str]:
        """Our environment without a person's formats and defaults; times as Unix seconds, lists in full."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OUR_FORMATS)}
        asks = command in ("squeue", "sacct", "scontrol")
        ours = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"} if asks else {}
        return {**kept, **self._environment, **ours}


def _read_answer(read: Callable[[], list[SlurmJob]], answer: str) -> list[SlurmJob]:
    """The jobs of an answer; one that is cut off, or in another form, is an error of Slurm and not of ours."""
    try:
        return read()
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise _failure("squeue", f"an answer that cannot be read ({error}): {_one_line(answer)[:200]}") from None


def _failure(command: str, message: str) -> SlurmError:
    kind = SlurmBusy if BUSY.search(message) else SlurmError
    return kind(f"{command}: {message or 'failed without a message'}", "scontrol ping; sinfo")


def _one_line(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[:600]


def wait_status(raw: int) -> str:
    """A wait status as Slurm keeps it, written code:signal."""
    return f"{raw >> 8}:{raw & 0x7F}"


def _seconds(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) > 0 else None


def _job_arguments(jobs: list[str]) -> list[str]:
    """Job numbers as arguments; anything else, which a received folder may hold, would be an option."""
    for job in jobs:
        if not JOB.match(job):
            raise BadInput(f"{job!r} is not the number of a Slurm job", "squeue --me")
    return jobs


def jobs_from_table(text: str) -> list[SlurmJob]:
    """Jobs from the columns of squeue."""
    found = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) < len(COLUMNS):
            continue
        row = dict(zip(COLUMNS, parts, strict=False))
        single = not row["ArrayTaskID"].strip() or row["ArrayTaskID"] == "N/A"
        found.append(
            SlurmJob(
                row["JobID"] if single else row["ArrayJobID"],
                "" if single else row["ArrayTaskID"],
                state_name(row["State"]),
                wait_status(int(row["exit_code"] or 0)),
                wait_status(int(row["DerivedEC"] or 0)) if row["DerivedEC"].isdigit() else row["DerivedEC"],
                "" if row["Reason"] == "None" else row["Reason"],
                int(row["RestartCnt"] or 0),
                row["NodeList"],
                _seconds(row["SubmitTime"]),
                _seconds(row["StartTime"]),
                _seconds(row["EndTime"]),
                row["Comment"],
            )
        )
    return found


def listed_elements(text: str) -> set[int]:
    """Numbers in Slurm's list of elements, e.g. 0-3,7,10-20:5%4."""
    found: set[int] = set()
    for part in text.partition("%")[0].split(","):
        found_range = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if found_range:
            found |= set(
                range(int(found_range[1]), int(found_range[2] or found_range[1]) + 1, int(found_range[3] or 1))
            )
    return found


def state_name(text: str) -> str:
    """`CANCELLED by 0` and `CANCELLED+` as CANCELLED."""
    return text.split()[0].rstrip("+") if text.split() else "UNKNOWN"


def jobs_from_json(text: str, name: str) -> list[SlurmJob]:
    """Jobs with this name from `squeue --json`, whichever version wrote it."""
    return [_job_from_json(row) for row in json.loads(text).get("jobs", []) if row.get("name") == name]


def _job_from_json(row: dict[str, Any]) -> SlurmJob:
    array_job, element = _number(row.get("array_job_id")), _number(row.get("array_task_id"))
    listed = str(row.get("array_task_string") or "")
    state = row.get("job_state", "UNKNOWN")
    return SlurmJob(
        str(array_job or _number(row.get("job_id"))),
        listed or (str(element) if array_job and element is not None else ""),
        state_name(state[0] if isinstance(state, list) else str(state)),
        _code(row.get("exit_code")),
        _code(row.get("derived_exit_code")),
        "" if row.get("state_reason") in (None, "None") else str(row["state_reason"]),
        _number(row.get("restart_cnt")) or 0,
        str(row.get("nodes") or ""),
        _time(row.get("submit_time")),
        _time(row.get("start_time")),
        _time(row.get("end_time")),
        str(row.get("comment") or ""),
    )


def _number(value: Any) -> int | None:
    """A number, or the number in newer versions' {"set": …, "number": …}; None if it is not set."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") else None
    return int(value) if isinstance(value, int | float) else None


def _time(value: Any) -> float | None:
    number = _number(value)
    return float(number) if number else None


def _code(value: Any) -> str:
    """code:signal from a raw wait status or from newer versions' {"return_code": …, "signal": …}."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal", {})
        number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else 0
        return f"{_number(value['return_code']) or 0}:{number or 0}"
    return wait_status(_number(value) or 0)


def job_from_accounting(text: str, job: str) -> SlurmJob | None:
    """An element and the states of its steps from `sacct --parsable2`."""
    names = ACCOUNTED.split(",")
    rows = [dict(zip(names, line.split("|"), strict=False)) for line in text.splitlines() if "|" in line]
    own = [row for row in rows if row["JobID"] == job]
    if not own:
        return None
    row = own[-1]
    array_job, _, element = job.partition("_")
    steps = {
        other["JobID"].partition(".")[2]: state_name(other["State"])
        for other in rows
        if other["JobID"].startswith(f"{job}.")
    }
    return SlurmJob(
        array_job,
        element,
        state_name(row["State"]),
        row["ExitCode"] or "0:0",
        row["DerivedExitCode"] or "0:0",
        "" if row["Reason"] in ("", "None") else row["Reason"],
        0,
        row["NodeList"],
        _seconds(row["Submit"]),
        _seconds(row["Start"]),
        _seconds(row["End"]),
        "",
        steps,
    )
