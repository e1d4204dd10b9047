"""Renamed setting keys: files and ledgers that use an old name still read. A class lists them in `old_names`."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import BaseModel

Names = Callable[[type[BaseModel]], dict[str, str]]


def current_names(model: type[BaseModel], value: Any) -> Any:
    """`value` with every old key below it renamed; both names of one key at once raise ValueError."""
    for old, new, is_double in _old_keys(model, value, ""):
        if is_double:
            raise ValueError(f"'{old}' and '{new}' are two names of one key; keep '{new}'")
    return recorded_names(model, value)


def recorded_names(model: type[BaseModel], value: Any) -> Any:
    """The same for what was recorded: never raises; where both names are present nothing is renamed."""
    return _renamed(model, value, old_names_of)


def first_names(model: type[BaseModel], value: Any) -> Any:
    """`value` with every renamed key under its old name: hashes are taken of these, so a rename changes none."""
    return _renamed(model, value, lambda each: {new: old for old, new in old_names_of(each).items()})


def renamed_keys(model: type[BaseModel], value: Any, place: str = "") -> list[tuple[str, str]]:
    """(old, new) dotted keys of every old name below `value`."""
    return [(old, new) for old, new, _ in _old_keys(model, value, place)]


def _old_keys(model: type[BaseModel], value: Any, place: str) -> Iterator[tuple[str, str, bool]]:
    """The same, and whether the new name stands beside the old one."""
    if isinstance(value, list):
        for item in value:
            yield from _old_keys(model, item, place)
    if not isinstance(value, dict):
        return
    names = old_names_of(model)
    for key, inner in value.items():
        new = names.get(key, key)
        if new != key:
            yield f"{place}{key}", f"{place}{new}", new in value
        below = model_of(model, new)
        if below is not None:
            yield from _old_keys(below, inner, f"{place}{new}.")


def old_names_of(model: type[BaseModel]) -> dict[str, str]:
    """Old name → current name of the keys of one class."""
    names: dict[str, str] = getattr(model, "old_names", {})
    return names


def _renamed(model: type[BaseModel], value: Any, names_of: Names) -> Any:
    if isinstance(value, list):
        return [_renamed(model, item, names_of) for item in value]
    if not isinstance(value, dict):
        return value
    names, found = names_of(model), {}
    for key, inner in value.items():
        new = key if names.get(key) in value else names.get(key, key)
        below = model_of(model, new) or model_of(model, key)
        found[new] = inner if below is None else _renamed(below, inner, names_of)
    return found


def model_of(model: type[BaseModel], key: object) -> type[BaseModel] | None:
    """The settings class of a key's value; None for a plain value."""
    field = model.model_fields.get(str(key))
    return None if field is None else _first_model(field.annotation)


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _first_model(part)) is not None), None)
