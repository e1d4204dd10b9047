"""Split-conformal calibration of a certificate: a value that bounds the minimum margin of the next steps."""

import math

import jax
import jax.numpy as jnp
from jax import Array


def min_margin_ahead(margins: Array, steps: int) -> Array:
    """(T, ...): the minimum margin from each step to the one `steps` later, or to the end of the sequence."""
    far = jnp.full_like(margins[:1], jnp.inf)
    padded = jnp.concatenate([margins, jnp.repeat(far, steps, axis=0)])
    return jax.lax.reduce_window(
        padded, jnp.inf, jax.lax.min, (steps + 1, *[1] * (margins.ndim - 1)), (1,) * margins.ndim, "valid"
    )


def certificate_pairs(values: Array, margins: Array, steps: int) -> tuple[Array, Array]:
    """Certificate values and realised minimum margins (T', E) of all decisions with at least `steps` steps ahead.

    values (T, E) are recorded before a step, margins (T, E) after it: decision t starts at margins[t − 1].
    """
    last = max(1, len(margins) - 1 - steps)
    return values[1 : 1 + last], min_margin_ahead(margins, steps)[:last]


def certificate_scores(values: Array, margins: Array, steps: int) -> Array:
    """V minus the realised minimum margin at one random decision of each episode, (E,): exchangeable over layouts."""
    value, minimum = certificate_pairs(values, margins, steps)
    times = jax.random.randint(jax.random.key(0), (value.shape[1],), 0, len(value))
    return (value - minimum)[times, jnp.arange(value.shape[1])]


def conformal_offset(scores: Array, miscoverage: float) -> Array:
    """The ⌈(n+1)(1−δ)⌉-th smallest score: V − offset holds with probability ≥ 1−δ for exchangeable data."""
    count = scores.shape[0]
    rank = math.ceil((count + 1) * (1 - miscoverage) - 1e-9)
    if rank > count:
        return jnp.asarray(jnp.inf)
    return jnp.sort(scores)[rank - 1]
