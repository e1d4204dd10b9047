"""What follows a product: written in one piece, it has the values and gradients of its parts."""

import os
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn import normed
from dreamproof.nn.activations import mish
from dreamproof.nn.deferred import BufferIndex, LayerActivations, LayerGradients
from dreamproof.nn.normed import EPSILON, Normed, NormedMLP, make_linear, norm_mish, orthogonal, small_normal
from dreamproof.nn.normed import LayerNorm as Norm
from dreamproof.testing.waiting import HANG_SECONDS


def parts(y: jax.Array, affine: jax.Array, order: str) -> jax.Array:
    """The same in plain JAX, left to JAX to differentiate."""
    bias, scale, shift = affine
    y = (y + bias.astype(y.dtype)).astype(jnp.float32)
    normal = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + EPSILON) * scale + shift
    return normal if order == "norm" else mish(normal)


@pytest.mark.parametrize("order", ["norm", "norm_then_mish"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.bfloat16, 2e-2)])
def test_a_finished_product_has_the_gradients_of_its_parts(order: Any, dtype: Any, tolerance: float) -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    # A mean that is large beside the deviation is where a single pass over the rows would lose digits.
    y = (3.0 + jax.random.normal(keys[0], (4, 6, 16))).astype(dtype)
    affine = jnp.stack(
        [jax.random.normal(keys[1], (16,)), *(1.0 + 0.3 * jax.random.normal(key, (16,)) for key in keys[2:4])]
    )
    weight = jax.random.normal(keys[4], y.shape)

    def gradients(function: Any) -> Any:
        def total(y: jax.Array, affine: Any) -> jax.Array:
            return (weight * function(y, affine, order).astype(jnp.float32)).sum()

        return jax.tree.leaves(jax.jit(jax.value_and_grad(total, (0, 1)))(y, affine))

    for found, expected in zip(gradients(norm_mish), gradients(parts), strict=True):
        found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("order", ["norm_then_mish", "norm"])
