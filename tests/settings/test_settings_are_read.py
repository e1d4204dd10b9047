"""No dead keys of a study file or of a shift: the source outside the settings reads every one."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from dreamproof.settings.env import Shift
from dreamproof.settings.study import Study

SOURCE = Path(__file__).parents[2] / "src" / "dreamproof"


def models_below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A settings class and all classes of its fields."""
    yield model
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from models_below(part)


@cache
def attributes_read() -> set[str]:
    """Attributes that modules outside settings/ read; parsed by the first test, not by every worker that collects."""
    paths = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ("settings", "testing")]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


# Keys that are read through a property of the study.
PROPERTIES = {"reference_arm": "reference", "limits": "limited", "constraint": "limits", "constraints": "limits"}
KEYS = sorted(
    {(model.__name__, key) for root in (Study, Shift) for model in models_below(root) for key in model.model_fields}
)


@pytest.mark.parametrize(("model", "key"), KEYS)
def test_every_key_is_read(model: str, key: str) -> None:
    assert PROPERTIES.get(key, key) in attributes_read(), f"{model}.{key} is never read"
