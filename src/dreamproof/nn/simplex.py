"""Latents whose groups are points of a simplex (SimNorm, TD-MPC2, 2024), its tangents and the projection onto it."""

import functools

import jax
import jax.numpy as jnp
from jax import Array


def grouped(x: Array, group: int) -> Array:
    """(..., L) → (..., L/group, group)."""
    return x.reshape(*x.shape[:-1], -1, group)


def simnorm(x: Array, group: int, known: Array | None = None) -> Array:
    """Softmax inside every group, in float32; not computed if the result is `known`."""
    wide = jax.lax.stop_gradient(x).astype(jnp.float32)
    output = jax.nn.softmax(grouped(wide, group), axis=-1).reshape(x.shape) if known is None else known
    return _with_slope_of_softmax(x, output, group)


def centred(x: Array, group: int) -> Array:
    """`x` without the mean of each group, in float32: a direction that keeps the sums of groups."""
    shaped = grouped(x.astype(jnp.float32), group)
    return (shaped - shaped.mean(-1, keepdims=True)).reshape(x.shape)


def on_simplex(x: Array, group: int, known: Array | None = None) -> Array:
    """The nearest point whose groups are probabilities (Duchi et al., 2008, fig. 1); not computed if `known`.

    The threshold is the largest of the candidates (Σ_{x_j ≥ x_i} x_j − 1) / #{x_j ≥ x_i}; no sort is needed.
    """
    output = _projected(jax.lax.stop_gradient(x), group) if known is None else known
    return _with_slope_of_projection(x, output, group)


def _projected(x: Array, group: int) -> Array:
    shaped = grouped(x, group)
    places = [shaped[..., place : place + 1] for place in range(group)]

    # Unrolled over the group, all candidates become one kernel; sums over pairs would be three.
    def candidate(lower: Array) -> Array:
        above = [(place >= lower).astype(x.dtype) for place in places]
        total = functools.reduce(jnp.add, [each * place for each, place in zip(above, places, strict=True)])
        return (total - 1.0) / functools.reduce(jnp.add, above)

    threshold = functools.reduce(jnp.maximum, [candidate(place) for place in places])
    return jnp.maximum(shaped - threshold, 0.0).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _with_slope_of_softmax(x: Array, output: Array, group: int) -> Array:
    """`output`, the softmax of `x`, with the gradient of the softmax."""
    del x, group
    return output


def _softmax_backward(group: int, residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    empty, output = residuals
    shaped, cotangent = grouped(output, group), grouped(gradient, group)
    slope = shaped * (cotangent - (shaped * cotangent).sum(-1, keepdims=True))
    # Without the barrier the grouped shape propagates into the LayerNorm before it, which then takes three kernels.
    return jax.lax.optimization_barrier(slope.reshape(output.shape).astype(empty.dtype)), jnp.zeros_like(output)


# An empty array carries the dtype of x.
_with_slope_of_softmax.defvjp(lambda x, output, group: (output, (jnp.zeros((0,), x.dtype), output)), _softmax_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _with_slope_of_projection(x: Array, output: Array, group: int) -> Array:
    """`output`, the projection of `x`, with the gradient of the projection."""
    del x, group
    return output


def _projection_backward(group: int, output: Array, gradient: Array) -> tuple[Array, Array]:
    """Along the face of the simplex: positive entries, minus their mean."""
    inside = (grouped(output, group) > 0.0).astype(gradient.dtype)
    kept = inside * grouped(gradient, group)
    slope = kept - inside * (kept.sum(-1, keepdims=True) / inside.sum(-1, keepdims=True))
    return slope.reshape(output.shape), jnp.zeros_like(output)


_with_slope_of_projection.defvjp(lambda x, output, group: (output, output), _projection_backward)


def centred_logits(z: Array, group: int, min_probability: float) -> Array:
    """Logits whose simnorm is `z`, with mean 0 in every group; probabilities are at least `min_probability`."""
    return centred(jnp.log(jnp.maximum(z, min_probability)), group)
