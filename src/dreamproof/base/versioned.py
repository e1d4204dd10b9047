"""The version of the keys that `--json` prints and the dashboard serves."""

from typing import Any

JSON_VERSION = 1
"""A key that is renamed or removed raises it."""


def versioned(values: dict[str, Any]) -> dict[str, Any]:
    """A mapping with the version of its keys."""
    return {"json_version": JSON_VERSION, **values}
