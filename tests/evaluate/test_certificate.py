"""The certificate's promise: coverage by simulation, ranks and areas by hand."""

import jax
import numpy as np
import pytest

from dreamproof.evaluate.certificate import auroc, coverage, offset, scores


@pytest.mark.parametrize("miscoverage", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("count", [20, 100])
def test_coverage_of_exchangeable_scores_is_at_least_what_is_promised(miscoverage: float, count: int) -> None:
    random = np.random.default_rng(0)
    # Scores of any one distribution, here skewed and heavy-tailed, calibration and fresh ones alike.
    drawn = random.standard_t(3, (3000, count + 50)) + random.exponential(1.0, (3000, count + 50))
    covered = np.array([coverage(row[count:], offset(row[:count], miscoverage)) for row in drawn])
    error = 3 * covered.std() / np.sqrt(len(covered))
    assert covered.mean() >= 1 - miscoverage - error
    # And not for free: the promise is not kept by an offset that is far too careful.
    assert covered.mean() <= 1 - miscoverage + 1 / (count + 1) + error


def test_shifted_scores_are_not_covered() -> None:
    random = np.random.default_rng(1)
    made = offset(random.normal(0, 1, 200), 0.1)
    assert coverage(random.normal(3, 1, 500), made) < 0.3


@pytest.mark.parametrize(("count", "miscoverage", "rank"), [(9, 0.1, 9), (10, 0.1, 10), (19, 0.1, 18), (99, 0.05, 95)])
def test_the_offset_is_the_score_of_the_conformal_rank(count: int, miscoverage: float, rank: int) -> None:
    calibration = np.random.default_rng(2).permutation(np.arange(1.0, count + 1))
    assert offset(calibration, miscoverage) == rank


def test_too_few_episodes_promise_nothing_and_so_cover_everything() -> None:
    few = offset(np.zeros(8), 0.1)
    assert few == np.inf
    assert coverage(np.array([1e9, -3.0]), few) == 1.0


def test_a_score_is_the_value_less_the_realised_least_margin() -> None:
    margins = np.tile(np.linspace(1.0, 0.0, 60)[:, None], (1, 5))
    # With a discount of 1 the realised least margin is the last one, 0, whenever one looks.
    np.testing.assert_allclose(scores(np.full((60, 5), 0.3), margins, 1.0, seed=0), 0.3, atol=1e-6)
    # With a discount of 0 it is the margin at the time itself; times are drawn early enough to have steps left.
    now = scores(margins, margins, 0.0, seed=0)
    np.testing.assert_allclose(now, 0.0, atol=1e-6)


def test_the_times_of_scores_are_drawn_by_seed_and_leave_steps_to_come() -> None:
    times = np.tile(np.arange(60.0)[:, None], (1, 400))
    picked = scores(times, np.zeros((60, 400)), 0.5, seed=3)
    np.testing.assert_array_equal(picked, scores(times, np.zeros((60, 400)), 0.5, seed=3))
    assert picked.min() >= 0 and picked.max() == 19
    assert len(np.unique(picked)) == 20


def test_the_area_under_the_curve_by_hand() -> None:
    assert auroc(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 1.0
    assert auroc(np.array([3.0, 4.0]), np.array([1.0, 2.0])) == 0.0
    assert auroc(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    # Of four pairs (0.1|0.5 against 0.3|0.5) two are right, one is a tie, one is wrong.
    assert auroc(np.array([0.1, 0.5]), np.array([0.3, 0.5])) == pytest.approx((2 + 0.5) / 4)


def test_scores_of_many_cells_are_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    scores(np.zeros((60, 7)), np.zeros((60, 7)), 0.5, seed=0)
    with jax.log_compiles():
        scores(np.ones((60, 7)), np.ones((60, 7)), 0.9, seed=1)
    assert [record for record in caplog.records if "Compiling" in record.getMessage()] == []
