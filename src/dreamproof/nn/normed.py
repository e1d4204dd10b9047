"""Networks of TD-MPC2 (2024) and PWM (2024): linear layers with LayerNorm and Mish, in either order."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.jaxcore.kernels import can_run_kernels
from dreamproof.nn import fused
from dreamproof.nn.activations import mish
from dreamproof.nn.deferred import (
    BackwardRecord,
    BufferIndex,
    ForwardRecord,
    LayerActivations,
    LayerGradients,
    Tape,
    read_row,
    scale_gradient,
    uninitialised,
    weight_gradient,
    write_row,
)
from dreamproof.nn.fused import Order
from dreamproof.nn.layers import Linear
from dreamproof.nn.layout import in_rows

EPSILON = 1e-5
WHOLE = 32
"""Inputs of a network in its compute dtype are padded to a multiple of this, for tensor cores."""
Residuals = tuple[Array, Array, Array]
"""Products of all evaluations (N, B, F), the first evaluation of a step, and the affine parameters (3, F)."""
# initial(key, inputs, outputs) -> weight (inputs, outputs) and bias (outputs,)
Initial = Callable[[Array, int, int], tuple[Array, Array]]


def small_normal(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Weights of standard deviation 0.02, no bias: the world model's."""
    return 0.02 * jax.random.normal(key, (inputs, outputs)), jnp.zeros(outputs)


def zeros_init(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Zero weights and bias."""
    del key
    return jnp.zeros((inputs, outputs)), jnp.zeros(outputs)


def orthogonal(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Orthogonal with gain √2, no bias: the critics'."""
    initializer = jax.nn.initializers.orthogonal(2**0.5)
    # Sequential: on a CPU, JAX 0.10 factorises the matrices of a batch in its thread pool and waits in one of these
    # threads. As many concurrent batches as there are threads deadlock.
    weight = jax.custom_batching.sequential_vmap(lambda key: initializer(key, (inputs, outputs)))
    return weight(key), jnp.zeros(outputs)


def uniform(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Weights and bias uniform within ±1/√inputs: the actor's."""
    reach = inputs**-0.5
    weight_key, bias_key = jax.random.split(key)
    weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-reach, maxval=reach)
    return weight, jax.random.uniform(bias_key, (outputs,), minval=-reach, maxval=reach)


def make_linear(key: Array, shape: tuple[int, int], initial: Initial, dtype: Any) -> Linear:
    """A linear layer with these initial weights."""
    layer = Linear(key, *shape, dtype)
    return eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, initial(key, *shape))


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift; all in float32."""

    scale: Array
    shift: Array

    def __init__(self, size: int) -> None:
        self.scale, self.shift = jnp.ones(size), jnp.zeros(size)

    def __call__(self, x: Array) -> Array:
        return scaled(normalised(x), self.scale, self.shift)


@jax.custom_vjp
def scaled(x: Array, scale: Array, shift: Array) -> Array:
    """x·scale + shift."""
    return x * scale + shift


def _scaled_forward(x: Array, scale: Array, shift: Array) -> tuple[Array, tuple[Array, Array]]:
    return scaled(x, scale, shift), (x, scale)


def _scaled_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, scale = residuals
    return gradient * scale, *scale_gradient(x, gradient)


scaled.defvjp(_scaled_forward, _scaled_backward)


@jax.custom_vjp
def normalised(x: Array) -> Array:
    """Zero mean and unit variance over the last axis, in float32."""
    mean, inverse = _statistics(x)
    return (x.astype(jnp.float32) - mean) * inverse


def _statistics(x: Array) -> tuple[Array, Array]:
    """Mean and inverse deviation (..., 1), in float32."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    # Two consecutive means become a single kernel on a GPU; two simultaneous sums over the same row do not.
    return mean, jax.lax.rsqrt(jnp.square(wide - mean).mean(-1, keepdims=True) + EPSILON)


def _normalised_forward(x: Array) -> tuple[Array, Array]:
    return normalised(x), x


def _normalised_backward(x: Array, gradient: Array) -> tuple[Array]:
    """The gradient without its mean and its component along the output; again one mean after the other."""
    mean, inverse = _statistics(x)
    normal = (x.astype(jnp.float32) - mean) * inverse
    level = gradient - gradient.mean(-1, keepdims=True)
    return ((inverse * (level - normal * (level * normal).mean(-1, keepdims=True))).astype(x.dtype),)


