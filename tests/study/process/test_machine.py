"""What is recorded about a machine, and what it warns of."""

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
