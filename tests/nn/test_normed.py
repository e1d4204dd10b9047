"""What follows a product: written in one piece, it has the values and gradients of its parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn.mish import mish
from dreamproof.nn.normed import EPSILON, Normed, finished, make_linear, small_normal
from dreamproof.nn.normed import LayerNorm as Norm


def parts(y: jax.Array, affine: tuple[jax.Array, jax.Array, jax.Array], order: str) -> jax.Array:
    """The same in plain words, left to JAX to differentiate."""
    bias, scale, shift = affine
    y = (y + bias.astype(y.dtype)).astype(jnp.float32)
    normal = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + EPSILON) * scale + shift
    return normal if order == "norm" else mish(normal)


@pytest.mark.parametrize("order", ["norm", "norm_then_mish"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.bfloat16, 2e-2)])
def test_a_finished_product_has_the_gradients_of_its_parts(order: Any, dtype: Any, tolerance: float) -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    # A mean that is large beside the deviation is where a single pass over the rows would lose digits.
    y = (3.0 + jax.random.normal(keys[0], (4, 6, 16))).astype(dtype)
    affine = (jax.random.normal(keys[1], (16,)), *(1.0 + 0.3 * jax.random.normal(key, (16,)) for key in keys[2:4]))
    weight = jax.random.normal(keys[4], y.shape)

    def gradients(function: Any) -> Any:
        def total(y: jax.Array, affine: Any) -> jax.Array:
            return (weight * function(y, affine, order).astype(jnp.float32)).sum()

        return jax.tree.leaves(jax.jit(jax.value_and_grad(total, (0, 1)))(y, affine))

    for found, expected in zip(gradients(finished), gradients(parts), strict=True):
        found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def test_what_many_rows_become_is_what_they_became() -> None:
    keys = jax.random.split(jax.random.key(1), 3)
    layer = Normed(make_linear(keys[0], (5, 8), small_normal, jnp.float32), Norm(8), "norm_then_mish")
    y, arrived = jax.random.normal(keys[1], (3, 7, 8)), jax.random.normal(keys[2], (3, 7, 8))
    made, _ = layer.finish_gradient(y, arrived)
    np.testing.assert_allclose(made, layer.finish(y), rtol=1e-4, atol=1e-5)
