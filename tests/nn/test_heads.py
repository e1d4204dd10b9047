"""Distributions: inverses, exact zeros, divergences against sums and integrals, straight-through gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.nn.heads import (
    Categoricals,
    Normal,
    TwoHot,
    bernoulli_nll,
    bounded_normal,
    pinball_loss,
    symexp,
    symlog,
)

TWO_HOT = TwoHot.make(21, 5.0)


def test_symexp_undoes_symlog() -> None:
    values = jnp.array([-1e4, -3.0, -1e-3, 0.0, 1e-3, 0.7, 42.0, 1e4])
    np.testing.assert_allclose(symexp(symlog(values)), values, rtol=1e-5, atol=1e-7)
    assert float(symlog(jnp.array(np.e - 1.0))) == pytest.approx(1.0)


def test_bins_are_symmetric_and_hold_zero_and_the_reach() -> None:
    bins = np.asarray(TWO_HOT.bins)
    np.testing.assert_array_equal(bins, -bins[::-1])
    assert bins[10] == 0.0
    assert bins[-1] == pytest.approx(np.expm1(5.0), rel=1e-6)
    assert (np.diff(bins) > 0).all()


def test_numbers_come_back_from_their_two_hot() -> None:
    random = np.random.default_rng(0).uniform(-147, 147, 500)
    values = np.concatenate([random, random / 100, np.asarray(TWO_HOT.bins)]).astype(np.float32)
    weights = TWO_HOT.encode(jnp.asarray(values))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
    assert int((weights > 0).sum(-1).max()) <= 2
    np.testing.assert_allclose(TWO_HOT.decode(jnp.log(weights + 1e-30)), values, rtol=1e-4, atol=1e-4)


def test_a_number_beyond_the_reach_becomes_the_outermost_bin() -> None:
    weights = np.asarray(TWO_HOT.encode(jnp.array([1e6, -1e6])))
    assert weights[0, -1] == weights[1, 0] == 1.0


def test_flat_logits_mean_exactly_zero() -> None:
    flat = jnp.stack([jnp.zeros(21), jnp.full(21, 3.7), jnp.full(21, -1e3)])
    np.testing.assert_array_equal(TWO_HOT.decode(flat), np.zeros(3))
    np.testing.assert_array_equal(TwoHot.make(101, 5.0).decode(jnp.full(101, 0.1)), 0.0)


def test_the_two_hot_loss_is_least_at_the_target_itself() -> None:
    target = jnp.asarray(1.3)
    logits = jnp.log(TWO_HOT.encode(target) + 1e-12)
    least = TWO_HOT.loss(logits, target)
    for seed in range(5):
        moved = logits + 0.5 * jax.random.normal(jax.random.key(seed), logits.shape)
        assert float(TWO_HOT.loss(moved, target)) > float(least)


def test_an_even_number_of_bins_is_refused() -> None:
    with pytest.raises(AssertionError):
        TwoHot.make(20, 5.0)


def test_the_divergence_of_normals_is_the_integral() -> None:
    one, other = Normal(jnp.array([0.3]), jnp.array([0.7])), Normal(jnp.array([-0.4]), jnp.array([1.2]))
    grid = jnp.linspace(-8, 8, 20001)[:, None]
    log_one, log_other = one.log_probability(grid), other.log_probability(grid)
    integral = np.trapezoid(np.exp(log_one) * (log_one - log_other), np.asarray(grid[:, 0]))
    assert float(one.kl(other)) == pytest.approx(float(integral), rel=1e-3)
    assert float(one.kl(one)) == 0.0


def test_the_entropy_of_a_normal_is_the_integral_and_sums_over_the_last_axis() -> None:
    normal = Normal(jnp.array([0.3]), jnp.array([0.7]))
    grid = jnp.linspace(-6, 6, 20001)[:, None]
    log_density = normal.log_probability(grid)
    integral = -np.trapezoid(np.exp(log_density) * log_density, np.asarray(grid[:, 0]))
    assert float(normal.entropy()) == pytest.approx(float(integral), rel=1e-3)
    pair = Normal(jnp.array([0.3, 0.3]), jnp.array([0.7, 0.7]))
    assert float(pair.entropy()) == pytest.approx(2 * float(integral), rel=1e-3)


def test_the_divergence_of_categoricals_is_the_sum_over_all_outcomes() -> None:
    logits = jax.random.normal(jax.random.key(0), (2, 6))
    one, other = (Categoricals.make(row, groups=2, uniform_mix=0.01) for row in logits)
    first, second = np.exp(one.log_probabilities), np.exp(other.log_probabilities)
    # Joint probabilities of the nine outcomes of two independent draws.
    joint = [(np.prod(p), np.prod(q)) for p, q in _outcomes(first, second)]
    assert sum(p for p, _ in joint) == pytest.approx(1.0, abs=1e-5)
    assert float(one.kl(other)) == pytest.approx(sum(p * np.log(p / q) for p, q in joint), rel=1e-4)


def _outcomes(first: np.ndarray, second: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    groups = np.arange(2)
    picks = [np.array([a, b]) for a in range(3) for b in range(3)]
    return [(first[groups, pick], second[groups, pick]) for pick in picks]


def test_no_class_of_a_categorical_ever_dies() -> None:
    certain = Categoricals.make(jnp.array([1e4, 0.0, 0.0, 0.0]), groups=1, uniform_mix=0.04)
    np.testing.assert_allclose(np.exp(certain.log_probabilities)[0], [0.97, 0.01, 0.01, 0.01], rtol=1e-5)


def test_samples_of_categoricals_are_one_hot_and_as_frequent_as_they_should_be() -> None:
    logits = jnp.log(jnp.array([0.7, 0.2, 0.1]))
    many = Categoricals.make(jnp.tile(logits, (4000, 1)), groups=1, uniform_mix=0.0)
    drawn = np.asarray(many.sample(jax.random.key(1)))[:, 0]
    np.testing.assert_allclose(np.sort(drawn, axis=-1)[:, -1], 1.0, atol=1e-6)
    np.testing.assert_allclose(drawn.mean(0), [0.7, 0.2, 0.1], atol=0.03)


def test_the_gradient_of_a_sample_is_that_of_its_probabilities() -> None:
    weights = jnp.arange(6.0).reshape(2, 3)

    def by_sample(logits: jax.Array) -> jax.Array:
        return (Categoricals.make(logits, 2, 0.01).sample(jax.random.key(2)) * weights).sum()

    def by_probability(logits: jax.Array) -> jax.Array:
        return (jnp.exp(Categoricals.make(logits, 2, 0.01).log_probabilities) * weights).sum()

    logits = jax.random.normal(jax.random.key(3), (6,))
    np.testing.assert_allclose(jax.grad(by_sample)(logits), jax.grad(by_probability)(logits), rtol=1e-5, atol=1e-6)
    assert float(jnp.abs(jax.grad(by_sample)(logits)).sum()) > 0


def test_a_policy_head_keeps_mean_and_sigma_within_their_bounds() -> None:
    outputs = jnp.array([[1e3, 1e3], [-1e3, -1e3], [0.0, 0.0]])
    policy = bounded_normal(outputs, 0.1, 1.0)
    np.testing.assert_allclose(policy.mean[:, 0], [1.0, -1.0, 0.0])
    np.testing.assert_allclose(policy.std[:2, 0], [1.0, 0.1], atol=1e-6)


@pytest.mark.parametrize("logit", [-30.0, -1.0, 0.0, 2.0, 30.0])
def test_the_bernoulli_nll_is_a_cross_entropy_that_does_not_overflow(logit: float) -> None:
    for target in (0.0, 0.3, 1.0):
        expected = -target * np.log(1 / (1 + np.exp(-logit))) - (1 - target) * np.log(1 / (1 + np.exp(logit)))
        assert float(bernoulli_nll(jnp.asarray(logit), jnp.asarray(target))) == pytest.approx(expected, abs=1e-5)
    assert np.isfinite(float(bernoulli_nll(jnp.asarray(1e4), jnp.asarray(0.0))))


def test_the_pinball_loss_is_least_at_the_quantile() -> None:
    targets = jnp.linspace(0, 1, 1001)
    grid = np.linspace(0, 1, 101)
    losses = [float(pinball_loss(jnp.asarray(point), targets, 0.2).mean()) for point in grid]
    assert grid[int(np.argmin(losses))] == pytest.approx(0.2, abs=0.011)
