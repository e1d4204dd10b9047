"""Risk signals: the barrier by hand, the conformal rank, and what the ensemble's disagreement means."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.agents.certificate import certificate_pairs, certificate_scores, conformal_offset, min_margin_ahead
from dreamproof.agents.dreamer.risk import RiskModel, barrier_target, barrier_violation, uncertainty
from dreamproof.settings.dreamer import RiskSettings


@pytest.fixture(scope="module")
def risk() -> RiskModel:
    """Three members over features of four numbers and one action, predicting two observations and the margin."""
    outputs = eqx.filter_jit(lambda key: RiskModel(key, 4, (2, 1), RiskSettings(members=3, units=8), jnp.float32))
    return outputs(jax.random.key(0))


def test_the_barrier_violation_by_hand() -> None:
    # Far inside nothing counts, however fast; near the edge a fall faster than the decay counts; outside all counts.
    values = jnp.array([0.5, 0.2, 0.1, -0.1])
    # 0.5→0.2: above 0.15, nothing. 0.2→0.1: 0.8·0.2 − 0.1 = 0.06. 0.1→−0.1: 0.1 outside, 0.18 too fast.
    np.testing.assert_allclose(barrier_violation(values, 0.2), [0.0, 0.06, 0.28], atol=1e-6)


def test_a_barrier_that_decays_slowly_enough_violates_nothing() -> None:
    values = 0.14 * 0.8 ** jnp.arange(6)
    np.testing.assert_allclose(barrier_violation(values, 0.2), 0.0, atol=1e-7)
    assert float(barrier_violation(values, 0.1).min()) > 0


def test_the_barrier_target_by_hand_and_without_gradient() -> None:
    margin, later = jnp.array([0.4, 0.1]), jnp.array([0.2, 0.3])
    np.testing.assert_allclose(barrier_target(margin, later, 0.75), [0.25, 0.1], rtol=1e-6)
    assert float(jnp.abs(jax.grad(lambda x: barrier_target(margin, x, 0.75).sum())(later)).sum()) == 0.0


@pytest.mark.parametrize(("count", "miscoverage", "rank"), [(9, 0.1, 9), (19, 0.1, 18), (20, 0.1, 19), (99, 0.05, 95)])
def test_the_conformal_offset_is_the_score_of_the_right_rank(count: int, miscoverage: float, rank: int) -> None:
    shuffled = jax.random.permutation(jax.random.key(1), jnp.arange(1.0, count + 1))
    assert float(conformal_offset(shuffled, miscoverage)) == rank


def test_too_few_scores_promise_nothing() -> None:
    assert float(conformal_offset(jnp.arange(8.0), 0.1)) == np.inf


def test_members_that_agree_are_certain(risk: RiskModel) -> None:
    same = eqx.tree_at(
        lambda outputs: outputs.members,
        risk,
        jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), risk.members),
    )
    feature, action = jnp.ones((5, 4)), jnp.zeros((5, 1))
    residual = jnp.ones(3)
    agreed = uncertainty(same, feature, action, residual)
    assert float(agreed.epistemic.max()) == float(agreed.margin_std.max()) == 0.0
    epistemic = uncertainty(risk, feature, action, residual)
    assert float(epistemic.epistemic.min()) > 0
    assert float(epistemic.margin_std.min()) > 0


def test_uncertainty_is_measured_against_the_residual(risk: RiskModel) -> None:
    feature, action = jnp.ones((1, 4)), jnp.zeros((1, 1))
    variance = np.asarray(risk.predict(feature, action)).var(0)[0]
    residual = jnp.array([0.5, 0.1, 2.0])
    expected = 0.5 * np.log1p((variance / (np.asarray(residual) + 1e-4)).mean())
    assert float(uncertainty(risk, feature, action, residual).epistemic[0]) == pytest.approx(expected, rel=1e-5)


def test_the_prior_of_a_member_is_never_trained(risk: RiskModel) -> None:
    gradient = eqx.filter_grad(lambda outputs: (outputs.predict(jnp.ones((1, 4)), jnp.ones((1, 1))) ** 2).sum())(risk)
    prior = jax.tree.leaves(eqx.filter(gradient.members.prior, eqx.is_array))
    trained = jax.tree.leaves(eqx.filter(gradient.members.trained, eqx.is_array))
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in prior)
    assert max(float(jnp.abs(leaf).max()) for leaf in trained) > 0


def test_barrier_values_stay_within_half_a_metre(risk: RiskModel) -> None:
    values = risk.value(1e3 * jax.random.normal(jax.random.key(2), (50, 4)))
    assert float(jnp.abs(values).max()) <= 0.5


def test_the_least_margin_ahead_by_hand() -> None:
    margins = jnp.array([[0.4], [0.1], [0.3], [0.2], [0.5]])
    np.testing.assert_allclose(min_margin_ahead(margins, 0), margins)
    np.testing.assert_allclose(min_margin_ahead(margins, 2)[:, 0], [0.1, 0.1, 0.2, 0.2, 0.5])


def test_a_decision_is_judged_by_the_margins_from_its_own_moment_on() -> None:
    values = jnp.arange(6.0)[:, None]
    margins = jnp.array([[9.0], [8.0], [3.0], [7.0], [5.0], [6.0]])
    value, least = certificate_pairs(values, margins, 2)
    # Decision 1 is made where margin 0 was measured and sees the margins 0, 1 and 2.
    np.testing.assert_allclose(value[:, 0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(least[:, 0], [3.0, 3.0, 3.0])
    assert float(certificate_scores(values, margins, 2)[0]) in (-2.0, -1.0, 0.0)


def test_scores_come_from_other_decisions_in_other_episodes() -> None:
    values = jnp.broadcast_to(jnp.arange(60.0)[:, None], (60, 400))
    scores = np.asarray(certificate_scores(values, jnp.zeros((60, 400)), 40))
    assert scores.min() == 1.0 and scores.max() == 19.0
    assert len(np.unique(scores)) == 19
