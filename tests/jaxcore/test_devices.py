import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from dreamproof.jaxcore import devices, kernels
from dreamproof.jaxcore.devices import is_recent_gpu, memory_in_use

# Many pieces that the allocator keeps once they are freed, since the last of them stays.
PROGRAM = """
import ctypes
from dreamproof.jaxcore.devices import give_back_memory, memory_in_use
memory_in_use()  # starts the backend, which itself takes memory
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
pieces = [libc.malloc(100_000) for _ in range(5000)]
for piece in pieces:
    ctypes.memset(piece, 1, 100_000)
for piece in pieces[:-1]:
    libc.free(piece)
freed = memory_in_use()["memory/host_gib"]
give_back_memory()
print(freed - memory_in_use()["memory/host_gib"])
"""


def test_a_process_knows_what_it_holds() -> None:
    held = memory_in_use()
    assert 0.01 < held["memory/host_gib"] < 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="kernel: another C library")
def test_freed_memory_goes_back_to_the_system() -> None:
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert float(printed) > 0.4


@pytest.mark.parametrize(
    ("device", "recent"),
    [({"compute_capability": "9.0"}, True), ({"compute_capability": "7.5"}, False), ({}, False)]
    + [({"compute_capability": name}, False) for name in ("gfx942", "")],
)
def test_kernels_are_for_recent_gpus(device: dict[str, str], recent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(**device)])
    assert is_recent_gpu() == recent


@pytest.mark.parametrize(
    ("gpus", "backend", "variables", "warned"),
    [
        (["0000:01:00.0"], "cpu", {}, True),
        (["0000:01:00.0"], "cpu", {"CUDA_VISIBLE_DEVICES": "0"}, True),
        (["0000:01:00.0"], "gpu", {}, False),
        (["0000:01:00.0"], "cpu", {"JAX_PLATFORMS": "cpu"}, False),
        (["0000:01:00.0"], "cpu", {"CUDA_VISIBLE_DEVICES": ""}, False),
        ([], "cpu", {}, False),
    ],
)
def test_a_gpu_that_jax_cannot_use_is_reported(
    gpus: list[str],
    backend: str,
    variables: dict[str, str],
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for gpu in gpus:
        (tmp_path / gpu).mkdir()
    monkeypatch.setattr(devices, "NVIDIA_GPUS", tmp_path)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    found = devices.unused_gpu()
    assert (found is not None and "dreamproof[cuda]" in found) is warned


@pytest.mark.parametrize(
    ("recent", "triton", "warned"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_gpu_whose_kernels_this_jax_cannot_run_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, recent: bool, triton: bool, warned: bool
) -> None:
    monkeypatch.setattr(kernels, "is_recent_gpu", lambda: recent)
    monkeypatch.setattr(kernels, "HAS_TRITON", triton)
    found = kernels.missing_kernels()
    assert (found is not None and "Triton" in found) is warned
    assert kernels.can_run_kernels() is (recent and triton)
