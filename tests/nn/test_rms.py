"""The root-mean-square norm: its gradient is that of its definition, with and without the kernels of a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn import fused, rms
from dreamproof.nn.rms import EPSILON, rms_norm


def defined(y: jax.Array, affine: jax.Array, order: fused.Order) -> jax.Array:
    """The norm, written out."""
    if order == "rms_then_silu":
        y = y + affine[0]
    x = y / jnp.sqrt((y**2).mean(-1, keepdims=True) + EPSILON) * affine[-1]
    return jax.nn.silu(x) if order == "rms_then_silu" else x


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("order", ["rms", "rms_then_silu"])
def test_values_and_gradients_are_those_of_the_definition(
    order: fused.Order, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rms, "can_run_kernels", lambda: kernels)
    keys = jax.random.split(jax.random.key(0), 3)
    y = 3.0 * jax.random.normal(keys[0], (4, 5, 16))
    affine = 1.0 + 0.3 * jax.random.normal(keys[1], (len(fused.AFFINE[order]), 16))
    cotangent = jax.random.normal(keys[2], y.shape)
    found, pull_back = jax.vjp(lambda y, affine: rms_norm(y, affine, order), y, affine)
    expected, pull_expected = jax.vjp(lambda y, affine: defined(y, affine, order), y, affine)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(pull_back(cotangent), pull_expected(cotangent), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernels", [False, True])
def test_fixed_parameters_get_no_gradient(kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rms, "can_run_kernels", lambda: kernels)
    monkeypatch.setattr(fused, "gradient_and_sums", None)
    y, affine = jnp.arange(32.0).reshape(2, 16), jnp.ones((1, 16))
    (found,) = jax.vjp(lambda y: rms_norm(y, affine, "rms"), y)[1](jnp.ones_like(y))
    (expected,) = jax.vjp(lambda y: defined(y, affine, "rms"), y)[1](jnp.ones_like(y))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
