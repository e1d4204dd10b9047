"""A compile is announced while it lasts, wherever it happens."""

import jax
import jax.numpy as jnp
import pytest

from dreamproof.jaxcore.compile_events import announce_compiles


def test_a_compile_is_announced_while_it_lasts_and_counted_when_it_ends() -> None:
    states: list[bool] = []
    counted: list[int] = []
    seen_inside: list[bool] = []

    def traced(x: jax.Array) -> jax.Array:
        seen_inside.append(states[-1])  # runs while JAX traces
        return jnp.sin(x) * 3.0

    with announce_compiles(states.append, lambda: counted.append(1)):
        function = jax.jit(traced)
        function(jnp.ones(3)).block_until_ready()
        first = len(counted)
        states_after_first = list(states)
        function(jnp.ones(3)).block_until_ready()
    assert seen_inside == [True]
    assert states_after_first[-1] is False and first >= 1
    assert len(counted) == first, "a cached program is not compiled again"


def test_a_trace_that_fails_leaves_no_open_compile() -> None:
    states: list[bool] = [False]

    def broken(x: jax.Array) -> jax.Array:
        raise ValueError("wrong on purpose")

    with announce_compiles(states.append, lambda: None), pytest.raises(ValueError, match="wrong on purpose"):
        jax.jit(broken)(jnp.ones(3))
    assert states[-1] is False


def test_nothing_is_announced_after_the_end() -> None:
    states: list[bool] = []
    with announce_compiles(states.append, lambda: None):
        pass
    jax.jit(lambda x: x + 41.0)(jnp.ones(5)).block_until_ready()
    assert states == []
