"""Returns along a sequence (T, ...), newest last."""

import jax
import jax.numpy as jnp
from jax import Array

UNROLL = 16
"""Steps per loop body: they are cheap and fuse into one kernel."""


def lambda_returns(rewards: Array, values: Array, discounts: Array, lambda_: float) -> Array:
    """R_t = r_t + d_t·[(1−λ)·v_{t+1} + λ·R_{t+1}], R_T = v_T (Sutton & Barto, 2018, eq. 12.18).

    rewards, discounts: (T, ...) of the transitions t → t+1; values: (T+1, ...). Returns (T, ...).
    """
    assert rewards.shape == discounts.shape == values[1:].shape, (rewards.shape, discounts.shape, values.shape)

    def backward(later: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, discount, value = row
        now = reward + discount * ((1 - lambda_) * value + lambda_ * later)
        return now, now

    rows = (rewards, discounts, values[1:])
    _, returns = jax.lax.scan(backward, values[-1], rows, reverse=True, unroll=UNROLL)
    # Without the barrier what follows is computed step by step too, and no step fuses with the next.
    return jax.lax.optimization_barrier(returns)


def discount_weights(discounts: Array) -> Array:
    """Product of the discounts before each step, (T, ...); 1 at the first."""
    ones = jnp.ones_like(discounts[:1])
    return jnp.concatenate([ones, jnp.cumprod(discounts[:-1], axis=0)])


def discounted_min(margins: Array, discount: Array | float) -> Array:
    """Discounted minimum to the end of the sequence: y_t = (1−γ)·l_t + γ·min(l_t, y_{t+1}), y_T = l_T. (T, ...)."""

    def backward(later: Array, margin: Array) -> tuple[Array, Array]:
        now = (1 - discount) * margin + discount * jnp.minimum(margin, later)
        return now, now

    _, minima = jax.lax.scan(backward, margins[-1], margins[:-1], reverse=True, unroll=UNROLL)
    return jnp.concatenate([minima, margins[-1:]])
