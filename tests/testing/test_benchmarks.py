"""Benchmarks are run by hand, so a test keeps them valid: every name of this package that they import exists."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def names_of(module: str) -> set[str]:
    """What `from module import …` can import."""
    found = importlib.import_module(module)
    return {*vars(found), *(part.name for part in pkgutil.iter_modules(getattr(found, "__path__", [])))}


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_every_imported_name_exists(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("dreamproof"):
            assert {name.name for name in node.names} <= names_of(str(node.module))
