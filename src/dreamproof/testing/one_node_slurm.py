"""A throw-away Slurm of one node for tests and measurements: its own key, ports, state and logs; needs root.

`python -m dreamproof.testing.one_node_slurm FOLDER [cgroup|plain]` starts one and prints how to use and end it.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dreamproof.testing.slurm_accounting import Accounting
from dreamproof.testing.waiting import HANG_SECONDS

DAEMONS = ("slurmctld", "slurmd", "munged")
COMMANDS = (*DAEMONS, "sbatch", "squeue", "scontrol", "scancel", "sinfo")
V1_MEMORY = Path("/sys/fs/cgroup/memory")
CPUS = 32
CLUSTER = "throwaway"
MEMORY_MB = 16000


def missing_for(mode: str) -> str | None:
    """Why no such Slurm can be started here; None where it can."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    absent = [name for name in COMMANDS if shutil.which(name, path=path) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: apt-get install slurm-wlm munge)"
    if os.geteuid() != 0:
        return "only root can start Slurm's daemons"
    if mode == "cgroup" and not os.access(V1_MEMORY / "cgroup.procs", os.W_OK):
        return "kernel: no writable cgroup v1 memory controller"
    return None


def start_or_reason(mode: str) -> "OneNodeSlurm | str":
    """A started Slurm, or why there is none."""
    reason = missing_for(mode)
    return OneNodeSlurm(mode).start() if reason is None else reason


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _lives(process_id: int) -> bool:
    """Whether a process runs; one that ended and that nobody has asked about yet does not."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class OneNodeSlurm:
    """Starts munged, slurmctld and slurmd, and ends exactly those."""

    def __init__(
        self,
        mode: str,
        folder: Path | None = None,
        accounting: bool = False,
        enforce_limits: bool = False,
    ) -> None:
        self.mode = mode
        # A socket's path may be 107 characters long, so a test's deep folder will not do.
        self.folder = folder or Path(tempfile.mkdtemp(prefix="slurm-"))
        self.host = socket.gethostname().split(".")[0]
        self.conf = self.folder / "slurm.conf"
        ports = _free_ports(4)
        self.ports = ports[:2]
        self.accounting = Accounting(self.folder, (ports[2], ports[3])) if accounting else None
        self.enforce_limits = enforce_limits

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs to reach this Slurm."""
        return {"SLURM_CONF": str(self.conf)}

    def start(self) -> "OneNodeSlurm":
        """Writes the configuration and starts the daemons; returns when the node is idle."""
        for name in ("state", "spool", "log", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "log").chmod(0o700)
        for name in ("", "run"):
            (self.folder / name).chmod(0o755)
        self._write_configuration()
        self.start_munge()
        if self.accounting is not None:
            self.accounting.start(CLUSTER)
        self.start_controller(clean=True)
        self.start_node()
        self.wait_until_idle()
        return self

    def _write_configuration(self) -> None:
        controller, node = self.ports
        run, log = self.folder / "run", self.folder / "log"
        (run / "munge.key").write_bytes(secrets.token_bytes(256))
        (run / "munge.key").chmod(0o400)
        kinds = {
            "cgroup": ("proctrack/cgroup", "task/cgroup", "jobacct_gather/cgroup", ""),
            "plain": ("proctrack/linuxproc", "task/none", "jobacct_gather/linux", "OverMemoryKill"),
        }
        tracking, tasks, gathering, parameters = kinds[self.mode]
        lines: dict[str, object] = {
            "ClusterName": CLUSTER,
            "SlurmctldHost": f"{self.host}(127.0.0.1)",
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            "AuthInfo": f"socket={run / 'munge.socket'},cred_expire=5",
            "SlurmctldPort": controller,
            "SlurmdPort": node,
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool",
            "SlurmctldPidFile": run / "slurmctld.pid",
            "SlurmdPidFile": run / "slurmd.pid",
            "SlurmctldLogFile": log / "slurmctld.log",
            "SlurmdLogFile": log / "slurmd.log",
            "ProctrackType": tracking,
            "TaskPlugin": tasks,
            "JobAcctGatherType": gathering,
            "JobAcctGatherFrequency": "task=1",
            # Slurm names memory groups by job, so two Slurms on one machine must not give the same numbers.
            "FirstJobId": 1 + 10_000 * secrets.randbelow(5_000),
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0",
            "AccountingStorageType": "accounting_storage/none",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "SlurmdParameters": "config_overrides",
            "KillWait": 2,
            "MessageTimeout": 10,
            "MinJobAge": 3600,
            "ReturnToService": 2,
            "SlurmdTimeout": 300,
            "MailProg": "/bin/true",
            "GresTypes": "gpu",
        }
        if self.accounting is not None:
            lines |= self.accounting.lines
        if self.enforce_limits:
            lines["AccountingStorageEnforce"] = "limits"
        if parameters:
            lines["JobAcctGatherParams"] = parameters
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        text += f"NodeName={self.host} NodeAddr=127.0.0.1 CPUs={CPUS} RealMemory={MEMORY_MB} Gres=gpu:2 State=UNKNOWN\n"
        partition = f"Nodes={self.host} MaxTime=INFINITE State=UP OverSubscribe=NO"
        text += f"PartitionName=work {partition} Default=YES PriorityTier=5 PreemptMode=OFF\n"
        text += f"PartitionName=cheap {partition} PriorityTier=1 PreemptMode=CANCEL\n"
        text += f"PartitionName=again {partition} PriorityTier=1 PreemptMode=REQUEUE\n"
        text += f"PartitionName=dear {partition} PriorityTier=9 PreemptMode=OFF\n"
        text += f"PartitionName=short {partition.replace('INFINITE', '00:03:00')} PreemptMode=OFF\n"
        text += f"PartitionName=wide {partition} MinNodes=2 PreemptMode=OFF\n"
        self.conf.write_text(text)
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        (self.folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
            "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nAllowedSwapSpace=0\n"
        )

    def _daemon(self, *arguments: str) -> None:
        path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
        variables = {**os.environ, **self.environment, "PATH": path}
        subprocess.run(arguments, env=variables, check=True, capture_output=True, timeout=HANG_SECONDS)

    def start_munge(self) -> None:
        run = self.folder / "run"
        self._daemon(
            "munged",
            "--force",
            f"--socket={run / 'munge.socket'}",
            f"--key-file={run / 'munge.key'}",
            f"--pid-file={run / 'munged.pid'}",
            f"--log-file={self.folder / 'log' / 'munged.log'}",
            f"--seed-file={run / 'munge.seed'}",
        )

    def start_controller(self, clean: bool = False) -> None:
        """Starts slurmctld; without `clean` it remembers its jobs."""
        self._daemon("slurmctld", "-f", str(self.conf), *(["-c"] if clean else []))

    def forget_jobs(self) -> None:
        """Takes away what a stopped controller saved of its jobs."""
        for saved in (self.folder / "state").glob("job_state*"):
            saved.unlink()

    def start_node(self) -> None:
        self._daemon("slurmd", "-f", str(self.conf), "-N", self.host)

    def lose_node(self) -> None:
        """Ends slurmd and marks the node as down; processes on it continue."""
        self.kill("slurmd")
        self.command("scontrol", "update", f"nodename={self.host}", "state=down", "reason=lost")

    def process_id(self, daemon: str) -> int | None:
        """The process of one of our daemons, by its own pid file."""
        try:
            return int((self.folder / "run" / f"{daemon}.pid").read_text())
        except (OSError, ValueError):
            return None

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> None:
        """Ends one daemon and waits until it is gone."""
        process_id = self.process_id(daemon)
        if process_id is None:
            return
        with suppress(ProcessLookupError):
            os.kill(process_id, number)
        until = time.monotonic() + 20
        while _lives(process_id) and time.monotonic() < until:
            time.sleep(0.02)

    def wait_until_written_down(self) -> None:
        """Returns when the controller has saved what it knows; it does so some seconds after a change, so makes one."""
        began = time.time()
        mark = self.command("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
        state, until = self.folder / "state" / "job_state", time.monotonic() + HANG_SECONDS
        while not (state.exists() and state.stat().st_mtime > began) and time.monotonic() < until:
            time.sleep(0.1)
        self.command("scancel", mark)

    def command(self, *arguments: str) -> str:
        """Output of a Slurm command; raises where it fails."""
        variables = {**os.environ, **self.environment}
        return subprocess.run(
            arguments, env=variables, check=True, capture_output=True, text=True, timeout=HANG_SECONDS
        ).stdout

    def wait_until_idle(self) -> None:
        """Returns when the node can take jobs."""
        until = time.monotonic() + HANG_SECONDS
        while time.monotonic() < until:
            with suppress(subprocess.CalledProcessError):
                if self.command("sinfo", "--noheader", "--format=%T").split()[:1] in (["idle"], ["mixed"]):
                    return
            time.sleep(0.2)
        raise TimeoutError((self.folder / "log" / "slurmctld.log").read_text()[-2000:])

    def tidy(self) -> None:
        """Empties the queue and puts the node back to work, whatever was done to it."""
        for daemon, start in (("slurmctld", self.start_controller), ("slurmd", self.start_node)):
            process_id = self.process_id(daemon)
            if process_id is None or not _lives(process_id):
                start()
        self.command("scancel", "--user=root")
        with suppress(subprocess.CalledProcessError):  # refused where it is not down or drained
            self.command("scontrol", "update", f"nodename={self.host}", "state=resume")
        self.wait_until_idle()

    def stop(self) -> None:
        """Cancels everything in this Slurm and ends its daemons."""
        with suppress(subprocess.SubprocessError):
            self.command("scancel", "--user=root")
            until = time.monotonic() + 15
            while self.command("squeue", "--noheader").strip() and time.monotonic() < until:
                time.sleep(0.3)
        for daemon in DAEMONS:
            self.kill(daemon, signal.SIGTERM)
            self.kill(daemon)
        if self.accounting is not None:
            self.accounting.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    slurm = OneNodeSlurm((sys.argv[2:] or ["cgroup"])[0], Path(sys.argv[1]).resolve()).start()
    print(f"export SLURM_CONF={slurm.conf}")
    print(f"to end it: scancel --user=root; kill $(cat {slurm.folder}/run/*.pid)")
