"""What tests of compiled code share."""

import importlib.metadata
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from dreamproof.runs.layout import RunFolder

if TYPE_CHECKING:
    from dreamproof.train.pack import Pack

TESTS = Path(__file__).parent
COMPILED = (TESTS / "nn", TESTS / "agents", TESTS / "train", TESTS / "evaluate", TESTS / "contracts" / "test_agents.py")
# Files whose tests use the cells of the fixtures below.
TRAINED = (
    "evaluate/test_evaluator.py",
    "evaluate/test_loading.py",
    "evaluate/test_policy.py",
    "train/test_loop.py",
    "train/test_pack.py",
    "train/test_pack_engine.py",
    "train/test_resume.py",
)
# Groups of tests that take longest, the longest first: started last, one of them would keep a single worker busy.
SLOW = (
    "trained",
    "study/backends/slurm/test_faults.py",
    "study/backends/slurm/test_causes.py",
    "contracts/test_backends.py",
    "study/backends/slurm/test_limits.py",
    "study/backends/slurm/test_dreamer.py",
    "envs/locomotion/test_bodies.py",
    "train/test_probes_learnt.py",
    "contracts/test_agents.py",
    "envs/point/test_env.py",
    "cli/test_running.py",
    "train/test_pwm_training.py",
    "study/test_faults.py",
    "train/test_offline_training.py",
    "train/test_pwm_probes.py",
    "train/test_pwm_study.py",
    "contracts/test_envs.py",
    "report/test_write_all.py",
)
# Halves the time of a compile on a CPU. Versions of JAX from 0.11 on have this option no more.
QUICK_COMPILES = "--xla_cpu_use_fusion_emitters=false"


def pytest_configure() -> None:
    """Says how to compile before JAX is imported, here and in every process that tests start."""
    hypothesis.settings.register_profile("any-machine", deadline=None)  # no test may depend on being fast
    hypothesis.settings.load_profile("any-machine")
    version = importlib.metadata.version("jax").split(".")
    said = os.environ.get("XLA_FLAGS", "")
    if (int(version[0]), int(version[1])) < (0, 11) and QUICK_COMPILES not in said:
        os.environ["XLA_FLAGS"] = f"{said} {QUICK_COMPILES}".strip()


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


def group_of(node: str) -> str:
    """With whom a test shares its worker: the tests of its file, or of all files that use the same cells."""
    file = node.split("::")[0].removeprefix("tests/")
    return "trained" if file in TRAINED else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait most of their time, for a cluster, a grace or a clock."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take groups in this order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: SLOW.index(group) if (group := group_of(item.nodeid)) in SLOW else len(SLOW))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, every group has one worker, so that it compiles and trains what its tests share only once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.fixture(scope="session", autouse=True)
def register_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Studies of tests register as running in a folder of their own, not in the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


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
