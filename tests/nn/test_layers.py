"""Layers: what they see of their input, how they start, and in which precision they work."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn.layers import (
    MLP,
    Dense,
    Linear,
    Norm,
    Plain,
    ensemble,
    in_compute_dtype,
    parameter_count,
    truncated_normal,
)


def test_a_dense_layer_sees_how_long_its_input_is() -> None:
    layer = Dense(jax.random.key(0), 2, 32)
    layer = eqx.tree_at(lambda made: made.affine, layer, layer.affine.at[0].set(0.1))
    near, far = layer(jnp.array([0.1, 0.0])), layer(jnp.array([1.0, 0.0]))
    assert float(jnp.abs(near - far).max()) > 0.1
    # Without the bias the norm would make them all but equal.
    blind = eqx.tree_at(lambda made: made.affine, layer, layer.affine.at[0].set(0.0))
    assert float(jnp.abs(blind(jnp.array([0.5, 0.0])) - blind(jnp.array([1.0, 0.0]))).max()) < 1e-2


def test_the_bias_of_a_dense_layer_is_learned() -> None:
    layer = Dense(jax.random.key(0), 2, 8)
    gradient = eqx.filter_grad(lambda made: (made(jnp.array([0.3, -0.2])) ** 2).sum())(layer)
    assert float(jnp.abs(gradient.affine[0]).max()) > 0


def test_a_norm_makes_the_mean_square_one_and_keeps_the_type() -> None:
    values = 50.0 * jax.random.normal(jax.random.key(1), (4, 64))
    np.testing.assert_allclose((Norm(64)(values) ** 2).mean(-1), 1.0, rtol=1e-3)
    assert Norm(64)(values.astype(jnp.bfloat16)).dtype == jnp.bfloat16


def test_initial_weights_have_the_declared_variance_and_no_outliers() -> None:
    weights = np.asarray(truncated_normal(jax.random.key(2), (200, 300), fan_in=200))
    assert weights.std() == pytest.approx(200**-0.5, rel=0.02)
    assert np.abs(weights).max() <= 2.3 * 200**-0.5


def test_an_output_scaled_to_zero_starts_at_zero() -> None:
    network = MLP(jax.random.key(3), (5, 16), 7, scale=0.0)
    np.testing.assert_array_equal(network(jnp.ones((2, 5))), np.zeros((2, 7)))


def test_products_run_in_the_given_type_but_outputs_are_float32() -> None:
    network = MLP(jax.random.key(4), (5, 16, 16), 7, jnp.bfloat16)
    assert network.hidden[0].linear.weight.dtype == jnp.float32
    assert network.hidden[0](jnp.ones(5)).dtype == jnp.bfloat16
    assert network(jnp.ones(5)).dtype == jnp.float32


def test_members_of_an_ensemble_differ_and_answer_as_if_alone() -> None:
    made = ensemble(lambda key: Linear(key, 3, 2), jax.random.key(5), 4)
    answers = eqx.filter_vmap(lambda member, x: member(x), in_axes=(0, None))(made, jnp.ones(3))
    assert answers.shape == (4, 2)
    assert len(np.unique(np.asarray(answers)[:, 0])) == 4
    alone = Linear(jax.random.split(jax.random.key(5), 4)[2], 3, 2)
    np.testing.assert_allclose(answers[2], alone(jnp.ones(3)), rtol=1e-6)


def test_parameters_are_counted() -> None:
    assert parameter_count(Linear(jax.random.key(0), 3, 2)) == 8
    assert parameter_count({"a": jnp.zeros((2, 2)), "steps": jnp.zeros((), jnp.int32)}) == 4


def test_inputs_that_rows_share_answer_as_if_every_row_held_them() -> None:
    network = Plain(jax.random.key(7), (5, 16, 1))
    own, shared = jax.random.normal(jax.random.key(8), (4, 6, 3)), jax.random.normal(jax.random.key(9), (4, 1, 2))
    wide = jnp.concatenate([own, jnp.broadcast_to(shared, (4, 6, 2))], axis=-1)
    np.testing.assert_allclose(network(own, shared), network(wide), rtol=1e-5, atol=1e-6)


def test_lowered_networks_answer_the_same_and_hold_what_their_products_take() -> None:
    network = MLP(jax.random.key(10), (5, 16), 7, jnp.bfloat16)
    low, values = in_compute_dtype(network), jax.random.normal(jax.random.key(11), (3, 5))
    assert low.hidden[0].linear.weight.dtype == jnp.bfloat16
    assert low.hidden[0].affine.dtype == jnp.float32
    np.testing.assert_array_equal(low(values), network(values))
