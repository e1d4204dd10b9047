"""Seconds that JAX spends on tracing and compiling, and how many programs its persistent cache saves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.monitoring

from dreamproof.jaxcore.compile_events import announce_compiles

CACHE = "/jax/compilation_cache/"
TAKEN, STORED = f"{CACHE}cache_hits", f"{CACHE}cache_misses"


class CompileClock:
    """Compiles within compiles, and those that run side by side, count once."""

    def __init__(self) -> None:
        self._began: float | None = None
        self.restart()

    def restart(self) -> None:
        """Counts from now on."""
        self._seconds, self.from_cache, self.to_cache = 0.0, 0, 0
        if self._began is not None:
            self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Those of finished compiles, and of one that lasts."""
        return self._seconds + (0.0 if self._began is None else time.monotonic() - self._began)

    def set_compiling(self, compiling: bool) -> None:
        """The outermost compile begins or ends."""
        now = time.monotonic()
        if self._began is not None:
            self._seconds += now - self._began
        self._began = now if compiling else None

    def count(self, event: str, **facts: Any) -> None:
        """A program was taken from the persistent cache, or stored there: one that took a second or more."""
        self.from_cache += event == TAKEN
        self.to_cache += event == STORED


@contextmanager
def clocked_compiles() -> Iterator[CompileClock]:
    """A clock that runs while JAX traces, lowers or compiles."""
    clock = CompileClock()
    jax.monitoring.register_event_listener(clock.count)
    try:
        with announce_compiles(clock.set_compiling, lambda: None):
            yield clock
    finally:
        jax.monitoring.unregister_event_listener(clock.count)
