"""Settings of the place where attempts run: this machine or a Slurm cluster."""

import re
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dreamproof.settings.checked import FreeText, Line
from dreamproof.settings.strict import Settings

MEMORY_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "": 1 << 20}


def memory_bytes(text: str) -> int:
    """`8G` as bytes; a bare number is in megabytes, as for sbatch."""
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    assert found is not None, text
    return int(found[1]) * MEMORY_UNITS[found[2]]


def gpus_of(gres: str | None) -> int | None:
    """GPUs in a gres request such as gpu:a100:2; None if it names none."""
    counts = [
        int(parts[-1]) if parts[-1].isdigit() else 1
        for parts in (part.split("(")[0].split(":") for part in (gres or "").split(","))
        if parts[0] in ("gpu", "gres/gpu")
    ]
    return sum(counts) if counts else None


class Slurm(Settings):
    """How a cell asks a cluster for its place."""

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    constraint: Line | None = None
    gres: Line | None = None
    cpus_per_task: int = Field(2, ge=1)
    memory: str = Field("8G", pattern=r"^\d+[KMGT]?$")
    memory_cap: str | None = Field(None, pattern=r"^\d+[KMGT]?$", description="no more than this after out-of-memory")
    time_limit: Line = Field("04:00:00", description="as sbatch --time takes it")
    signal_seconds_before_limit: int = Field(120, ge=0)
    setup: list[FreeText] = Field(default_factory=list, description="shell lines before the trainer, e.g. module load")
    extra: list[Line] = Field(default_factory=list, description="extra #SBATCH lines")
    array_throttle: int = Field(20, ge=1, description="array elements running at a time")
    requeue: bool = Field(True, description="allow requeueing: at the time limit, after preemption, after a lost node")
    probe_time_limit: Line = Field("00:30:00", description="time limit of the preflight's probe jobs")
    poll_seconds: float = Field(10.0, ge=1.0, description="seconds between two polls of the controller")
    lease_seconds: float = Field(15.0, ge=2.0, description="how long a job continues that cannot read its lease")


class BackendSettings(Settings):
    """Where attempts run, and how many at a time."""

    kind: Literal["local", "slurm"] = "local"
    slots: int = Field(1, ge=1, le=10_000, description="attempts running at a time")
    memory_limit_bytes: int | None = Field(
        None, ge=1 << 20, description="host memory of one attempt, where enforceable"
    )
    quick_compiles: bool = Field(
        False,
        description="without a GPU, compile our own trainers without XLA's optimisers: for networks so small that they "
        "take longer to compile than to train",
    )
    slurm: Slurm | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_queue_is_long(cls, value: Any) -> Any:
        """On a cluster everything may wait in the queue; what runs at a time is array_throttle's part."""
        if isinstance(value, dict) and value.get("kind") == "slurm":
            return {"slots": 1000, "slurm": {}, **value}
        return value

    @property
    def has_queue(self) -> bool:
        """Whether attempts wait in a scheduler's queue."""
        return self.slurm is not None

    @property
    def runs_here(self) -> bool:
        """Whether attempts use this machine, which is paid for as a whole; else only running attempts are paid for."""
        return self.slurm is None

    @property
    def counts_memory_per_attempt(self) -> bool:
        """Whether the memory controller counts the kills of each attempt apart."""
        return self.memory_limit_bytes is not None or self.slurm is not None

    @property
    def lease_seconds(self) -> float | None:
        """How long an attempt continues without reading its lease; None if it needs no lease."""
        return self.slurm.lease_seconds if self.slurm is not None else None

    @property
    def max_parallel(self) -> int:
        """Attempts that run at a time."""
        return self.slots if self.slurm is None else min(self.slots, self.slurm.array_throttle)

    @model_validator(mode="after")
    def _slurm_has_its_part(self) -> Self:
        if self.slurm is not None and self.kind != "slurm":
            raise ValueError("a 'slurm' part needs kind: slurm")
        return self
