"""No dead settings: the source reads every key of a cell."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.env import Shift

SOURCE = Path(__file__).parents[2] / "src" / "dreamproof"


def models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A settings class and all classes of its fields."""
    yield model
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from models_below(part)


def names_read() -> tuple[set[str], set[str]]:
    """Attributes and indexed keys that the source reads, and suffixes of keys that it builds."""
    names: set[str] = set()
    suffixes: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names.add(node.attr)
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                names.add(str(node.slice.value))
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.JoinedStr):
                last = node.slice.values[-1]
                suffixes |= {str(last.value)} if isinstance(last, ast.Constant) else set()
    return names, suffixes


NAMES, SUFFIXES = names_read()
KEYS = sorted(
    {
        (model.__name__, key)
        for root in (*CELL_SETTINGS.values(), Shift)
        for model in models_below(root)
        for key in model.model_fields
    }
)


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_every_setting_is_read(model: str, key: str) -> None:
    assert key in NAMES or key.endswith(tuple(SUFFIXES)), f"{model}.{key} is never read"
