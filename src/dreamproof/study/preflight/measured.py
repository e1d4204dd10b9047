"""What the last preflight measured, read from its manifest: positive finite numbers only."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dreamproof.base.files import read_json


@dataclass(frozen=True)
class Measured:
    """Agent steps per second by arm, and bytes that are needed by name; empty if there was no preflight."""

    rates: dict[str, float] = field(default_factory=dict)
    needs: dict[str, float] = field(default_factory=dict)


def read_measured(path: Path) -> Measured:
    """The numbers of a preflight manifest."""
    value = read_json(path)
    if not isinstance(value, dict):
        return Measured()
    return Measured(_numbers(value.get("rates")), _numbers(value.get("needs")))


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {name: one for name, one in value.items() if _is_positive(one)}


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < math.inf
