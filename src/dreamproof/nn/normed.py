"""Networks of TD-MPC2 (2024) and PWM (2024): linear layers with LayerNorm and Mish, in either order."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.jaxcore.devices import is_recent_gpu
from dreamproof.nn import fused
from dreamproof.nn.deferred import (
    Arrived,
    Made,
    Notes,
    Place,
    Recorded,
    Tape,
    blank,
    read,
    scale_gradient,
    weight_gradient,
    written,
)
from dreamproof.nn.fused import Affine
from dreamproof.nn.layers import Linear, in_rows
from dreamproof.nn.mish import mish

EPSILON = 1e-5
WHOLE = 32
"""Inputs of a lowered network are a multiple of this, which tensor cores take without padding."""
Order = Literal["norm_then_mish", "mish_then_norm", "norm"]
Kept = tuple[Array, Array, Affine]
"""What products made in all evaluations (N, B, F), where those of a step begin, and what the layer added to them."""
# initial(key, inputs, outputs) -> weight (inputs, outputs) and bias (outputs,)
Initial = Callable[[Array, int, int], tuple[Array, Array]]


def small_normal(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Weights of standard deviation 0.02, no bias: the world model's."""
    return 0.02 * jax.random.normal(key, (inputs, outputs)), jnp.zeros(outputs)


