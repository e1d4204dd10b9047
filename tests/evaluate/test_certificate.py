"""The certificate's promise: coverage by simulation, ranks and areas by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.agents.certificate import conformal_offset
from dreamproof.envs.episodes import Episodes
from dreamproof.evaluate.certificate import auroc, certified_rates, coverage
from dreamproof.evaluate.episodes import executed_facts


def offset(scores: np.ndarray, miscoverage: float) -> float:
    """The agent's own offset, as a number."""
    return float(conformal_offset(jnp.asarray(scores), miscoverage))


@pytest.mark.parametrize("miscoverage", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("count", [20, 100])
def test_coverage_of_exchangeable_scores_is_at_least_what_is_promised(miscoverage: float, count: int) -> None:
    random = np.random.default_rng(0)
    # Scores of any one distribution, here skewed and heavy-tailed, calibration and fresh ones alike.
    drawn = random.standard_t(3, (600, count + 50)) + random.exponential(1.0, (600, count + 50))
    covered = np.array([coverage(row[count:], offset(row[:count], miscoverage)) for row in drawn])
    error = 3 * covered.std() / np.sqrt(len(covered))
    assert covered.mean() >= 1 - miscoverage - error
    # And not for free: the promise is not kept by an offset that is far too careful.
    assert covered.mean() <= 1 - miscoverage + 1 / (count + 1) + error


def test_shifted_scores_are_not_covered() -> None:
    random = np.random.default_rng(1)
    made = offset(random.normal(0, 1, 200), 0.1)
    assert coverage(random.normal(3, 1, 500), made) < 0.3


def test_violations_are_counted_among_certified_decisions() -> None:
    values = np.array([[0.1, -0.1], [0.2, 0.05], [0.3, 0.0]])
    least = np.array([[0.1, -0.2], [-0.1, 0.1], [0.2, -0.3]])
    found = certified_rates(values, least, offset=0.0)
    assert found["certified"] == pytest.approx(5 / 6)
    assert found["violated"] == pytest.approx(3 / 6)
    assert found["certified_and_violated"] == pytest.approx(2 / 6)
    assert found["violated_given_certified"] == pytest.approx(2 / 5)


def test_a_negative_offset_certifies_more() -> None:
    values, least = np.array([[-0.05]]), np.array([[0.1]])
    assert certified_rates(values, least, offset=0.0) == {
        "certified": 0.0,
        "violated": 0.0,
        "certified_and_violated": 0.0,
    }
    assert certified_rates(values, least, offset=-0.06)["certified"] == 1.0


def test_executed_plans_are_certified_and_violated_within_their_steps() -> None:
    zero = jnp.zeros(2)
    margins = np.full((8, 2), 0.3)
    margins[5, 0] = -0.1
    # Of decisions 1 to 5, numbers 4 and 5 of episode 0 have step 5 within two steps.
    is_certified = np.zeros((8, 2))
    is_certified[2:5, 0] = is_certified[1, 1] = 1.0
    episodes = Episodes(zero, zero, zero, zero, {}, jnp.asarray(margins), {"certified": is_certified})
    found = executed_facts(episodes, steps=2)
    assert found["certificate/executed_certified"] == pytest.approx(4 / 10)
    assert found["certificate/executed_certified_and_violated"] == pytest.approx(1 / 10)
    assert found["certificate/executed_violated_given_certified"] == pytest.approx(1 / 4)
    assert executed_facts(episodes._replace(trace={}), steps=2) == {}


def test_the_area_under_the_curve_by_hand() -> None:
    assert auroc(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1.0
    assert auroc(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 0.0
    assert auroc(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    # Of four pairs (0.1|0.5 against 0.3|0.5) two are right, one is a tie, one is wrong.
    assert auroc(np.array([0.1, 0.5]), np.array([0.3, 0.5])) == pytest.approx((2 + 0.5) / 4)
