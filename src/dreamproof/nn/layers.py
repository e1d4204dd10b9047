"""Thin layers over whole batches (..., features). Parameters are float32; products run in the given dtype."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn.rms import rms_norm

# Standard deviation of a unit normal truncated at two standard deviations.
TRUNCATED_STD = 0.87962566103423978
NARROW = 4
"""Products with up to this many inputs are unrolled, see narrow_product."""


def truncated_normal(key: Array, shape: tuple[int, ...], fan_in: int, scale: float = 1.0) -> Array:
    """Weights with variance scale / fan_in, truncated at two standard deviations (DreamerV3, 2023)."""
    std = (scale / fan_in) ** 0.5 / TRUNCATED_STD
    return std * jax.random.truncated_normal(key, -2.0, 2.0, shape)


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
        return self.leading(x) if shared is None else self.leading(x) + self.trailing(shared)

    def leading(self, x: Array) -> Array:
        """What the first inputs add to the product."""
        return self._part(x, self.weight[: x.shape[-1]])

    def trailing(self, x: Array) -> Array:
        """What the last inputs add to the product."""
        return self._part(x, self.weight[-x.shape[-1] :])

    def _part(self, x: Array, weight: Array) -> Array:
        x, weight = x.astype(self.dtype), weight.astype(self.dtype)
        return x @ weight if x.shape[-1] > NARROW else narrow_product(x, weight)


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
        return rms_norm(x, self.scale[None], "rms")


class Dense(eqx.Module):
    """Linear, root-mean-square norm, SiLU. Without the bias, the norm would hide the length of a short input vector.

    affine: the bias of the product and the scale of the norm, (2, F).
    """

    linear: Linear
    affine: Array

    def __init__(self, key: Array, inputs: int, outputs: int, dtype: Any = jnp.float32) -> None:
        self.linear = Linear(key, inputs, outputs, dtype, bias=False)
        self.affine = jnp.stack([jnp.zeros(outputs), jnp.ones(outputs)])

    def __call__(self, x: Array, trailing: Array | None = None) -> Array:
        """`trailing` are the last inputs, if they are a separate array."""
        return self.finish(self.linear.product(x, trailing))

    def finish(self, product: Array) -> Array:
        """Output for a product."""
        return rms_norm(product, self.affine, "rms_then_silu")


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
        return self._through(self.hidden, x)

    def finish(self, product: Array) -> Array:
        """Output for the product of the first layer."""
        return self._through(self.hidden[1:], self.hidden[0].finish(product))

    def _through(self, layers: list[Dense], x: Array) -> Array:
        for layer in layers:
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