def zeros_init(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """All zero."""
    del key
    return jnp.zeros((inputs, outputs)), jnp.zeros(outputs)


def orthogonal(key: Array, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Orthogonal with gain √2, no bias: the critics'."""
    made = jax.nn.initializers.orthogonal(2**0.5)
    # One after the other: on a CPU, JAX 0.10 spreads the matrices of a batch over the threads it has and waits for them
    # in one of these threads. As many batches at once as there are threads wait for ever.
    weight = jax.custom_batching.sequential_vmap(lambda key: made(key, (inputs, outputs)))
    return weight(key), jnp.zeros(outputs)


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

    def __call__(self, x: Array) -> Array:
        return scaled(normalised(x), self.scale, self.shift)


@jax.custom_vjp
def scaled(x: Array, scale: Array, shift: Array) -> Array:
    """x·scale + shift."""
    return x * scale + shift


def _scaled_forward(x: Array, scale: Array, shift: Array) -> tuple[Array, tuple[Array, Array]]:
    return scaled(x, scale, shift), (x, scale)


def _scaled_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, scale = kept
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
    # Two means, one after the other, become a single kernel on a GPU; two sums at once over the same row do not.
    return mean, jax.lax.rsqrt(jnp.square(wide - mean).mean(-1, keepdims=True) + EPSILON)


def _normalised_forward(x: Array) -> tuple[Array, Array]:
    return normalised(x), x


def _normalised_backward(x: Array, gradient: Array) -> tuple[Array]:
    """The gradient without its mean and its share along what was made; again one mean after the other."""
    mean, inverse = _statistics(x)
    made = (x.astype(jnp.float32) - mean) * inverse
    level = gradient - gradient.mean(-1, keepdims=True)
    return ((inverse * (level - made * (level * made).mean(-1, keepdims=True))).astype(x.dtype),)


normalised.defvjp(_normalised_forward, _normalised_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def finished(y: Array, affine: Affine, order: Order) -> Array:
    """LayerNorm and, unless `order` leaves it out, Mish of a product; only that is kept for the backward pass."""
    if has_kernel(order):
        return fused.output(y, affine, EPSILON)
    bias, scale, shift = affine
    return _ended(normalised(y + bias.astype(y.dtype)) * scale + shift, y.dtype, order)


def has_kernel(order: Order) -> bool:
    """Whether there is a kernel for what follows the product, and a GPU for the kernel."""
    return order == "norm_then_mish" and fused.HAS_TRITON and is_recent_gpu()


def _ended(normal: Array, dtype: Any, order: Order) -> Array:
    return normal if order == "norm" else mish(normal).astype(dtype)


def _finished_forward(y: Any, affine: Any, order: Order) -> tuple[Array, tuple[Array, Affine, tuple[()] | None]]:
    # Whether anything of the layer learns is told by the shape of what is kept.
    learns = () if any(part.perturbed for part in affine) else None
    y, affine = y.value, tuple(part.value for part in affine)
    return finished(y, affine, order), (y, affine, learns)


def _finished_backward(
    order: Order, kept: tuple[Array, Affine, tuple[()] | None], arrived: Array
) -> tuple[Array, Affine | None]:
    y, affine, learns = kept
    if has_kernel(order):
        if learns is None:
            return fused.gradient(y, affine, arrived, EPSILON), None
        return fused.gradient_and_sums(y, affine, arrived, EPSILON)
    # Behind the barrier nothing is found to be the same as on the way there, which would be kept for it in float32.
    bias, scale, shift = affine
    y = jax.lax.optimization_barrier(y) + bias.astype(y.dtype)
    _, pull = jax.vjp(lambda y: _ended(normalised(y) * scale + shift, y.dtype, order), y)
    # This one keeps the sum from asking for a wider copy.
    (at_product,) = jax.lax.optimization_barrier(pull(arrived))
    if learns is None:
        return at_product, None
    at_bias = at_product.sum(range(y.ndim - 1), dtype=jnp.float32)
    return at_product, (at_bias, *_scale_gradients(y, (scale, shift), arrived, order))


finished.defvjp(_finished_forward, _finished_backward, symbolic_zeros=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def recalled(y: Array, notes: Notes, kept: Kept, ahead: int, order: Order) -> tuple[Array, Notes]:
    """What followed the product that was made `ahead` of a place, and notes as they are; `y` need not be computed.

    On the way back the gradient at the product is written into the notes, and those of the affine parts are added.
    """
    del y
    made, first, affine = kept
    return finished(read(made, first + ahead), affine, order), notes


def _recalled_forward(y: Array, notes: Notes, kept: Kept, ahead: int, order: Order) -> tuple[tuple[Array, Notes], Kept]:
    return recalled(y, notes, kept, ahead, order), kept


def _recalled_backward(ahead: int, order: Order, kept: Kept, arrived: tuple[Array, Notes]) -> tuple[Array, Notes, None]:
    (made, first, affine), (at_output, notes) = kept, arrived
    place = Place(first, ahead)
    if has_kernel(order):
        return *fused.noted_gradient(made, affine, at_output, EPSILON, notes, place), None
    at_product, sums = _finished_backward(order, (read(made, place.number), affine, ()), at_output)
    assert sums is not None
    added = (so_far + part for so_far, part in zip(notes[1:], sums, strict=True))
    return at_product, Notes(written(notes.product, at_product, place.number), *added), None


recalled.defvjp(_recalled_forward, _recalled_backward)


def _scale_gradients(y: Array, norm: Sequence[Array], arrived: Array, order: Order) -> tuple[Array, Array]:
    """The gradients of scale and shift, which are `norm`, from products behind their bias."""
    # Behind the barrier all is done number by number, so that nothing of the size of `y` is kept in float32.
    mean, inverse = jax.lax.optimization_barrier(_moments(y))
    normal = (y.astype(jnp.float32) - mean) * inverse
    made, pull = jax.vjp(lambda x: _ended(x, y.dtype, order), normal * norm[0] + norm[1])
    return scale_gradient(normal, *pull(arrived.astype(made.dtype)))


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and inverse deviation (..., 1), in float32, from a single pass over many rows."""
    wide = x.astype(jnp.float32)
    both = jax.lax.complex(wide, wide * wide).mean(-1, keepdims=True)
    return both.real, jax.lax.rsqrt(jnp.maximum(both.imag - both.real**2, 0.0) + EPSILON)


class Normed(eqx.Module):
    """Linear, then LayerNorm and Mish in the given order; `norm` leaves Mish out."""

    linear: Linear
    norm: LayerNorm
    order: Order = eqx.field(static=True)

    def __call__(self, x: Array, tape: Tape | None = None) -> Array:
        y = in_rows(self.linear.product(x))
        return in_rows(self.finish(y)) if tape is None else tape.finish(self, y)

    @property
    def affine(self) -> Affine:
        """What is added to the product, and the LayerNorm's scale and shift."""
        assert self.linear.bias is not None
        return self.linear.bias, self.norm.scale, self.norm.shift

    def finish(self, y: Array) -> Array:
        """What follows the product."""
        if self.order != "mish_then_norm":
            return finished(y, self.affine, self.order)
        y = y + self.affine[0].astype(y.dtype)
        return self.norm(mish(y.astype(jnp.float32))).astype(y.dtype)

    def noted(self, y: Array, made: Made, place: Place) -> tuple[Array, Made]:
        """What follows the product, and what was made so far with this in its place."""
        assert self.order != "mish_then_norm"
        if has_kernel(self.order) and made.output is not None:
            output, notes = fused.noted_output(y, self.affine, EPSILON, (made.product, made.output), place)
            return output, Made(*notes)
        output = self.finish(y)
        kept = None if made.output is None else written(made.output, output, place.number)
        return output, Made(written(made.product, y, place.number), kept)

    def recalled(self, y: Array, made: Made, notes: Notes, place: Place) -> tuple[Array, Notes]:
        """What followed the product that was made there. On the way back gradients are written into the notes."""
        assert self.order != "mish_then_norm"
        return recalled(y, notes, (made.product, place.first, self.affine), place.ahead, self.order)

    def room(self, witness: Array, evaluations: int, rows: int) -> Array:
        """Memory for the products of so many evaluations; for all replicas' where the witness is of many."""
        shape = (rows, self.norm.scale.shape[-1])
        return blank(witness, evaluations, jax.ShapeDtypeStruct(shape, self.linear.dtype))

    def room_for_notes(self, witness: Array, evaluations: int, rows: int) -> Notes:
        """The same for what arrives there, and sums of nothing."""
        shares = fused.noted_shares(rows) if has_kernel(self.order) else 1
        sums = (jnp.zeros((shares, self.norm.scale.shape[-1])) for _ in self.affine)
        return Notes(self.room(witness, evaluations, rows), *sums)


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
        """Numbers of one input."""
        return self.hidden[0].linear.weight.shape[0]

    def lowered(self) -> "NormedMLP":
        """The same with its products' weights in their precision already, for scans in which they take no gradient.

        It takes zeros behind its inputs, up to a multiple of WHOLE.
        """

        def cast(linear: Any) -> Any:
            parts = (linear.weight.astype(linear.dtype), linear.bias.astype(linear.dtype))
            return eqx.tree_at(lambda made: (made.weight, made.bias), linear, parts)

        made = eqx.tree_at(_linears, self, [cast(linear) for linear in _linears(self)])
        return eqx.tree_at(
            _first_weight, made, replace_fn=lambda weight: jnp.pad(weight, ((0, -self.inputs % WHOLE), (0, 0)))
        )

    @property
    def normed(self) -> list[Normed]:
        """Layers that end in a norm."""
        return [*self.hidden, *([self.last] if isinstance(self.last, Normed) else [])]

    def room(self, witness: Array, evaluations: int, rows: int) -> list[Made]:
        """Memory for what each normed layer makes; outputs are asked for where another layer follows."""
        told = (witness, evaluations, rows)
        return [Made(layer.room(*told), None if layer is self.last else layer.room(*told)) for layer in self.normed]

    def room_for_notes(self, witness: Array, evaluations: int, rows: int) -> list[Notes]:
        """Memory for what arrives at each."""
        return [layer.room_for_notes(witness, evaluations, rows) for layer in self.normed]

    def taps(self, evaluations: int, rows: int) -> list[Array]:
        """Where gradients arrive at the products of a last layer without norm."""
        if isinstance(self.last, Normed):
            return []
        return [jnp.zeros((rows, self.last.weight.shape[-1]), self.last.dtype)] * evaluations

    def deferred(self, recorded: Recorded, arrived: Arrived) -> "NormedMLP":
        """The gradients of all parameters, from all evaluations (N, B, ...) of the lowered network."""
        given = [recorded.given, *(made.output for made in recorded.made if made.output is not None)]
        products = [notes.product for notes in arrived.normed]
        sums = [[shares.sum(0) for shares in notes[1:]] for notes in arrived.normed]
        if arrived.last is not None:
            products.append(arrived.last)
            sums.append([arrived.last.sum((0, 1), dtype=jnp.float32)])
        weights = [weight_gradient(x, product) for x, product in zip(given, products, strict=True)]
        gradients = [part for weight, others in zip(weights, sums, strict=True) for part in (weight, *others)]
        gradients[0] = gradients[0][: self.inputs]
        return eqx.tree_at(_parameters, eqx.filter(self, eqx.is_inexact_array), gradients)


def _first_weight(network: NormedMLP) -> Array:
    return network.hidden[0].linear.weight


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