normalised.defvjp(_normalised_forward, _normalised_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def norm_mish(y: Array, affine: Array, order: Order) -> Array:
    """LayerNorm and, unless `order` is "norm", Mish of a product; only the product is saved for the backward pass.

    affine: the bias of the product, scale and shift of the norm, (3, F).
    """
    if has_kernel(order):
        return fused.output(y, affine, EPSILON, order)
    assert order != "mish_then_norm"
    bias, scale, shift = affine
    return _activated(normalised(y + bias.astype(y.dtype)) * scale + shift, y.dtype, order)


def has_kernel(order: Order) -> bool:
    """Whether the forward pass of this order has a fused kernel that can run; the backward pass has one for each."""
    return order != "norm" and can_run_kernels()


def _activated(normal: Array, dtype: Any, order: Order) -> Array:
    return normal if order == "norm" else mish(normal).astype(dtype)


def _norm_mish_forward(y: Any, affine: Any, order: Order) -> tuple[Array, tuple[Array, Array, tuple[()] | None]]:
    # The structure of the residuals encodes whether the affine parameters need gradients.
    learns = () if affine.perturbed else None
    return norm_mish(y.value, affine.value, order), (y.value, affine.value, learns)


def _norm_mish_backward(
    order: Order, residuals: tuple[Array, Array, tuple[()] | None], cotangent: Array
) -> tuple[Array, Array | None]:
    y, affine, learns = residuals
    if can_run_kernels():
        return fused.gradients(y, affine, cotangent, EPSILON, order, learns is not None)
    # Without the barrier the compiler reuses values of the forward pass and keeps them in float32.
    bias, scale, shift = affine
    y = jax.lax.optimization_barrier(y) + bias.astype(y.dtype)
    _, pull_back = jax.vjp(lambda y: _activated(normalised(y) * scale + shift, y.dtype, order), y)
    # Without this one the sum would need a wider copy.
    (at_product,) = jax.lax.optimization_barrier(pull_back(cotangent))
    if learns is None:
        return at_product, None
    at_bias = at_product.sum(range(y.ndim - 1), dtype=jnp.float32)
    return at_product, jnp.stack([at_bias, *_scale_gradients(y, (scale, shift), cotangent, order)])


norm_mish.defvjp(_norm_mish_forward, _norm_mish_backward, symbolic_zeros=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def replay(
    y: Array, gradients: LayerGradients, residuals: Residuals, offset: int, order: Order
) -> tuple[Array, LayerGradients]:
    """Output of the recorded product, and the gradient buffers unchanged; `y` need not be computed.

    The backward pass writes the gradient of the product into the buffers and adds those of the affine parameters.
    """
    del y
    products, first, affine = residuals
    return norm_mish(read_row(products, first + offset), affine, order), gradients


def _replay_forward(
    y: Array, gradients: LayerGradients, residuals: Residuals, offset: int, order: Order
) -> tuple[tuple[Array, LayerGradients], Residuals]:
    return replay(y, gradients, residuals, offset, order), residuals


def _replay_backward(
    offset: int, order: Order, residuals: Residuals, cotangent: tuple[Array, LayerGradients]
) -> tuple[Array, LayerGradients, None]:
    (products, first, affine), (at_output, gradients) = residuals, cotangent
    index = BufferIndex(first, offset)
    # Only networks with the norm first are recorded (`Normed.record`); their kernel has no other order.
    assert order != "mish_then_norm"
    if can_run_kernels():
        return *fused.recorded_gradient(products, affine, at_output, EPSILON, gradients, index, order), None
    at_product, sums = _norm_mish_backward(order, (read_row(products, index.row), affine, ()), at_output)
    assert sums is not None
    written = write_row(gradients.product, at_product, index.row)
    return at_product, LayerGradients(written, gradients.sums + sums), None


replay.defvjp(_replay_forward, _replay_backward)


def _scale_gradients(y: Array, norm: Sequence[Array], cotangent: Array, order: Order) -> tuple[Array, Array]:
    """Gradients of scale and shift, which are `norm`, from products with their bias added."""
    # After the barrier everything is elementwise, so nothing of the size of `y` is kept in float32.
    mean, inverse = jax.lax.optimization_barrier(_moments(y))
    normal = (y.astype(jnp.float32) - mean) * inverse
    output, pull_back = jax.vjp(lambda x: _activated(x, y.dtype, order), normal * norm[0] + norm[1])
    return scale_gradient(normal, *pull_back(cotangent.astype(output.dtype)))


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and inverse deviation (..., 1), in float32, from a single pass over many rows."""
    wide = x.astype(jnp.float32)
    both = jax.lax.complex(wide, wide * wide).mean(-1, keepdims=True)
    return both.real, jax.lax.rsqrt(jnp.maximum(both.imag - both.real**2, 0.0) + EPSILON)


class Normed(eqx.Module):
    """Linear, then LayerNorm and Mish in the given order; `norm` leaves Mish out.

    stacked: its affine parameters (3, F), for a loop that would stack them in every step; None: stacked when needed.
    """

    linear: Linear
    norm: LayerNorm
    order: Order = eqx.field(static=True)
    stacked: Array | None = None

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        y = in_rows(self.linear.product(x))
        return in_rows(self.finish(y)) if tape is None else tape.finish(self, y)

    @property
    def affine(self) -> Array:
        """What is added to the product, and the LayerNorm's scale and shift, (3, F)."""
        assert self.linear.bias is not None
        if self.stacked is not None:
            return self.stacked
        return jnp.stack([self.linear.bias, self.norm.scale, self.norm.shift])

    def finish(self, y: Array) -> Array:
        """Output for a product."""
        if self.order != "mish_then_norm" or has_kernel(self.order):
            return norm_mish(y, self.affine, self.order)
        assert self.linear.bias is not None
        y = y + self.linear.bias.astype(y.dtype)
        return self.norm(mish(y.astype(jnp.float32))).astype(y.dtype)

    def record(self, y: Array, activations: LayerActivations, index: BufferIndex) -> tuple[Array, LayerActivations]:
        """Output for the product `y`, and the activation buffers with this evaluation written."""
        assert self.order != "mish_then_norm"
        if has_kernel(self.order) and activations.output is not None:
            buffers = (activations.product, activations.output)
            output, written = fused.recorded_output(y, self.affine, EPSILON, buffers, index)
            return output, LayerActivations(*written)
        output = self.finish(y)
        outputs = None if activations.output is None else write_row(activations.output, output, index.row)
        return output, LayerActivations(write_row(activations.product, y, index.row), outputs)

    def replay(
        self, y: Array, activations: LayerActivations, gradients: LayerGradients, index: BufferIndex
    ) -> tuple[Array, LayerGradients]:
        """Output of a recorded evaluation. The backward pass writes into the gradient buffers."""
        assert self.order != "mish_then_norm"
        return replay(y, gradients, (activations.product, index.first, self.affine), index.offset, self.order)

    def activation_buffers(self, like: Array, evaluations: int, rows: int) -> Array:
        """Buffer for the products of `evaluations` evaluations; batched under vmap if `like` is."""
        shape = (rows, self.norm.scale.shape[-1])
        return uninitialised(like, evaluations, jax.ShapeDtypeStruct(shape, self.linear.dtype))

    def gradient_buffers(self, like: Array, evaluations: int, rows: int) -> LayerGradients:
        """Buffers for their cotangents, and zero sums."""
        features = self.norm.scale.shape[-1]
        parts = fused.partial_sums(rows, features) if can_run_kernels() else 1
        sums = jnp.zeros((parts, len(fused.LAYER_NORM), features))
        return LayerGradients(self.activation_buffers(like, evaluations, rows), sums)


class NormedMLP(eqx.Module):
    """Hidden layers of one order and a last layer, linear or with a LayerNorm. (..., in) → (..., out) in float32."""

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
        """`initial`: initialisers of the hidden layers and of a linear last layer; None for one with a LayerNorm."""
        first, last = initial
        keys = jax.random.split(key, len(sizes))

        def normed(at: Array, shape: tuple[int, int], kind: Order) -> Normed:
            return Normed(make_linear(at, shape, first, dtype), LayerNorm(shape[1]), kind)

        pairs = itertools.pairwise(sizes)
        self.hidden = [normed(at, pair, order) for at, pair in zip(keys[:-1], pairs, strict=True)]
        shape = (sizes[-1], outputs)
        self.last = normed(keys[-1], shape, "norm") if last is None else make_linear(keys[-1], shape, last, dtype)

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        if tape is not None:
            x = tape.begin(x.astype(self.hidden[0].linear.dtype))
        for layer in self.hidden:
            x = layer(x, tape)
        if isinstance(self.last, Normed):
            return self.last(x, tape).astype(jnp.float32)
        y = self.last(x)
        return (y if tape is None else tape.last(y)).astype(jnp.float32)

    @property
    def inputs(self) -> int:
        """Input size."""
        return self.hidden[0].linear.weight.shape[0]

    def for_a_loop(self) -> "NormedMLP":
        """The same network with the affine parameters of each layer in one array."""

        def prepared(part: Any) -> Any:
            return replace(part, stacked=part.affine) if isinstance(part, Normed) else part

        made: NormedMLP = jax.tree.map(prepared, self, is_leaf=lambda part: isinstance(part, Normed))
        return made

    def in_compute_dtype(self) -> "NormedMLP":
        """The same network with weights already in their compute dtype, for scans without weight gradients.

        Its inputs are padded with zeros to a multiple of WHOLE.
        """

        def cast(linear: Any) -> Any:
            parts = (linear.weight.astype(linear.dtype), linear.bias.astype(linear.dtype))
            return eqx.tree_at(lambda layer: (layer.weight, layer.bias), linear, parts)

        network = eqx.tree_at(_linears, self, [cast(linear) for linear in _linears(self)])
        whole = eqx.tree_at(
            _first_weight, network, replace_fn=lambda weight: jnp.pad(weight, ((0, -self.inputs % WHOLE), (0, 0)))
        )
        return whole.for_a_loop()

    @property
    def normed(self) -> list[Normed]:
        """Layers that end in a norm."""
        return [*self.hidden, *([self.last] if isinstance(self.last, Normed) else [])]

    def activation_buffers(self, like: Array, evaluations: int, rows: int) -> list[LayerActivations]:
        """Buffers for the activations of each normed layer; outputs only if another layer follows."""

        def buffers(layer: Normed) -> LayerActivations:
            products, outputs = (layer.activation_buffers(like, evaluations, rows) for _ in range(2))
            return LayerActivations(products, None if layer is self.last else outputs)

        return [buffers(layer) for layer in self.normed]

    def gradient_buffers(self, like: Array, evaluations: int, rows: int) -> list[LayerGradients]:
        """Buffers for the gradients of each normed layer."""
        return [layer.gradient_buffers(like, evaluations, rows) for layer in self.normed]

    def taps(self, evaluations: int, rows: int) -> list[Array]:
        """Zeros that receive the gradients of a last layer without norm."""
        if isinstance(self.last, Normed):
            return []
        return [jnp.zeros((rows, self.last.weight.shape[-1]), self.last.dtype)] * evaluations

    def deferred(self, forward: ForwardRecord, backward: BackwardRecord) -> "NormedMLP":
        """Gradients of all parameters, from all evaluations (N, B, ...) of the network in its compute dtype."""
        inputs = [forward.inputs, *(each.output for each in forward.activations if each.output is not None)]
        products = [each.product for each in backward.normed]
        sums = [list(each.sums.sum(0)) for each in backward.normed]
        if backward.last is not None:
            products.append(backward.last)
            sums.append([backward.last.sum((0, 1), dtype=jnp.float32)])
        weights = [weight_gradient(x, product) for x, product in zip(inputs, products, strict=True)]
        gradients = [part for weight, others in zip(weights, sums, strict=True) for part in (weight, *others)]
        gradients[0] = gradients[0][: self.inputs]
        return eqx.tree_at(_parameters, eqx.filter(self, eqx.is_inexact_array), gradients)


def _first_weight(network: NormedMLP) -> Array:
    return network.hidden[0].linear.weight


def _linears(network: NormedMLP) -> list[Linear]:
    """The linear layers, in order."""
    return [layer.linear if isinstance(layer, Normed) else layer for layer in [*network.hidden, network.last]]


def _parameters(network: NormedMLP) -> list[Array]:
    """Weight and bias, then scale and shift, layer by layer."""
    found: list[Any] = []
    for layer in [*network.hidden, network.last]:
        linear = layer.linear if isinstance(layer, Normed) else layer
        found += [linear.weight, linear.bias]
        found += [layer.norm.scale, layer.norm.shift] if isinstance(layer, Normed) else []
    return found
