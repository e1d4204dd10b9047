"""What this machine is: devices, driver, memory, disk, library versions, code; recorded before money is spent."""

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from dreamproof.base.commit import Commit, code_commit, commit_of

VARIABLES = ("CUDA_VISIBLE_DEVICES", "MUJOCO_GL", "JAX_PLATFORMS", "JAX_PLATFORM_NAME", "XLA_FLAGS", "OMP_NUM_THREADS")
LIBRARIES = ("dreamproof", "numpy", "jax", "jaxlib", "equinox", "optax", "mujoco", "gymnasium", "torch")
CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
CUDA_HINT = "pip install 'dreamproof[cuda]'"
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PRESSURES = ("/proc/pressure/memory", "/proc/pressure/io", "/sys/fs/cgroup/cpu.pressure")

Facts = dict[str, Any]


def describe_machine(code_folder: Path, environment: dict[str, str]) -> Facts:
    """Everything about this machine that may change what a run does."""
    seen = {**os.environ, **environment}
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "python": {"executable": sys.executable, "version": platform.python_version()},
        "cores": os.cpu_count(),
        "gpu": describe_gpus(),
        "versions": library_versions(),
        "environment": {name: seen[name] for name in VARIABLES if name in seen},
        "code": describe_code(code_folder),
        "program": _code_facts(Path(__file__).parent, code_commit()),
    }


def describe_gpus() -> Facts:
    """Driver and devices as NVIDIA's library reports them; else the reason."""
    try:
        import pynvml
    except ImportError:
        return {"devices": [], "reason": "pynvml is not installed"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"devices": [], "reason": str(error)}
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        memory = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError as error:
        return {"devices": [], "reason": str(error)}
    finally:
        pynvml.nvmlShutdown()
    devices = [
        {"name": _text(name), "total_bytes": int(info.total), "free_bytes": int(info.free)}
        for name, info in zip(names, memory, strict=True)
    ]
    return {"driver": _text(driver), "devices": devices}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def library_versions() -> dict[str, str]:
    """Versions of the libraries that matter, as installed with this program."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def unused_gpu(facts: Facts) -> str | None:
    """A warning if this machine has a GPU that the installed JAX cannot use."""
    asks_for_cpu = "cpu" in facts["environment"].get("JAX_PLATFORMS", "")
    if not facts["gpu"]["devices"] or "jax" not in facts["versions"] or asks_for_cpu:
        return None
    if any(_is_installed(name) for name in CUDA_PLUGINS):
        return None
    return f"{facts['gpu']['devices'][0]['name']}: JAX cannot use it: {CUDA_HINT}"


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def describe_code(folder: Path) -> Facts:
    """Commit of the code in a folder, and a hash of what was edited since; a reason if there is no repository."""
    return _code_facts(folder, commit_of(folder))


def _code_facts(folder: Path, commit: Commit | None) -> Facts:
    if commit is None:
        return {"folder": str(folder), "reason": "not a git repository"}
    facts: Facts = {"folder": str(folder), "commit": commit.name, "dirty": bool(commit.edits)}
    if commit.edits:
        facts["diff_hash"] = hashlib.sha256(commit.edits.encode()).hexdigest()
    return facts


def host_memory_bytes() -> tuple[int, int]:
    """(total, available) memory that processes of this machine or container may use."""
    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    for name in CGROUP_LIMITS:
        try:
            limit = int(Path(name).read_text())
        except (OSError, ValueError):
            continue
        if limit < total:
            return limit, min(available, limit)
    return total, available


MIN_FREE_BYTES = 1 << 20
"""No attempt begins with less room: it could leave no evidence."""


def disk_free_bytes(folder: Path) -> int | None:
    """Free bytes on the disk of a folder that may not exist yet; None if unknown."""
    present = next((place for place in (folder, *folder.parents) if os.path.exists(place)), folder)
    try:
        status = os.statvfs(present)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def cpu_seconds_used() -> float:
    """CPU time that everything on this machine has used since it started; waiting and stolen time left out."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq")))


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def stalled_share() -> float:
    """Share of the last minute in which all tasks waited for memory, disk or their CPU quota (PSI); 0 if unknown."""
    return max(map(_full_pressure, PRESSURES))


def _full_pressure(path: str) -> float:
    try:
        lines = Path(path).read_text().splitlines()
        full = next(line for line in lines if line.startswith("full"))
        return float(full.split("avg60=")[1].split()[0]) / 100.0
    except (OSError, StopIteration, IndexError, ValueError):
        return 0.0


def any_gpu_is_busy(visible: str | None) -> bool:
    """Whether one of the named GPUs (all if None) has worked in the last moment; False if nothing can be asked."""
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return False  # no GPU is visible, so what others do on one is not its work
    try:
        import pynvml
    except ImportError:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        count = pynvml.nvmlDeviceGetCount()
        named = [int(part) for part in (visible or "").split(",") if part.strip().isdigit()]
        chosen = [index for index in named if index < count] or list(range(count))
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in chosen]
        return any(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu > 0 for handle in handles)
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()
