"""Compiles within compiles count once, and programs from the persistent cache are counted."""

import time
from pathlib import Path

import jax
import jax.monitoring
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from dreamproof.jaxcore.compile_events import BACKEND_COMPILE, PREFIX
from dreamproof.testing import compile_clock
from dreamproof.testing.compile_clock import CompileClock, clocked_compiles


def test_nested_events_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(compile_clock.time, "monotonic", lambda: now)
    with clocked_compiles() as clock:
        jax.monitoring.record_scalar(BACKEND_COMPILE, 0)
        now = 1.0
        jax.monitoring.record_scalar(f"{PREFIX}jaxpr_trace_duration", 0)
        now = 3.0
        assert clock.seconds == 3.0, "a compile that lasts counts too"
        jax.monitoring.record_event_duration_secs(f"{PREFIX}jaxpr_trace_duration", 2.0)
        now = 4.0
        jax.monitoring.record_event_duration_secs(BACKEND_COMPILE, 4.0)
        now = 10.0
    assert clock.seconds == 4.0, "the sum of the events is 6"


def test_a_traced_function_within_another_takes_its_time_once() -> None:
    def slow(x: jax.Array) -> jax.Array:
        time.sleep(0.3)  # while JAX traces both
        return jnp.sin(x)

    with clocked_compiles() as clock:
        began = time.monotonic()
        jax.jit(lambda x: jax.jit(slow)(x) + 1.0)(jnp.ones(7)).block_until_ready()
        assert 0.3 <= clock.seconds <= time.monotonic() - began


def test_a_restart_forgets_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(compile_clock.time, "monotonic", lambda: now)
    clock = CompileClock()
    clock.set_compiling(True)
    now = 5.0
    clock.restart()
    now = 6.0
    clock.set_compiling(False)
    assert (clock.seconds, clock.from_cache, clock.to_cache) == (1.0, 0, 0)


def test_programs_from_the_persistent_cache_are_counted(tmp_path: Path) -> None:
    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
        "jax_enable_compilation_cache": True,
    }
    before = {name: getattr(jax.config, name) for name in options}
    x = jnp.ones(11)
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        with clocked_compiles() as clock:
            jax.jit(lambda x: jnp.cos(x) * 5.0)(x).block_until_ready()
            assert (clock.from_cache, clock.to_cache) == (0, 1)
            clock.restart()
            jax.jit(lambda x: jnp.cos(x) * 5.0)(x).block_until_ready()
            assert (clock.from_cache, clock.to_cache) == (1, 0)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
