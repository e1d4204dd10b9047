"""Benchmarks are run by hand, so a test keeps them valid: every name of this package that they import exists."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from dreamproof.testing.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


def names_of(module: str) -> set[str]:
    """What `from module import …` can import."""
    found = importlib.import_module(module)
    return {*vars(found), *(part.name for part in pkgutil.iter_modules(getattr(found, "__path__", [])))}


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_every_imported_name_exists(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dreamproof"):
            assert {name.name for name in node.names} <= names_of(str(node.module))


def test_the_rows_of_many_tasks_are_valid_cells_that_differ_as_their_names_say() -> None:
    command = [sys.executable, "-m", "benchmarks.multitask", "--plan", "--held", "3200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    planned = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "device_episodes=3200 storage='float16'" in planned["model, streamed, float16"]
    assert "device_episodes=None storage='float32'" in planned["model, on the device, float32"]
    assert "policies=('walker-stand', " in planned["behaviour, 8 policies, 128 starts"]
    assert "policies=()" in planned["behaviour, 1 policy, 128 starts"]
