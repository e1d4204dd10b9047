"""Root-mean-square norm after a matrix product, alone or followed by SiLU; its backward pass is one GPU kernel."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.jaxcore.kernels import can_run_kernels
from dreamproof.nn import fused
from dreamproof.nn.fused import Order

EPSILON = 1e-4


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(y: Array, affine: Array, order: Order) -> Array:
    """The norm of products (..., F), in their type, statistics in float32; only the product is saved for the gradient.

    affine: scale (1, F), or bias of the product and scale (2, F), as the order needs it.
    """
    return _plain(y, affine, order)


def _plain(y: Array, affine: Array, order: Order) -> Array:
    rows = dict(zip(fused.AFFINE[order], affine, strict=True))
    biased = y + rows["bias"].astype(y.dtype) if "bias" in rows else y
    wide = biased.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + EPSILON)
    x = wide * inverse * rows["scale"]
    return (jax.nn.silu(x) if order == "rms_then_silu" else x).astype(y.dtype)


def _forward(y: Any, affine: Any, order: Order) -> tuple[Array, tuple[Array, Array, tuple[()] | None]]:
    # The structure of the residuals encodes whether the affine parameters need gradients.
    return rms_norm(y.value, affine.value, order), (y.value, affine.value, () if affine.perturbed else None)


def _backward(
    order: Order, residuals: tuple[Array, Array, tuple[()] | None], cotangent: Array
) -> tuple[Array, Array | None]:
    y, affine, learns = residuals
    if can_run_kernels():
        return fused.gradients(y, affine, cotangent, EPSILON, order, learns is not None)
    if learns is None:
        return jax.vjp(lambda y: _plain(y, affine, order), y)[1](cotangent)[0], None
    return jax.vjp(lambda y, affine: _plain(y, affine, order), y, affine)[1](cotangent)


rms_norm.defvjp(_forward, _backward, symbolic_zeros=True)
