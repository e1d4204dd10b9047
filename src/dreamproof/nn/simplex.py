"""Latents in groups that are points of a simplex (SimNorm, TD-MPC2, 2024), and the ways along and back onto it."""

import jax
import jax.numpy as jnp
from jax import Array


def grouped(x: Array, group: int) -> Array:
    """(..., L) → (..., L/group, group)."""
    return x.reshape(*x.shape[:-1], -1, group)


def simnorm(x: Array, group: int) -> Array:
    """Softmax inside every group, in float32."""
    return jax.nn.softmax(grouped(x.astype(jnp.float32), group), axis=-1).reshape(x.shape)


def centred(x: Array, group: int) -> Array:
    """`x` without the mean of each group, in float32: a direction along which sums of groups do not change."""
    shaped = grouped(x.astype(jnp.float32), group)
    return (shaped - shaped.mean(-1, keepdims=True)).reshape(x.shape)


def on_simplex(x: Array, group: int) -> Array:
    """The nearest point whose groups are probabilities (Duchi et al., 2008, fig. 1).

    The threshold is the largest of the candidates (Σ_{x_j ≥ x_i} x_j − 1) / #{x_j ≥ x_i}; pairs need no sort.
    """
    shaped = grouped(x, group)
    above = (shaped[..., None, :] >= shaped[..., :, None]).astype(x.dtype)
    candidates = ((above * shaped[..., None, :]).sum(-1) - 1.0) / above.sum(-1)
    return jnp.maximum(shaped - candidates.max(-1, keepdims=True), 0.0).reshape(x.shape)


def centred_logits(z: Array, group: int, least: float) -> Array:
    """Logits whose simnorm is `z`, with mean 0 in every group; probabilities below `least` count as `least`."""
    return centred(jnp.log(jnp.maximum(z, least)), group)
