"""What tests of compiled code share."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dreamproof.runs.layout import RunFolder

if TYPE_CHECKING:
    from dreamproof.train.pack import Pack

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
def program_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which this process and those it starts find each other's compiled programs."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    folder = tmp_path_factory.mktemp("programs")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    compilation_cache.reset_cache()
    yield folder
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def pack_of_three(tmp_path_factory: pytest.TempPathFactory, program_cache: Path) -> "Pack":
    """The pack of the tiny cells, whose compiled programs many tests share."""
    from tests.tiny import write_cells

    from dreamproof.train.loop import read_job

    return read_job(list(write_cells(tmp_path_factory.mktemp("three")).values())).pack


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, pack_of_three: "Pack") -> dict[str, RunFolder]:
    """Three cells trained in one go by the loop: two arms, and one whose steps tear it apart."""
    from tests.tiny import train_here, write_cells

    folders = write_cells(tmp_path_factory.mktemp("trained"))
    assert train_here(folders, pack_of_three)
    return folders
