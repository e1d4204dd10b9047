"""Properties of the device that affect compilation, library versions, and memory use of the process."""

import ctypes
import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
import psutil

from dreamproof.jaxcore import usable_cores

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
LIBRARIES = ("jax", "jaxlib", "equinox", "numpy")
COMPILE_THREADS = max(2, usable_cores() // 2)
"""Programs that compile at the same time: XLA compiles one mostly on a single core."""


def scan_unroll(steps: int = 4) -> int:
    """Unroll factor of a recurrent scan: kernel launches dominate on a GPU, compile time on a CPU.

    5 or 3 is used if 4 does not divide `steps`: a remainder is compiled separately.
    """
    if jax.default_backend() == "cpu":
        return 1
    return next((unroll for unroll in (4, 5, 3) if steps % unroll == 0), 4)


def is_recent_gpu() -> bool:
    """Whether the first device is an NVIDIA GPU of 2020 (compute capability 8) or later."""
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    return capability.replace(".", "", 1).isdigit() and float(capability) >= 8.0


def unused_gpu() -> str | None:
    """A warning if there is an NVIDIA GPU and JAX works on the CPU though nobody asked it to."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    if jax.default_backend() != "cpu" or "cpu" in os.environ.get("JAX_PLATFORMS", "") or is_hidden:
        return None
    if not NVIDIA_GPUS.is_dir() or not any(NVIDIA_GPUS.iterdir()):
        return None
    return "this machine has an NVIDIA GPU that JAX cannot use: pip install 'dreamproof[cuda]'"


def use_compilation_cache() -> None:
    """Enables the persistent compilation cache, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    if not jax.config.values["jax_compilation_cache_dir"]:
        folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dreamproof" / "xla"
        folder.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)


def give_back_memory() -> None:
    """Returns freed host memory to the system: glibc would keep more than a GiB after compiling."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def memory_in_use() -> dict[str, float]:
    """GiB in use by this process on the host and, if the backend reports it, on the device."""
    used = {"memory/host_gib": psutil.Process().memory_info().rss / 2**30}
    device = jax.devices()[0].memory_stats() or {}
    return used | ({"memory/device_gib": device["bytes_in_use"] / 2**30} if "bytes_in_use" in device else {})


@functools.cache
def library_versions() -> dict[str, str]:
    """Versions of the libraries that affect numerical results."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
