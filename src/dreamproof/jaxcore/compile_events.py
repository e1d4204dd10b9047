"""Announces when JAX traces, lowers or compiles: from outside, a long compile looks like a process that hangs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax.monitoring

PREFIX = "/jax/core/compile/"
BACKEND_COMPILE = f"{PREFIX}backend_compile_duration"


@contextmanager
def announce_compiles(set_compiling: Callable[[bool], None], count_compile: Callable[[], None]) -> Iterator[None]:
    """Calls `set_compiling` when the first compile begins and the last one ends, `count_compile` after every one.

    JAX records a scalar under an event's name when it begins and a duration when it ends, also by an error.
    """
    lock = threading.Lock()
    open_events = 0

    def change(by: int) -> None:
        nonlocal open_events
        with lock:
            before, open_events = open_events, max(0, open_events + by)
            if (before > 0) != (open_events > 0):
                set_compiling(open_events > 0)

    def begin(event: str, value: float | int, **facts: Any) -> None:
        if event.startswith(PREFIX):
            change(+1)

    def end(event: str, duration_secs: float, **facts: Any) -> None:
        if event.startswith(PREFIX):
            change(-1)
        if event == BACKEND_COMPILE:
            count_compile()

    jax.monitoring.register_scalar_listener(begin)
    jax.monitoring.register_event_duration_secs_listener(end)
    try:
        yield
    finally:
        jax.monitoring.unregister_scalar_listener(begin)
        jax.monitoring.unregister_event_duration_listener(end)
