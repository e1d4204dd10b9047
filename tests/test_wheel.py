"""The wheel, installed in an environment of its own, runs an example outside the repository."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from dreamproof.testing.waiting import HANG_SECONDS

pytestmark = pytest.mark.long(60)

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Of another extra, or of a script that makes the fonts.
WITH_OTHERS = {"jaxlib", "pydantic_core"}
OPTIONAL = {"mujoco", "pandas", "safety_gymnasium", "pptx", "stable_baselines3", "tensorboard", "fontTools"}
OPTIONAL |= {"starlette", "uvicorn", "h11", "anyio"}


def call(*command: str | Path, folder: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that holds the wheel and, behind it, the libraries of this one; made without a network."""
    place = tmp_path_factory.mktemp("wheel")
    build = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    call(sys.executable, "-m", *build, "--wheel-dir", place, ROOT, folder=place)
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    own = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=place).strip())
    [wheel] = place.glob("*.whl")
    call(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", own, wheel, folder=place)
    # A path in such a file is searched last and brings no editable install with it.
    (own / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_small_example_runs_from_the_wheel_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    where = "import dreamproof; print(dreamproof.__file__)"
    assert Path(call(installed, "-c", where, folder=tmp_path)).is_relative_to(installed.parents[1])
    dreamproof = (installed, "-m", "dreamproof.cli")
    listed = call(*dreamproof, "examples", folder=tmp_path)
    assert {path.stem for path in (ROOT / "studies").glob("*.yaml")} <= set(listed.split())
    call(*dreamproof, "examples", "example", folder=tmp_path)
    study = tmp_path / "example.yaml"
    study.write_text(re.sub(r"agent_steps: \d+", "agent_steps: 60000", study.read_text()))
    printed = call(*dreamproof, "run", "example.yaml", "--plain", folder=tmp_path)
    assert "everything is proven" in printed
    assert (tmp_path / "results" / "example" / "reports" / "decision.md").exists()


def test_an_agent_can_be_built_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    call(*(installed, "-m", "dreamproof.cli"), "examples", "demo", folder=tmp_path)
    call(*(installed, "-m", "dreamproof.cli"), "plan", "demo.yaml", folder=tmp_path)
    call(installed, "-m", "dreamproof.train", "--help", folder=tmp_path)


def test_every_library_that_the_source_imports_is_declared() -> None:
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["train"]]
    declared = {re.split(r"[\[<>=]", line)[0].lower() for line in lines} | WITH_OTHERS
    owners = importlib.metadata.packages_distributions()
    source = ROOT / "src" / "dreamproof"
    paths = [path for path in source.rglob("*.py") if not path.is_relative_to(source / "testing")]
    imported = {name for path in paths for name in imported_modules(path)}
    outside = imported - set(sys.stdlib_module_names) - OPTIONAL - {"dreamproof"}
    assert {name for name in outside if not {one.lower() for one in owners.get(name, [name])} & declared} == set()
    assert {"numpy", "jax", "pydantic"} <= outside


def imported_modules(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.split(".")[0] for name in names}
