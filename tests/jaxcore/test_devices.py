import platform
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from dreamproof.jaxcore.devices import is_recent_gpu, memory_in_use

# Many pieces that the allocator keeps once they are freed, since the last of them stays.
PROGRAM = """
import ctypes
from dreamproof.jaxcore.devices import give_back_memory, memory_in_use
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
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
