"""What a partition allows, and which reasons for waiting in the queue never clear, each with its remedy. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the shim of a job imports this too, and its memory counts as the job's
    from dreamproof.settings.backend import Slurm

UNLIMITED = float("inf")


@dataclass(frozen=True)
class Partition:
    """One partition as `scontrol show partition` reports it."""

    name: str
    is_default: bool = False
    max_time: str = "UNLIMITED"
    min_nodes: int = 0
    max_nodes: float = UNLIMITED

    @property
    def max_seconds(self) -> float:
        """The longest time limit of a job in it."""
        return limit_seconds(self.max_time)


def limit_seconds(text: str) -> float:
    """A time limit as sbatch takes it: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S; what is no time is no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if found is None:
        return UNLIMITED
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        units = (3600, 60, 1)
    else:
        units = (60, 1, 0) if len(numbers) < 3 else (3600, 60, 1)
    return 86400 * int(days or 0) + sum(unit * number for unit, number in zip(units, numbers, strict=False))


def partitions_from_text(text: str) -> list[Partition]:
    """Partitions from `scontrol show partition --oneliner`."""
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines() if "PartitionName=" in line]
    return [
        Partition(
            row["PartitionName"],
            row.get("Default") == "YES",
            row.get("MaxTime", "UNLIMITED"),
            int(row.get("MinNodes") or 0) if row.get("MinNodes", "0").isdigit() else 0,
            float(row["MaxNodes"]) if row.get("MaxNodes", "").isdigit() else UNLIMITED,
        )
        for row in rows
    ]


def chosen_partitions(settings: Slurm, partitions: list[Partition]) -> list[Partition]:
    """Those in which a job of the study may run."""
    if settings.partition is None:
        return [one for one in partitions if one.is_default]
    return [one for one in partitions if one.name in settings.partition.split(",")]


def longest_time(settings: Slurm, partitions: list[Partition]) -> str:
    """The longest time limit that any partition of the study allows; UNLIMITED if nothing is known."""
    chosen = chosen_partitions(settings, partitions)
    return max(chosen, key=lambda one: one.max_seconds).max_time if chosen else "UNLIMITED"


def probe_time_limit(settings: Slurm, partitions: list[Partition]) -> str:
    """What a probe asks for: no more than declared for it, for an attempt, or allowed in the partition."""
    limits = (settings.probe_time_limit, settings.time_limit, longest_time(settings, partitions))
    return min(limits, key=limit_seconds)


@dataclass(frozen=True)
class Request:
    """What one job asks for."""

    time_limit: str
    cpus: int = 1
    memory_mb: int = 0
    gpus: int = 0

    def exceeds(self, limits: dict[str, float]) -> bool:
        """Whether it alone is more than a group may use together; keys are Slurm's, with `-minutes` for its minutes."""
        asked: dict[str, float] = {"cpu": self.cpus, "mem": self.memory_mb, "gres/gpu": self.gpus, "node": 1}
        asked |= {f"{name}-minutes": count * limit_seconds(self.time_limit) / 60 for name, count in [*asked.items()]}
        return any(count > limits.get(name, UNLIMITED) for name, count in asked.items())


def group_limits_from_text(text: str) -> dict[str, float]:
    """The smallest GrpTRES and GrpTRESMins over all records in `scontrol show assoc_mgr`: cpu=2(0) is 2, N is none."""
    found: dict[str, float] = {}
    for kind, listed in re.findall(r"\b(GrpTRES|GrpTRESMins)=(\S+)", text):
        for name, limit in re.findall(r"([\w/]+)=(\d+)\(", listed):
            key = name if kind == "GrpTRES" else f"{name}-minutes"
            found[key] = min(found.get(key, UNLIMITED), float(limit))
    return found


@dataclass(frozen=True)
class Site:
    """Limits of the site, queried only when a reason concerns them."""

    partitions: list[Partition] = field(default_factory=list)
    group_limits: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Stuck:
    """A reason that no waiting clears by itself."""

    pattern: str
    remedy: str
    is_final: bool = True
    """False where a person or a returning node may clear it: an attempt waits on, a probe gives up after a while."""


