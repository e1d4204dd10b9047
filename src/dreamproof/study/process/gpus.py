"""Which GPUs of this machine an attempt gets, and how many attempts share one."""

import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dreamproof.settings.study import Study
from dreamproof.study.process.machine import describe_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_here() -> list[str]:
    """GPUs that this process may use, by CUDA's names, from a variable or NVIDIA's library."""
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return [str(index) for index in range(len(describe_gpus()["devices"]))]
    return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]


@dataclass(frozen=True)
class GpuUse:
    """One GPU at this moment."""

    index: int
    percent: float
    used_bytes: int
    processes: dict[int, int]
    """By process id: its bytes; empty where the driver shows none, as in a container."""


def read_gpu_use() -> list[GpuUse]:
    """What every GPU of this machine does at this moment; none if NVIDIA's library is not there or does not answer."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [_gpu_use(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _gpu_use(pynvml: Any, index: int) -> GpuUse:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    percent = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return GpuUse(index, percent, used, {one.pid: int(one.usedGpuMemory or 0) for one in processes})


def attempts_per_gpu(study: Study, gpus: int) -> int:
    """Attempts that run on one GPU at a time, if there are so many; none known counts as one."""
    if not study.backend.runs_here:
        return 1
    return max(1, math.ceil(study.backend.slots * _whole_gpus(study) / max(1, gpus)))


def assign_gpus(study: Study, gpus: list[str], taken: Iterable[str]) -> dict[str, str]:
    """The variable that gives the next attempt the GPUs which the fewest others have; nothing if there is no choice.

    `taken` are the values of the same variable in attempts that run.
    """
    if not study.backend.runs_here or len(gpus) < 2:
        return {}
    uses = Counter(name for value in taken for name in value.split(","))
    freest = sorted(gpus, key=lambda name: uses[name])[: _whole_gpus(study)]
    return {VISIBLE: ",".join(freest)}


def _whole_gpus(study: Study) -> int:
    return max(1, math.ceil(study.money.gpus_per_attempt))
