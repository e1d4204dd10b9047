"""The flat Adam: equal to the published algorithm, clipped, warmed up, and unchanged by non-finite gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn.layers import Linear
from dreamproof.nn.optimiser import AdamState, adam_step, flat_adam_step, flat_parameters, follow, init_adam

RATE = 0.01
GRADIENTS = jax.random.normal(jax.random.key(0), (20, 3, 2))


def test_steps_equal_algorithm_1_of_adam_with_a_warm_up() -> None:
    """Kingma & Ba (2015), in float64."""
    expected, first, second = np.ones((3, 2)), np.zeros((3, 2)), np.zeros((3, 2))
    ours = jnp.ones((3, 2))
    state = init_adam(ours)
    for count, gradient in enumerate(np.asarray(GRADIENTS, np.float64), start=1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        unbiased = first / (1 - 0.9**count), second / (1 - 0.999**count)
        expected = expected - RATE * min(1.0, count / 500.0) * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        step = adam_step(ours, jnp.asarray(gradient, jnp.float32), state, RATE, clip=1e9)
        ours, state = step.model, step.state
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
    assert int(state.steps) == 20


def test_steps_of_a_vector_are_those_of_the_model_it_stands_for() -> None:
    model = Linear(jax.random.key(0), 3, 2)
    flat, whole = flat_parameters(model)
    state = flat_state = init_adam(model)
    for gradient in GRADIENTS[:3]:
        gradients = eqx.tree_at(lambda made: made.weight, eqx.filter(model, eqx.is_inexact_array), gradient)
        step = adam_step(model, gradients, state, RATE, clip=1.0)
        flat_step = flat_adam_step(flat, gradients, flat_state, RATE, clip=1.0)
        (model, state), (flat, flat_state) = step[:2], flat_step[:2]
    assert eqx.tree_equal(whole(flat), model)


def test_after_the_warm_up_the_whole_rate_counts() -> None:
    state = AdamState(jnp.zeros(1), jnp.zeros(1), jnp.asarray(10_000))
    # Moments start at zero but the count is high: the step is rate · 0.1 / sqrt(0.001).
    step = adam_step(jnp.zeros(1), jnp.ones(1), state, RATE, clip=1e9)
    assert float(step.model[0]) == pytest.approx(-RATE * 0.1 / np.sqrt(0.001), rel=1e-3)


def test_a_long_gradient_is_shortened_to_the_clip_and_its_true_length_reported() -> None:
    gradient = jnp.array([30.0, 40.0])
    long, short = (
        adam_step(jnp.zeros(2), g, init_adam(jnp.zeros(2)), RATE, clip=5.0) for g in (gradient, gradient / 10)
    )
    np.testing.assert_allclose(long.state.first, short.state.first, rtol=1e-6)
    assert float(long.gradient_norm) == pytest.approx(50.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    model = Linear(jax.random.key(1), 3, 2)
    state = init_adam(model)._replace(steps=jnp.asarray(7))
    gradients = jax.tree.map(jnp.ones_like, eqx.filter(model, eqx.is_inexact_array))
    gradients = eqx.tree_at(lambda tree: tree.weight, gradients, gradients.weight.at[1, 1].set(bad))
    step = adam_step(model, gradients, state, RATE, clip=100.0)
    assert not bool(step.finite)
    jax.tree.map(
        np.testing.assert_array_equal,
        (eqx.filter(step.model, eqx.is_array), step.state),
        (eqx.filter(model, eqx.is_array), state),
    )


def test_the_rate_may_be_traced() -> None:
    moved = jax.vmap(lambda rate: adam_step(jnp.zeros(2), jnp.ones(2), init_adam(jnp.zeros(2)), rate, 100.0).model)(
        jnp.array([0.0, RATE, 2 * RATE])
    )
    np.testing.assert_allclose(moved[0], 0.0)
    np.testing.assert_allclose(moved[2], 2 * moved[1], rtol=1e-5)


def test_a_slow_copy_moves_by_its_fraction() -> None:
    slow, fast = Linear(jax.random.key(1), 2, 2), Linear(jax.random.key(2), 2, 2)
    moved = follow(slow, fast, 0.25)
    np.testing.assert_allclose(moved.weight, 0.75 * slow.weight + 0.25 * fast.weight, rtol=1e-5)
    assert moved.dtype is slow.dtype
