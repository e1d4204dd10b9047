"""Keys that came later: where one says what was done before it existed, it does not change the hash of settings.

A class lists them in `added`.
"""

from typing import Any

from pydantic import BaseModel

from dreamproof.settings.renames import model_of


def without_added(model: type[BaseModel], value: Any) -> Any:
    """`value` without later keys at their first value: the settings as they were recorded before these keys existed."""
    if not isinstance(value, dict):
        return value
    added: dict[str, Any] = getattr(model, "added", {})
    kept = {key: inner for key, inner in value.items() if key not in added or inner != added[key]}
    return {key: _inside(model_of(model, key), inner) for key, inner in kept.items()}


def _inside(model: type[BaseModel] | None, value: Any) -> Any:
    return value if model is None else without_added(model, value)
