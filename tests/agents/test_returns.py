"""Returns along a sequence, against their definitions written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.agents.normalisation import Spread, init_spread, update_spread
from dreamproof.agents.returns import discount_weights, discounted_min, lambda_returns

STEPS = 4


@pytest.fixture(scope="module")
def sequence() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards and discounts of four steps of two sequences, and five values."""
    random = np.random.default_rng(0)
    rewards, discounts = random.normal(size=(STEPS, 2)), random.uniform(0.5, 1.0, (STEPS, 2))
    return rewards, random.normal(size=(STEPS + 1, 2)), discounts


def step_returns(rewards: np.ndarray, values: np.ndarray, discounts: np.ndarray, start: int, steps: int) -> np.ndarray:
    """Rewards of `steps` steps from `start`, then the value: what an n-step return is."""
    total, weight = np.zeros(2), np.ones(2)
    for index in range(start, start + steps):
        total, weight = total + weight * rewards[index], weight * discounts[index]
    return total + weight * values[start + steps]


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 0.95, 1.0])
def test_lambda_returns_are_the_mixture_of_all_step_returns(sequence: tuple[np.ndarray, ...], lambda_: float) -> None:
    rewards, values, discounts = sequence
    expected = np.zeros((STEPS, 2))
    for start in range(STEPS):
        left = STEPS - start
        weights = [(1 - lambda_) * lambda_ ** (steps - 1) for steps in range(1, left)] + [lambda_ ** (left - 1)]
        mixture = [step_returns(rewards, values, discounts, start, steps) for steps in range(1, left + 1)]
        expected[start] = sum(weight * value for weight, value in zip(weights, mixture, strict=True))
    got = lambda_returns(*(jnp.asarray(part, jnp.float32) for part in sequence), lambda_)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_nothing_after_a_termination_counts() -> None:
    rewards, values = jnp.array([1.0, 2.0, 4.0]), jnp.array([9.0, 9.0, 9.0, 9.0])
    got = lambda_returns(rewards, values, jnp.array([1.0, 0.0, 1.0]), 1.0)
    np.testing.assert_allclose(got, [3.0, 2.0, 13.0])


def test_returns_of_sequences_of_unequal_length_are_refused() -> None:
    with pytest.raises(AssertionError):
        lambda_returns(jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), 0.9)


def test_weights_are_products_of_the_discounts_before() -> None:
    np.testing.assert_allclose(discount_weights(jnp.array([0.5, 0.2, 0.9])), [1.0, 0.5, 0.1], rtol=1e-6)


def test_the_discounted_least_margin_by_hand() -> None:
    margins = jnp.array([0.4, 0.1, 0.3])
    # y2 = 0.3; y1 = 0.5·0.1 + 0.5·min(0.1, 0.3) = 0.1; y0 = 0.5·0.4 + 0.5·min(0.4, 0.1) = 0.25
    np.testing.assert_allclose(discounted_min(margins, 0.5), [0.25, 0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(discounted_min(margins, 1.0), [0.1, 0.1, 0.3], rtol=1e-6)
    np.testing.assert_allclose(discounted_min(margins, 0.0), margins, rtol=1e-6)


def test_a_spread_follows_the_percentiles_and_its_scale_is_never_below_one() -> None:
    values = jnp.linspace(0.0, 100.0, 1001)
    once = update_spread(init_spread(), values, rate=0.01)
    assert (float(once.low), float(once.high)) == pytest.approx((0.05, 0.95), rel=1e-4)
    assert float(once.scale) == 1.0
    many = jax.lax.fori_loop(0, 2000, lambda _, spread: update_spread(spread, values), init_spread())
    assert float(many.scale) == pytest.approx(90.0, rel=1e-3)
    assert float(Spread(jnp.asarray(3.0), jnp.asarray(3.5)).scale) == 1.0
