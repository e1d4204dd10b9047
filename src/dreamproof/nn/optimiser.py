"""Adam over one flat vector with a global-norm clip. One fused kernel instead of one per tensor; the rate is traced."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree


class AdamState(NamedTuple):
    """First and second moments of the flat parameter vector, and the number of steps."""

    first: Array
    second: Array
    steps: Array


class Adam(NamedTuple):
    """Decay of the two moments, epsilon, and warm-up steps of the learning rate."""

    first: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8
    warm_up: int = 500


class Step(NamedTuple):
    """Result of one optimiser step; the model may be its flat vector."""

    model: Any
    state: AdamState
    gradient_norm: Array
    finite: Array


def init_adam(model: Any) -> AdamState:
    """Zero moments for all inexact arrays of `model`."""
    size = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    return AdamState(jnp.zeros(size), jnp.zeros(size), jnp.zeros((), jnp.int32))


def flat_parameters(model: Any) -> tuple[Array, Callable[[Array], Any]]:
    """All inexact arrays of `model` as one vector, and the function from such a vector to a model."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(parameters)
    return flat, lambda vector: eqx.combine(unravel(vector), static)


def adam_step(
    model: Any, gradients: Any, state: AdamState, rate: Array | float, clip: float, rule: Adam = Adam()
) -> Step:
    """One step with warm-up; a non-finite gradient changes nothing."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    _, whole = ravel_pytree(parameters)
    update = _update(gradients, state, rate, clip, rule)
    moved = jax.tree.map(lambda old, part: jnp.where(update.finite, old - part, old), parameters, whole(update.model))
    # With the barrier each parameter is computed once and in place, not again by each of its uses.
    return update._replace(model=eqx.combine(jax.lax.optimization_barrier(moved), static))


def flat_adam_step(
    flat: Array, gradients: Any, state: AdamState, rate: Array | float, clip: float, rule: Adam = Adam()
) -> Step:
    """The same for parameters kept as one vector, which saves flattening and unflattening in every step."""
    update = _update(gradients, state, rate, clip, rule)
    return update._replace(model=jnp.where(update.finite, flat - update.model, flat))


def _update(gradients: Any, state: AdamState, rate: Array | float, clip: float, rule: Adam) -> Step:
    """A step whose model is the change to subtract from the flat vector of parameters."""
    gradient, _ = ravel_pytree(gradients)
    norm = jnp.sqrt(jnp.sum(gradient**2))
    finite = jnp.isfinite(norm)
    gradient = gradient * jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-12))
    count = state.steps + 1
    # Moments are selected before they are used: this saves a second pass over memory.
    first = jnp.where(finite, rule.first * state.first + (1 - rule.first) * gradient, state.first)
    second = jnp.where(finite, rule.second * state.second + (1 - rule.second) * gradient**2, state.second)
    warm = jnp.minimum(1.0, count / float(max(1, rule.warm_up)))
    unseen = 1 - jnp.array([rule.first, rule.second]) ** count  # as one array it is one kernel
    corrected = (first / unseen[0]) / (jnp.sqrt(second / unseen[1]) + rule.epsilon)
    return Step(rate * warm * corrected, AdamState(first, second, jnp.where(finite, count, state.steps)), norm, finite)


def follow(slow: Any, fast: Any, fraction: float) -> Any:
    """`slow` moved towards `fast` by `fraction`, array by array."""
    return jax.tree.map(lambda s, f: s + fraction * (f - s) if eqx.is_inexact_array(s) else s, slow, fast)
