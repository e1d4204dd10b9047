"""What all slots of a study will need together, against what this machine has."""

from collections.abc import Sequence
from typing import Any

from dreamproof.base.text import bytes_text
from dreamproof.settings.backend import memory_bytes
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process import machine
from dreamproof.study.process.gpus import attempts_per_gpu, gpus_here

KEPT_CHECKPOINTS = 3
LOG_BYTES_PER_CELL = 4 << 20


def judge_needs(
    opened: OpenStudy, probes: Sequence[dict[str, Any]], facts: dict[str, Any]
) -> tuple[dict[str, Any], list[str], list[str]]:
    """What all slots together will need, against what this machine has."""
    study = opened.study
    total, available = machine.host_memory_bytes()
    max_parallel = min(study.backend.slots, len(study.arms) * len(study.seeds))
    if study.backend.slurm is not None:  # every attempt has what its job asks for, on whatever node
        total = available = memory_bytes(study.backend.slurm.memory)
        max_parallel = 1
    host = _largest(probes, "forecast_host_bytes", "host_bytes")
    device = _largest(probes, "forecast_device_bytes", "device_bytes")
    checkpoint = _largest(probes, "checkpoint_bytes")
    missing = sum(not opened.state.trained(cell) for cell in opened.state.cells.values())
    needs: dict[str, Any] = {
        "host_bytes": host * max_parallel if host else None,
        "host_total_bytes": total,
        "host_available_bytes": available,
        "device_bytes": _device_need(study, device, len(gpus_here())),
        "device_total_bytes": _device_total(study, facts),
        "disk_bytes": missing * (KEPT_CHECKPOINTS * checkpoint + LOG_BYTES_PER_CELL) if checkpoint else None,
        "disk_free_bytes": machine.disk_free_bytes(opened.folder.root),
    }
    faults = [
        f"{name} needs {bytes_text(needs[need])}, this machine has {bytes_text(needs[has])}"
        for name, need, has in (
            ("host memory", "host_bytes", "host_total_bytes"),
            ("device memory", "device_bytes", "device_total_bytes"),
            ("disk", "disk_bytes", "disk_free_bytes"),
        )
        if needs[need] is not None and needs[has] is not None and needs[need] > needs[has]
    ]
    warnings = money_warnings(study, len(gpus_here()))
    if needs["host_bytes"] is not None and available < needs["host_bytes"] <= total:
        warnings.append(
            f"host memory needs {bytes_text(needs['host_bytes'])}, only {bytes_text(available)} are free at present"
        )
    if needs["host_bytes"] is None:
        warnings.append("memory is not forecast: the trainer writes no probe.json")
    return needs, faults, warnings


def _device_total(study: Study, facts: dict[str, Any]) -> int | None:
    """Memory of the smallest device here; unknown on a login node of a cluster."""
    if not study.backend.runs_here:
        return None
    return min((one["total_bytes"] for one in facts["gpu"]["devices"]), default=None)


def _largest(probes: Sequence[dict[str, Any]], *keys: str) -> int:
    """The largest value of the first key that a probe measured, over all arms; 0 if none did."""
    found = [0]
    for probe in probes:
        value = next((probe[key] for key in keys if isinstance(probe.get(key), int | float)), None)
        if value is not None:
            found.append(int(value))
    return max(found)


def _device_need(study: Study, device: int, gpus: int) -> int | None:
    """Bytes on one device: a pack multiplies what one cell takes, and attempts may share a device."""
    if not device:
        return None
    packed = 1 if isinstance(study.trainer, CommandTrainer) else study.pack_cells
    return device * packed * attempts_per_gpu(study, gpus)


def money_warnings(study: Study, gpus: int) -> list[str]:
    """A warning if more GPUs are paid for than this machine has."""
    counted = study.backend.slots * study.money.gpus_per_attempt
    if not study.backend.runs_here or not gpus or not study.money.price_per_gpu_hour or counted <= gpus:
        return []
    share = gpus / study.backend.slots
    return [f"money counts {counted:g} GPUs, this machine has {gpus}: set gpus_per_attempt: {share:g} under 'money'"]
