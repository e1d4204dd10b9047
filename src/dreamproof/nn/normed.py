"""Networks of TD-MPC2 (2024) and PWM (2024): linear layers with LayerNorm and Mish, in either order."""

import itertools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn.deferred import Tape, affine_gradient, scale_gradient
from dreamproof.nn.layers import Linear

EPSILON = 1e-5
Order = Literal["norm_then_mish", "mish_then_norm", "norm"]
# initial(key, inputs, outputs) -> weight (inputs, outputs) and bias (outputs,)
Initial = Callable[[Array, int, int], tuple[Array, Array]]


def mish(x: Array) -> Array:
    """x·tanh(softplus(x)) with a single exponential."""
    grown = jnp.exp(jnp.minimum(x, 20.0))
    ratio = grown * (grown + 2.0)
    return x * (ratio / (ratio + 2.0))


def small_normal(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Weights of standard deviation 0.02, no bias: the world model's."""
    return 0.02 * jax.random.normal(key, (inputs, outputs)), jnp.zeros(outputs)


def silent(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """All zero."""
    del key
    return jnp.zeros((inputs, outputs)), jnp.zeros(outputs)


def orthogonal(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Orthogonal with gain √2, no bias: the critics'."""
    return jax.nn.initializers.orthogonal(2**0.5)(key, (inputs, outputs)), jnp.zeros(outputs)


def uniform(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Weights and bias uniform within ±1/√inputs: the actor's."""
    reach = inputs**-0.5
    weight_key, bias_key = jax.random.split(key)
    weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-reach, maxval=reach)
    return weight, jax.random.uniform(bias_key, (outputs,), minval=-reach, maxval=reach)


def make_linear(key: Array, shape: tuple[int, int], initial: Initial, dtype: Any) -> Linear:
    """A linear layer with these first weights."""
    layer = Linear(key, *shape, dtype)
    return eqx.tree_at(lambda made: (made.weight, made.bias), layer, initial(key, *shape))


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift; all in float32."""

    scale: Array
    shift: Array

    def __init__(self, size: int) -> None:
        self.scale, self.shift = jnp.ones(size), jnp.zeros(size)

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        made = normalised(x) * self.scale + self.shift
        return made if tape is None else tape(x, made)


def normalised(x: Array) -> Array:
    """Zero mean and unit variance over the last axis, in float32."""
    wide = x.astype(jnp.float32)
    # Two means, one after the other, become a single kernel on a GPU; two sums at once over the same row do not.
    centred = wide - wide.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPSILON)


class Normed(eqx.Module):
    """Linear, then LayerNorm and Mish in the given order; `norm` leaves Mish out."""

    linear: Linear
    norm: LayerNorm
    order: Order = eqx.field(static=True)

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        return self.finish(product(self.linear, x, tape), tape)

    def finish(self, y: Array, tape: Tape | None) -> Array:
        """What follows the linear map."""
        if self.order == "mish_then_norm":
            return self.norm(mish(y.astype(jnp.float32)), tape).astype(y.dtype)
        normal = self.norm(y, tape)
        return normal if self.order == "norm" else mish(normal).astype(y.dtype)


def product(linear: Linear, x: Array, tape: Tape | None) -> Array:
    """The linear map, noted on the tape."""
    y = linear(x)
    return y if tape is None else tape(x.astype(linear.dtype), y)


class NormedMLP(eqx.Module):
    """Hidden layers of one order and a last one, linear or with a LayerNorm. (..., in) → (..., out) in float32."""

    hidden: list[Normed]
    last: Linear | Normed

    def __init__(
        self,
        key: Array,
        sizes: tuple[int, ...],
        outputs: int,
        order: Order,
        initial: tuple[Initial, Initial | None],
        dtype: Any = jnp.float32,
    ) -> None:
        """`initial` is that of the hidden layers and of a linear last one; None there ends in a LayerNorm."""
        first, last = initial
        keys = jax.random.split(key, len(sizes))

        def normed(at: Array, shape: tuple[int, int], kind: Order) -> Normed:
            return Normed(make_linear(at, shape, first, dtype), LayerNorm(shape[1]), kind)

        pairs = itertools.pairwise(sizes)
        self.hidden = [normed(at, pair, order) for at, pair in zip(keys[:-1], pairs, strict=True)]
        shape = (sizes[-1], outputs)
        self.last = normed(keys[-1], shape, "norm") if last is None else make_linear(keys[-1], shape, last, dtype)

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        for layer in self.hidden:
            x = layer(x, tape)
        return self._end(x, tape)

    def prepare(self, later: Array) -> Array:
        """What the last inputs (..., later) and the bias add to the first linear map."""
        linear = self.hidden[0].linear
        assert linear.bias is not None
        weight = linear.weight[linear.weight.shape[0] - later.shape[-1] :].astype(linear.dtype)
        return later.astype(linear.dtype) @ weight + linear.bias.astype(linear.dtype)

    def after(self, early: Array, time: float | None, prepared: Array, tape: Tape | None = None) -> Array:
        """The network of [early, time, later]: all but the early inputs may be prepared for many calls at once."""
        first, count = self.hidden[0], early.shape[-1]
        dtype = first.linear.dtype
        y = early.astype(dtype) @ first.linear.weight[:count].astype(dtype) + prepared
        if time is not None:
            y = y + (time * first.linear.weight[count]).astype(dtype)
        if tape is not None:
            times = [] if time is None else [jnp.full((*early.shape[:-1], 1), time, dtype)]
            y = tape(jnp.concatenate([early.astype(dtype), *times], -1), y)
        x = first.finish(y, tape)
        for layer in self.hidden[1:]:
            x = layer(x, tape)
        return self._end(x, tape)

    def lowered(self) -> "NormedMLP":
        """The same with its products' weights in their precision already, for scans in which they take no gradient."""

        def cast(linear: Any) -> Any:
            parts = (linear.weight.astype(linear.dtype), linear.bias.astype(linear.dtype))
            return eqx.tree_at(lambda made: (made.weight, made.bias), linear, parts)

        return eqx.tree_at(_linears, self, [cast(linear) for linear in _linears(self)])

    def _end(self, x: Array, tape: Tape | None) -> Array:
        last = self.last(x, tape) if isinstance(self.last, Normed) else product(self.last, x, tape)
        return last.astype(jnp.float32)

    def deferred(self, given: list[Array], arrived: list[Array]) -> "NormedMLP":
        """The gradient of all parameters that calls of `after` in a scan leave to the end; both lists are (T, B, ...).

        The bias of the first map and the weights of its later inputs take theirs from what was prepared.
        """
        layers = [*self.hidden, self.last]
        kinds = [kind for layer in layers for kind in (layer, getattr(layer, "norm", None)) if kind is not None]
        gradients = []
        for place, kind in enumerate(kinds):
            seen, gained = given[place :: len(kinds)], arrived[place :: len(kinds)]
            if isinstance(kind, LayerNorm):
                gradients.append(scale_gradient([normalised(each) for each in seen], gained))
            else:
                gradients.append(affine_gradient(seen, gained))
        first = self.hidden[0].linear
        early, _ = gradients[0]
        padded = jnp.zeros(first.weight.shape).at[: early.shape[0]].set(early)
        gradients[0] = (padded, jnp.zeros(first.weight.shape[1]))
        flat = [part for pair in gradients for part in pair]
        return eqx.tree_at(lambda made: _parameters(made), eqx.filter(self, eqx.is_inexact_array), flat)


def _linears(network: NormedMLP) -> list[Linear]:
    """The linear maps, layer by layer."""
    return [layer.linear if isinstance(layer, Normed) else layer for layer in [*network.hidden, network.last]]


def _parameters(network: NormedMLP) -> list[Array]:
    """Weight and bias, then scale and shift, layer by layer."""
    found: list[Any] = []
    for layer in [*network.hidden, network.last]:
        linear = layer.linear if isinstance(layer, Normed) else layer
        found += [linear.weight, linear.bias]
        found += [layer.norm.scale, layer.norm.shift] if isinstance(layer, Normed) else []
    return found
