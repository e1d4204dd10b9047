"""Benchmarks are run by hand, so a test keeps them valid: every name of this package that they import exists."""

import ast
import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks import multitask

from dreamproof.data.library import EpisodeLibrary
from dreamproof.settings.cell import PwmOfflineCell

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


def test_the_rows_of_many_tasks_are_valid_cells_that_differ_as_their_names_say(tmp_path: Path) -> None:
    file = tmp_path / "chunk.pt"
    multitask.write_episodes(file, 60)
    rows = {row.name: row for row in multitask.rows(held=32)}
    cells = {
        name: PwmOfflineCell.model_validate(multitask.settings_of(row, [file], is_tiny=False))
        for name, row in rows.items()
    }
    assert all(row.compared is None or row.compared in rows for row in rows.values())
    assert cells["model, streamed, float16"].data.device_episodes == 32
    assert cells["model, on the device, float32"].data.device_episodes is None
    assert len(cells["behaviour, 8 policies, 128 starts"].data.policies) == 8
    library = EpisodeLibrary(cells["model, streamed, float32"].data)
    assert np.bincount(library.tasks).tolist() == [2] * 30
    assert library.load(np.arange(2)).observation.shape == (2, 501, 24)
