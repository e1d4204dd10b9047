"""Scans that collect without zeros, and weight gradients made in shares."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn import deferred
from dreamproof.nn.deferred import buffered_scan, weight_gradient


def grown(now: jax.Array, inputs: jax.Array, number: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    following = 0.5 * now + inputs * number
    return following, {"square": following**2, "both": jnp.stack([now, inputs])}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("replicas", [None, 3])
def test_a_collecting_scan_collects_what_a_scan_collects(reverse: bool, replicas: int | None) -> None:
    lead = () if replicas is None else (replicas,)
    inputs = jax.random.normal(jax.random.key(0), (*lead, 5, 4))

    def plain(step: Any, first: jax.Array, inputs: jax.Array, reverse: bool) -> Any:
        return jax.lax.scan(lambda now, x: step(now, *x), first, (inputs, jnp.arange(5)), reverse=reverse)

    def alone(scan: Any, inputs: jax.Array) -> Any:
        return scan(grown, jnp.ones(4), inputs, reverse=reverse)

    def run(scan: Any) -> Any:
        one = jax.jit(lambda x: alone(scan, x)) if replicas is None else jax.jit(jax.vmap(lambda x: alone(scan, x)))
        return one(inputs)

    for found, expected in zip(jax.tree.leaves(run(buffered_scan)), jax.tree.leaves(run(plain)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("rows", [(6, 4), (3, 7)])
def test_a_weight_gradient_in_shares_is_the_whole_one(rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    keys = jax.random.split(jax.random.key(1))
    given, cotangent = jax.random.normal(keys[0], (*rows, 5)), jax.random.normal(keys[1], (*rows, 3))
    monkeypatch.setattr(deferred, "SPLIT_ROWS", 8)
    expected = np.einsum("tbi,tbo->io", given, cotangent)
    np.testing.assert_allclose(weight_gradient(given, cotangent), expected, rtol=1e-4, atol=1e-5)
