"""Thin layers over whole batches (..., features). Parameters are float32; products run in the given dtype."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint

NORM_EPSILON = 1e-4
# Standard deviation of a unit normal truncated at two standard deviations.
TRUNCATED_STD = 0.87962566103423978
NARROW = 4
"""Products with up to this many inputs are unrolled, see narrow_product."""


def truncated_normal(key: Array, shape: tuple[int, ...], fan_in: int, scale: float = 1.0) -> Array:
    """Weights with variance scale / fan_in, truncated at two standard deviations (DreamerV3, 2023)."""
    std = (scale / fan_in) ** 0.5 / TRUNCATED_STD
    return std * jax.random.truncated_normal(key, -2.0, 2.0, shape)


def in_rows(x: Array) -> Array:
    """`x` with its last axis innermost in memory, as norms need it, whatever layout a later product prefers."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def narrow_product(x: Array, weight: Array) -> Array:
    """(..., in) and (..., in, out) → (..., out) for a few inputs: a sum that fuses with its neighbours."""
    return functools.reduce(jnp.add, [x[..., i : i + 1] * weight[..., i, :] for i in range(weight.shape[-2])])


class Linear(eqx.Module):
    """(..., in) → (..., out)."""

    weight: Array
    bias: Array | None
    dtype: Any = eqx.field(static=True)

    def __init__(
        self, key: Array, inputs: int, outputs: int, dtype: Any = jnp.float32, bias: bool = True, scale: float = 1.0
    ) -> None:
        self.weight = truncated_normal(key, (inputs, outputs), inputs, scale)
        self.bias = jnp.zeros(outputs) if bias else None
        self.dtype = dtype

    def in_compute_dtype(self) -> "Linear":
        """The same layer with its parameters already in its compute dtype."""
        return jax.tree.map(lambda parameter: parameter.astype(self.dtype), self)

    def __call__(self, x: Array, shared: Array | None = None) -> Array:
        """`shared` holds trailing inputs that many rows have in common; they are multiplied once."""
        y = self.product(x, shared)
        return y if self.bias is None else y + self.bias.astype(self.dtype)

    def product(self, x: Array, shared: Array | None = None) -> Array:
        """The same without the bias."""
        x, weight = x.astype(self.dtype), self.weight.astype(self.dtype)
        own = weight.shape[0] if shared is None else x.shape[-1]
        y = x @ weight[:own] if own > NARROW else narrow_product(x, weight[:own])
        return y if shared is None else y + shared.astype(self.dtype) @ weight[own:]


def in_compute_dtype(tree: Any) -> Any:
    """`tree` with every linear layer in its compute dtype, so that a loop does not convert weights in every step."""

    def lower(part: Any) -> Any:
        return part.in_compute_dtype() if isinstance(part, Linear) else part

    return jax.tree.map(lower, tree, is_leaf=lambda part: isinstance(part, Linear))


class Norm(eqx.Module):
    """Root-mean-square norm with a learned scale; statistics in float32."""

    scale: Array

    def __init__(self, size: int) -> None:
        self.scale = jnp.ones(size)

    def __call__(self, x: Array) -> Array:
        wide = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + NORM_EPSILON)
        return (wide * inverse * self.scale).astype(x.dtype)


class Dense(eqx.Module):
    """Linear, norm, SiLU. Without the bias, the norm would hide the length of a short input vector."""

    linear: Linear
    norm: Norm

    def __init__(self, key: Array, inputs: int, outputs: int, dtype: Any = jnp.float32) -> None:
        self.linear = Linear(key, inputs, outputs, dtype)
        self.norm = Norm(outputs)

    def __call__(self, x: Array) -> Array:
        return jax.nn.silu(self.norm(self.linear(x)))


class MLP(eqx.Module):
    """Dense layers and a linear output in float32; `scale` shrinks the output's initial weights."""

    hidden: list[Dense]
    output: Linear | None

    def __init__(
        self, key: Array, sizes: tuple[int, ...], outputs: int | None, dtype: Any = jnp.float32, scale: float = 1.0
    ) -> None:
        keys = jax.random.split(key, len(sizes))
        self.hidden = [
            Dense(k, inputs, units, dtype) for k, inputs, units in zip(keys, sizes[:-1], sizes[1:], strict=False)
        ]
        self.output = None if outputs is None else Linear(keys[-1], sizes[-1], outputs, dtype, scale=scale)

    def __call__(self, x: Array) -> Array:
        for layer in self.hidden:
            x = layer(x)
        return x if self.output is None else self.output(x).astype(jnp.float32)


class Plain(eqx.Module):
    """Linear layers and SiLU without norms, for short inputs whose norm matters (positions in metres)."""

    layers: list[Linear]

    def __init__(self, key: Array, sizes: tuple[int, ...]) -> None:
        keys = jax.random.split(key, len(sizes))
        layers = [Linear(k, inputs, units) for k, inputs, units in zip(keys, sizes[:-1], sizes[1:], strict=False)]
        # Random biases spread the kinks over the input instead of placing all at zero.
        spread = eqx.tree_at(lambda layer: layer.bias, layers[0], jax.random.normal(keys[-1], (sizes[1],)))
        self.layers = [spread, *layers[1:]]

    def __call__(self, x: Array, shared: Array | None = None) -> Array:
        first, *later = self.layers
        y = first(x, shared)
        for layer in later:
            y = layer(jax.nn.silu(y))
        return y


def ensemble(build: Callable[[Array], eqx.Module], key: Array, members: int) -> eqx.Module:
    """`members` modules of one shape with a leading member axis, to be called through jax.vmap."""
    return eqx.filter_vmap(build)(jax.random.split(key, members))


def parameter_count(tree: Any) -> int:
    """Number of values in all arrays of a pytree."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))
