"""The house rules: who may import whom, and that the campaign tower never touches JAX."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "dreamproof"

ALLOWED = {
    "base": set(),
    "settings": {"base"},
    "runs": {"base", "settings"},
    "jaxcore": {"base", "settings", "runs"},
    "envs": {"base", "settings", "jaxcore"},
    "nn": {"base", "settings", "jaxcore"},
    "agents": {"base", "settings", "jaxcore", "nn"},
    "train": {"base", "settings", "runs", "jaxcore", "envs", "nn", "agents"},
    "evaluate": {"base", "settings", "runs", "jaxcore", "envs", "nn", "agents"},
    "record": {"base", "settings", "runs", "jaxcore", "envs", "nn", "agents", "evaluate"},
    "study": {"base", "settings", "runs"},
    "stats": {"base"},
    "report": {"base", "settings", "runs", "study", "stats"},
    "web": {"base", "settings", "runs", "study", "stats", "report"},
    "cli": {"base", "settings", "runs", "study", "stats", "report", "web"},
    "testing": {"base", "settings", "runs", "jaxcore", "envs", "agents", "train", "study", "stats", "report", "cli"},
}
CAMPAIGN = ("base", "settings", "runs", "study", "stats", "report", "web", "cli")
COMPUTE_LIBRARIES = {"jax", "jaxlib", "equinox", "optax", "orbax", "flax", "mujoco", "gymnasium"}


def imported_modules(path: Path) -> set[str]:
    """Absolute names of everything that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    seen = {name.split(".")[1] for name in imported_modules(path) if name.startswith("dreamproof.")}
    rooms = {name for name in seen if (SOURCE / name).is_dir()}
    assert rooms <= ALLOWED[room] | {room}


@pytest.mark.parametrize("path", [path for path in FILES if path.relative_to(SOURCE).parts[0] in CAMPAIGN], ids=str)
def test_the_campaign_tower_never_imports_the_compute_libraries(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported_modules(path)} & COMPUTE_LIBRARIES


def test_base_needs_the_standard_library_only() -> None:
    for path in (SOURCE / "base").glob("*.py"):
        outside = (
            {name.split(".")[0] for name in imported_modules(path)} - set(sys.stdlib_module_names) - {"dreamproof"}
        )
        assert not outside, path


def test_importing_the_command_line_leaves_jax_out() -> None:
    script = "import sys, dreamproof.cli.main; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_source_tests_and_benchmarks_share_code_only_through_the_source() -> None:
    root = SOURCE.parents[1]
    for folder, others in {"src": {"tests", "benchmarks"}, "tests": {"benchmarks"}, "benchmarks": {"tests"}}.items():
        for path in (root / folder).rglob("*.py"):
            assert not {name.split(".")[0] for name in imported_modules(path)} & others, path


def test_no_room_has_a_name_that_says_nothing() -> None:
    assert not {path.stem for path in SOURCE.rglob("*.py")} & {"utils", "util", "common", "helpers", "misc"}
