"""Splits settings into static ones (shape a compile, equal within a pack) and traced ones (a scalar per replica)."""

from typing import Any

from pydantic import BaseModel

from dreamproof.base.files import canonical_json

TRACED = "traced"


def traced_values(settings: BaseModel) -> dict[str, Any]:
    """The traced scalars, nested as the settings are."""
    found: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            inner = traced_values(value)
            if inner:
                found[name] = inner
        elif TRACED in field.metadata:
            found[name] = float(value)
    return found


def static_key(settings: BaseModel) -> str:
    """A text that is equal for settings that can share one compile."""
    return canonical_json(_without(settings.model_dump(mode="json"), traced_values(settings)))


def _without(values: dict[str, Any], traced: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without(value, traced[name]) if isinstance(value, dict) and isinstance(traced.get(name), dict) else value
        for name, value in values.items()
        if name not in traced or isinstance(traced[name], dict)
    }
