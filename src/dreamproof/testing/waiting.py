"""Waiting in tests: for a condition, never for a speed."""

import time
from collections.abc import Callable
from typing import TypeVar

HANG_SECONDS = 1200.0
"""Guards against a hang; a busy machine must not reach it."""

Value = TypeVar("Value")


def wait_for(condition: Callable[[], Value], pause_seconds: float = 0.05) -> Value:
    """The first true value of a condition."""
    until = time.monotonic() + HANG_SECONDS
    while not (found := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"still false after {HANG_SECONDS:g} s")
        time.sleep(pause_seconds)
    return found
