"""Adam over one flat vector with a global-norm clip. One fused kernel instead of one per tensor; the rate is traced."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree


class AdamState(NamedTuple):
    """First and second moments of the flat parameter vector, and how often it stepped."""

    first: Array
    second: Array
    steps: Array


class Step(NamedTuple):
    """What one optimiser step gives back."""

    model: Any
    state: AdamState
    gradient_norm: Array
    finite: Array


def init_adam(model: Any) -> AdamState:
    """Zero moments for all inexact arrays of `model`."""
    size = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    return AdamState(jnp.zeros(size), jnp.zeros(size), jnp.zeros((), jnp.int32))


def adam_step(
    model: Any, gradients: Any, state: AdamState, rate: Array | float, clip: float, epsilon: float = 1e-8
) -> Step:
    """One step with warm-up over the first 500; a gradient that is not finite changes nothing."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(parameters)
    gradient, _ = ravel_pytree(gradients)
    norm = jnp.sqrt(jnp.sum(gradient**2))
    finite = jnp.isfinite(norm)
    gradient = gradient * jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-12))
    count = state.steps + 1
    first = 0.9 * state.first + 0.1 * gradient
    second = 0.999 * state.second + 0.001 * gradient**2
    warm = jnp.minimum(1.0, count / 500.0)
    corrected = (first / (1 - 0.9**count)) / (jnp.sqrt(second / (1 - 0.999**count)) + epsilon)
    moved = flat - rate * warm * corrected
    kept = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old), (moved, AdamState(first, second, count)), (flat, state)
    )
    return Step(eqx.combine(unravel(kept[0]), static), kept[1], norm, finite)


def follow(slow: Any, fast: Any, fraction: float) -> Any:
    """`slow` moved towards `fast` by `fraction`, array by array."""
    return jax.tree.map(lambda s, f: s + fraction * (f - s) if eqx.is_inexact_array(s) else s, slow, fast)
