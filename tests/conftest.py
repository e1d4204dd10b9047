"""What tests of compiled code share."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
COMPILED = (TESTS / "nn", TESTS / "agents", TESTS / "train", TESTS / "evaluate", TESTS / "contracts" / "test_agents.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Programs of these tests are small and run a few times, so compiling fast beats running fast."""
    if not any(item.path.is_relative_to(folder) for folder in COMPILED):
        return (yield)
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, tests that share compiled programs run in one worker."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in COMPILED):
            item.add_marker(pytest.mark.xdist_group("compiled"))


@pytest.fixture(scope="session")
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of processes that find each other's compiled programs."""
    folder = tmp_path_factory.mktemp("xla")
    return os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
