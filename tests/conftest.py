"""What all tests share: how they are compiled, grouped, ordered and skipped."""

import functools
import gc
import importlib.metadata
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import hypothesis
import psutil
import pytest

from dreamproof.runs.layout import RunFolder

if TYPE_CHECKING:
    from dreamproof.train.pack import Pack

# Halves the time of a compile on a CPU. Versions of JAX from 0.11 on have this option no more.
QUICK_COMPILES = "--xla_cpu_use_fusion_emitters=false"
# What `optimised` programs get: twice the compile time of unoptimised ones, a third of their running time.
SOME_OPTIMISATION = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
OPTIMISED_MARKER = "optimised: runs longer than it compiles, so its programs are somewhat optimised"
LONG_MARKER = "long(seconds): about how long the file takes on two cores; the longest start first"
MADE_CACHE = pytest.StashKey[str]()
MAX_MEMORY_BYTES = 1_500_000_000
GROUP = re.compile(r'^pytestmark = .*\bxdist_group\("(\w+)"\)', re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    """Decides how to compile before JAX is imported, here and in every process that tests start."""
    config.addinivalue_line("markers", OPTIMISED_MARKER)
    config.addinivalue_line("markers", LONG_MARKER)
    config.addinivalue_line("markers", "xdist_group(name): files of one group share a worker")
    hypothesis.settings.register_profile("any-machine", deadline=None)  # no test may depend on being fast
    hypothesis.settings.load_profile("any-machine")
    version = importlib.metadata.version("jax").split(".")
    flags = [os.environ.get("XLA_FLAGS", ""), SOME_OPTIMISATION]
    if (int(version[0]), int(version[1])) < (0, 11):
        flags.append(QUICK_COMPILES)
    if not hasattr(config, "workerinput"):  # workers inherit them
        os.environ["XLA_FLAGS"] = " ".join(flags).strip()
    # Programs of tests are small and run a few times: compiling fast matters more than running fast.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # workers inherit the folder of the process that starts them
        config.stash[MADE_CACHE] = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="dreamproof-xla-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the shared cache of compiled programs."""
    if MADE_CACHE in config.stash:
        del os.environ["JAX_COMPILATION_CACHE_DIR"]
        shutil.rmtree(config.stash[MADE_CACHE], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spares the garbage collector the half million objects of collected tests, which live as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Generator[None, None, None]:
    """Frees compiled programs after a file if they fill much memory: a worker would need 6 GB at the end."""
    yield
    if psutil.Process().memory_info().rss > MAX_MEMORY_BYTES:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Optimises the programs of tests that are marked so."""
    if item.get_closest_marker("optimised") is None:
        return (yield)
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With DREAMPROOF_REQUIRE_ALL=1 a skip is a failure, unless the kernel lacks what the test needs."""
    report = yield
    if os.environ.get("DREAMPROOF_REQUIRE_ALL") == "1" and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith("kernel: "):
            report.outcome, report.longrepr = "failed", f"DREAMPROOF_REQUIRE_ALL=1, but skipped: {reason}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait most of their time, for a cluster, a grace or a clock."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, every file, or the group that it names, has one worker: it compiles and trains only once."""
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def group(file: str) -> str:
        named = GROUP.search((config.rootpath / file).read_text(encoding="utf-8"))
        return named[1] if named is not None else file

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.split("::")[0])

    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return ByGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In workers the longest files start first."""
    if hasattr(config, "workerinput"):
        items.sort(key=_seconds, reverse=True)


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("long")
    return marker.args[0] if marker is not None else 0.0


@pytest.fixture(scope="session", autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Studies of tests register as running in a folder of their own, not in the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def pack_of_three(tmp_path_factory: pytest.TempPathFactory) -> "Pack":
    """The pack of the tiny cells, whose compiled programs many tests share."""
    from tests.tiny import write_cells

    from dreamproof.train.loop import read_job

    return read_job(list(write_cells(tmp_path_factory.mktemp("three")).values())).pack


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, pack_of_three: "Pack") -> dict[str, RunFolder]:
    """Three cells trained together by the loop: two arms, and one whose steps make it diverge.

    As on a machine of many cores: training and validation are compiled at the same time.
    """
    from tests.tiny import train_here, write_cells

    from dreamproof.jaxcore import ahead

    folders = write_cells(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "usable_cores", lambda: 8)
        assert train_here(folders, pack_of_three)
    return folders