# The first that matches counts. Limits on one job's own request never change while it waits; limits on what a
# user or an account uses together do, so QOSMaxCpuPerUserLimit, AssocMaxJobsLimit and their like are not here.
STUCK = (
    Stuck(
        "PartitionTimeLimit",
        "its time limit is longer than the partition allows: lower backend.slurm.time_limit (sinfo -o '%P %l')",
    ),
    Stuck(
        "(Assoc|QOS)MaxWallDurationPerJob",
        "its time limit is longer than the account or QOS allows: lower backend.slurm.time_limit "
        "(sacctmgr show assoc,qos format=account,user,name,maxwall)",
    ),
    Stuck(
        "(Assoc|QOS)Max[A-Za-z]+Per(Job|Node)|(Assoc|QOS)Min[A-Z]|MaxMemPerLimit",
        "one job asks for more or less than the account, QOS or partition allows: change backend.slurm.memory, "
        "cpus_per_task, gres or time_limit (sacctmgr show assoc,qos; scontrol show partition)",
    ),
    Stuck(
        "BadConstraints",
        "no node has what it asks for: change backend.slurm.constraint, gres, memory or cpus_per_task "
        "(sinfo -o '%P %f %G %m %c')",
    ),
    Stuck(
        "InvalidQOS|QOSNotAllowed",
        "the QOS does not exist or is not allowed here: change backend.slurm.qos (sacctmgr show assoc user=$USER)",
    ),
    Stuck(
        "InvalidAccount|AccountNotAllowed",
        "the account does not exist or is not allowed here: change backend.slurm.account "
        "(sacctmgr show assoc user=$USER)",
    ),
    Stuck("PartitionConfig", "the partition no longer allows such a job (scontrol show partition)"),
    Stuck("DependencyNeverSatisfied", "its dependency failed: see backend.slurm.extra"),
    Stuck("DeadLine", "it cannot end before its deadline: see backend.slurm.extra"),
    Stuck("ReservationDeleted|InvalidReservation", "its reservation is gone: see backend.slurm.extra"),
    Stuck("launch.failed.requeued.held", "the node could not start it (sinfo -R)"),
    Stuck("JobHoldMaxRequeue", "it was requeued too often (scontrol show job)"),
    # A person holds these on purpose and may let go of them.
    Stuck("JobHeldUser", "held by a user: scontrol release JOB, or scancel JOB", is_final=False),
    Stuck("JobHeldAdmin", "held by an administrator: ask them, or scancel JOB", is_final=False),
    # Nodes come back, and reservations end.
    Stuck("ReqNodeNotAvail|NodeDown", "nodes are down, drained or reserved: sinfo -R", is_final=False),
    Stuck("PartitionDown|PartitionInactive", "the partition is closed: sinfo -s", is_final=False),
    Stuck("PartitionNodeLimit", "the partition's nodes are down, or it takes no job of one node", is_final=False),
    # Shared limits clear when other jobs end; used-up minutes come back at the site's reset. A job that alone asks
    # for more than the whole limit is the exception.
    Stuck(
        "(Assoc|QOS)Grp",
        "the account's or QOS's limit is used up, or smaller than one job: sacctmgr show assoc,qos",
        is_final=False,
    ),
)


def find_stuck(reason: str) -> Stuck | None:
    """What is known about a reason for waiting; None if waiting is normal."""
    return next((one for one in STUCK if re.search(one.pattern, reason, re.IGNORECASE)), None)


def never_starts(reason: str, settings: Slurm, request: Request, site: Site) -> str | None:
    """The remedy if a job waits for something that never comes; None if waiting may help."""
    stuck = find_stuck(reason)
    if stuck is None:
        return None
    if "Grp" in reason:
        return stuck.remedy if request.exceeds(site.group_limits) else None
    chosen = chosen_partitions(settings, site.partitions)
    if "PartitionNodeLimit" in reason:
        # Also reported while nodes are down; one node is never allowed only if the limits exclude it.
        closed = bool(chosen) and all(one.min_nodes > 1 or one.max_nodes < 1 for one in chosen)
        return f"{stuck.remedy} (scontrol show partition)" if closed else None
    if "PartitionTimeLimit" in reason and len(chosen) > 1:
        # Slurm names the last partition it tried; another one of the list may take the job.
        fits = any(one.max_seconds >= limit_seconds(request.time_limit) for one in chosen)
        return None if fits else stuck.remedy
    return stuck.remedy if stuck.is_final else None
