"""Latents in groups that are points of a simplex (SimNorm, TD-MPC2, 2024), and the ways along and back onto it."""

import functools

import jax
import jax.numpy as jnp
from jax import Array


def grouped(x: Array, group: int) -> Array:
    """(..., L) → (..., L/group, group)."""
    return x.reshape(*x.shape[:-1], -1, group)


def simnorm(x: Array, group: int, known: Array | None = None) -> Array:
    """Softmax inside every group, in float32; it need not be computed where it is known."""
    wide = jax.lax.stop_gradient(x).astype(jnp.float32)
    made = jax.nn.softmax(grouped(wide, group), axis=-1).reshape(x.shape) if known is None else known
    return _with_slope_of_softmax(x, made, group)


def centred(x: Array, group: int) -> Array:
    """`x` without the mean of each group, in float32: a direction along which sums of groups do not change."""
    shaped = grouped(x.astype(jnp.float32), group)
    return (shaped - shaped.mean(-1, keepdims=True)).reshape(x.shape)


def on_simplex(x: Array, group: int, known: Array | None = None) -> Array:
    """The nearest point whose groups are probabilities (Duchi et al., 2008, fig. 1), where it is not known already.

    The threshold is the largest of the candidates (Σ_{x_j ≥ x_i} x_j − 1) / #{x_j ≥ x_i}; pairs need no sort.
    """
    made = _projected(jax.lax.stop_gradient(x), group) if known is None else known
    return _with_slope_of_projection(x, made, group)


def _projected(x: Array, group: int) -> Array:
    shaped = grouped(x, group)
    places = [shaped[..., place : place + 1] for place in range(group)]

    # Written out place by place, all candidates become one kernel; sums over pairs would be three.
    def candidate(least: Array) -> Array:
        above = [(place >= least).astype(x.dtype) for place in places]
        total = functools.reduce(jnp.add, [each * place for each, place in zip(above, places, strict=True)])
        return (total - 1.0) / functools.reduce(jnp.add, above)

    threshold = functools.reduce(jnp.maximum, [candidate(place) for place in places])
    return jnp.maximum(shaped - threshold, 0.0).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _with_slope_of_softmax(x: Array, made: Array, group: int) -> Array:
    """`made`, which is the softmax of `x` and tells its slope."""
    del x, group
    return made


def _softmax_backward(group: int, kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    empty, made = kept
    shaped, arrived = grouped(made, group), grouped(gradient, group)
    slope = shaped * (arrived - (shaped * arrived).sum(-1, keepdims=True))
    # Without the barrier the shape of groups spreads into the LayerNorm before it, which then takes three kernels.
    return jax.lax.optimization_barrier(slope.reshape(made.shape).astype(empty.dtype)), jnp.zeros_like(made)


# An empty array remembers the type of x.
_with_slope_of_softmax.defvjp(lambda x, made, group: (made, (jnp.zeros((0,), x.dtype), made)), _softmax_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _with_slope_of_projection(x: Array, made: Array, group: int) -> Array:
    """`made`, which is the projection of `x` and tells its slope."""
    del x, group
    return made


def _projection_backward(group: int, made: Array, gradient: Array) -> tuple[Array, Array]:
    """Along the face on which the point lies: where it is above 0, less the mean over there."""
    inside = (grouped(made, group) > 0.0).astype(gradient.dtype)
    kept = inside * grouped(gradient, group)
    slope = kept - inside * (kept.sum(-1, keepdims=True) / inside.sum(-1, keepdims=True))
    return slope.reshape(made.shape), jnp.zeros_like(made)


_with_slope_of_projection.defvjp(lambda x, made, group: (made, made), _projection_backward)


def centred_logits(z: Array, group: int, least: float) -> Array:
    """Logits whose simnorm is `z`, with mean 0 in every group; probabilities below `least` count as `least`."""
    return centred(jnp.log(jnp.maximum(z, least)), group)