@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("replicas", [None, 2])
def test_evaluations_are_written_down_and_so_are_their_gradients(
    kernel: bool, replicas: int | None, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(normed, "can_run_kernels", lambda: kernel)
    keys = jax.random.split(jax.random.key(1), 5)
    layer = Normed(make_linear(keys[0], (5, 8), small_normal, jnp.float32), Norm(8), order)
    moved = [0.1 * jax.random.normal(key, part.shape) + part for key, part in zip(keys[1:4], layer.affine, strict=True)]
    layer = eqx.tree_at(lambda made: (made.linear.bias, made.norm.scale, made.norm.shift), layer, tuple(moved))
    y, cotangent = jax.random.normal(keys[3], (3, 7, 8)), jax.random.normal(keys[4], (3, 7, 8))
    # The first place belongs to another step.
    first = jnp.asarray(1)

    def there_and_back(y: jax.Array, cotangent: jax.Array) -> Any:
        made = LayerActivations(jnp.zeros((4, 7, 8)), None if order == "norm" else jnp.zeros((4, 7, 8)))
        outputs = []
        for offset in range(3):
            output, made = layer.record(y[offset], made, BufferIndex(first, offset))
            outputs.append(output)

        def again(y: jax.Array, gradients: LayerGradients) -> Any:
            replay = []
            for offset in range(3):
                output, gradients = layer.replay(y[offset], made, gradients, BufferIndex(first, offset))
                replay.append(output)
            return jnp.stack(replay), gradients

        uninitialised = layer.gradient_buffers(y, 4, 7)._replace(product=jnp.zeros((4, 7, 8)))
        (once_more, _), pull = jax.vjp(again, jnp.zeros_like(y), uninitialised)
        at_y, gradients = pull((cotangent, uninitialised))
        return made, jnp.stack(outputs), once_more, at_y, (gradients.product, gradients.sums.sum(0))

    expected, pull = jax.vjp(lambda y, affine: normed.norm_mish(y, affine, order), y, layer.affine)
    at_product, sums = pull(cotangent)
    shifted = [jnp.concatenate([jnp.zeros((1, 7, 8)), part]) for part in (y, expected, at_product)]
    activations = LayerActivations(shifted[0], None if order == "norm" else shifted[1])
    wanted = (activations, expected, expected, at_product, (shifted[2], sums))
    if replicas is None:
        found = [jax.jit(there_and_back)(y, cotangent)]
    else:
        both = jax.jit(jax.vmap(there_and_back))(*(jnp.stack([part] * replicas) for part in (y, cotangent)))
        found = [jax.tree.map(lambda part, at=at: part[at], both) for at in range(replicas)]
    for one in found:
        for value, right in zip(jax.tree.leaves(one), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(value, right, rtol=2e-4, atol=2e-5)


def test_orthogonal_weights_of_replicas_are_those_that_each_would_have_alone() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.vmap(lambda key: orthogonal(key, 6, 4)[0])(keys)
    for key, weight in zip(keys, together, strict=True):
        np.testing.assert_allclose(weight, orthogonal(key, 6, 4)[0], atol=1e-6)
        np.testing.assert_allclose(weight.T @ weight, 2.0 * jnp.eye(4), atol=1e-5)


MANY_AT_ONCE = """
import jax
from dreamproof.nn.normed import orthogonal
many = jax.jit(jax.vmap(lambda key: [orthogonal(at, 64, 64)[0] for at in jax.random.split(key, 8)]))
for seed in range(5):
    jax.block_until_ready(many(jax.random.split(jax.random.key(seed), 4)))
"""


def test_many_orthogonal_weights_of_many_replicas_never_wait_for_each_other() -> None:
    # Batched by JAX 0.10 they stood still on two cores, every time.
    surroundings = {**os.environ, "JAX_PLATFORMS": "cpu", "PJRT_NPROC": "2"}
    subprocess.run([sys.executable, "-c", MANY_AT_ONCE], env=surroundings, check=True, timeout=HANG_SECONDS)


def test_a_recorded_gradient_of_the_other_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = jax.random.split(jax.random.key(3), 2)
    layer = NormedMLP(keys[0], (6, 16), 1, "mish_then_norm", (small_normal, small_normal)).hidden[0]
    y, index = jax.random.normal(keys[1], (5, 16)), BufferIndex(jnp.asarray(0), 0)
    monkeypatch.setattr(normed, "can_run_kernels", lambda: True)
    gradients, residuals = layer.gradient_buffers(y, 1, 5), (y[None], index.first, layer.affine)
    with pytest.raises(AssertionError):
        normed._replay_backward(0, "mish_then_norm", residuals, (y, gradients))


def test_critics_learn_the_same_with_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = jax.random.split(jax.random.key(2), 3)
    members = eqx.filter_vmap(
        lambda key: NormedMLP(key, (6, 16, 8), 1, "mish_then_norm", (small_normal, small_normal))
    )(jax.random.split(keys[0], 2))
    x, weight = jax.random.normal(keys[1], (2, 5, 6)), jax.random.normal(keys[2], (2, 5, 1))

    def learned() -> list[jax.Array]:
        def total(members: NormedMLP) -> jax.Array:
            return (weight * eqx.filter_vmap(lambda member, x: member(x))(members, x)).sum()

        return jax.tree.leaves(eqx.filter_value_and_grad(total)(members))

    expected = learned()
    monkeypatch.setattr(normed, "can_run_kernels", lambda: True)
    for found, wanted in zip(learned(), expected, strict=True):
        assert np.abs(wanted).max() > 0
        np.testing.assert_allclose(found, wanted, atol=3e-5 * np.abs(wanted).max(), rtol=1e-3)


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("order", ["norm_then_mish", "mish_then_norm"])
def test_a_network_prepared_for_a_loop_learns_the_same(
    kernel: bool, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = jax.random.split(jax.random.key(4), 3)
    network = NormedMLP(keys[0], (6, 16, 8), 4, order, (small_normal, small_normal))
    x, weight = jax.random.normal(keys[1], (3, 5, 6)), jax.random.normal(keys[2], (3, 5, 4))
    monkeypatch.setattr(normed, "can_run_kernels", lambda: kernel)

    def learned(is_prepared: bool) -> list[jax.Array]:
        def total(network: NormedMLP) -> jax.Array:
            made = network.for_a_loop() if is_prepared else network
            outputs = jax.lax.scan(lambda carry, x: (carry, made(x)), None, x)[1]
            return (weight * outputs).sum()

        return jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(total))(network))

    found, expected = learned(True), learned(False)
    assert len(found) == len(expected) and all(jnp.abs(part).max() > 0 for part in expected)
    for one, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-6 * float(jnp.abs(right).max()))
