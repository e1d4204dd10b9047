"""The house rules: who may import whom, and that the campaign tower never touches JAX."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dreamproof.testing.imports import ALLOWED, SOURCE, arrows, circles, imported_names, module_graph, rooms_of

CAMPAIGN = ("base", "data", "settings", "runs", "study", "stats", "report", "web", "cli")
COMPUTE_LIBRARIES = {"jax", "jaxlib", "equinox", "optax", "orbax", "flax", "mujoco", "gymnasium"}
MAX_ROOMS_OF_STUDY = 13
MAX_ARROWS_OF_STUDY = 50

FILES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    seen = {name.split(".")[1] for name in imported_names(path) if name.startswith("dreamproof.")}
    rooms = {name for name in seen if (SOURCE / name).is_dir()}
    assert rooms <= ALLOWED[room] | {room}


@pytest.mark.parametrize("path", [path for path in FILES if path.relative_to(SOURCE).parts[0] in CAMPAIGN], ids=str)
def test_the_campaign_tower_never_imports_the_compute_libraries(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported_names(path)} & COMPUTE_LIBRARIES


def test_no_path_is_resolved_in_a_way_that_raises_for_link_loops() -> None:
    for path in FILES:
        if path.relative_to(SOURCE).parts[0] in CAMPAIGN:
            assert ".resolve()" not in path.read_text(), path


def test_base_needs_the_standard_library_only() -> None:
    for path in (SOURCE / "base").glob("*.py"):
        outside = {name.split(".")[0] for name in imported_names(path)} - set(sys.stdlib_module_names) - {"dreamproof"}
        assert not outside, path


def test_importing_the_command_line_leaves_jax_out() -> None:
    script = "import sys, dreamproof.cli.main; sys.exit(bool({'jax', 'numpy', 'starlette'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_source_tests_and_benchmarks_share_code_only_through_the_source() -> None:
    root = SOURCE.parents[1]
    for folder, others in {"src": {"tests", "benchmarks"}, "tests": {"benchmarks"}, "benchmarks": {"tests"}}.items():
        for path in (root / folder).rglob("*.py"):
            assert not {name.split(".")[0] for name in imported_names(path)} & others, path


def test_no_room_has_a_name_that_says_nothing() -> None:
    assert not {path.stem for path in SOURCE.rglob("*.py")} & {"utils", "util", "common", "helpers", "misc"}


def test_study_has_few_rooms_and_few_arrows_between_them() -> None:
    rooms = rooms_of(module_graph(), "dreamproof.study")
    assert len(rooms) <= MAX_ROOMS_OF_STUDY
    assert arrows(rooms) <= MAX_ARROWS_OF_STUDY
    assert circles(rooms) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(module_graph()) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
