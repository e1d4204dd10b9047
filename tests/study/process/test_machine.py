"""What is recorded about a machine, and what it warns of."""

import sys
import types
from importlib import metadata
from typing import Any

import pytest

from dreamproof.study.process import machine

GPU = {"devices": [{"name": "NVIDIA H100"}]}


def facts(**changes: Any) -> dict[str, Any]:
    return {"gpu": GPU, "versions": {"jax": "0.10.2"}, "environment": {}} | changes


@pytest.mark.parametrize(
    ("found", "installed", "warned"),
    [
        (facts(), [], True),
        (facts(), ["jax-cuda13-plugin"], False),
        (facts(), ["jax-cuda12-plugin"], False),
        (facts(gpu={"devices": []}), [], False),
        (facts(versions={}), [], False),
        (facts(environment={"JAX_PLATFORMS": "cpu"}), [], False),
    ],
)
def test_a_gpu_that_the_installed_jax_cannot_use_is_reported(
    found: dict[str, Any], installed: list[str], warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return "0.10.2"

    monkeypatch.setattr(metadata, "version", version)
    warning = machine.unused_gpu(found)
    assert (warning == "NVIDIA H100: JAX cannot use it: pip install 'dreamproof[cuda]'") is warned


@pytest.mark.parametrize(
    ("visible", "busy"), [(None, True), ("1", True), ("0", False), ("", False), ("-1", False), ("GPU-1f", True)]
)
def test_work_of_others_on_a_gpu_that_is_not_visible_does_not_count(
    visible: str | None, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda index: types.SimpleNamespace(gpu=[0, 90][index]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert machine.any_gpu_is_busy(visible) is busy
