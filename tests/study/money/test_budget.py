"""The rule by which a budget stops a study."""

import pytest

from dreamproof.settings.study import Study
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.money.budget import Budget, money_reserve
from dreamproof.testing.small_study import small_study


def study(**money: float) -> Study:
    return Study.model_validate(small_study(money=money))


@pytest.mark.parametrize(("budget", "reserve"), [(4000.0, 4 * 82.0), (45.0, 27.0), (400.0, 4 * 32.0)])
def test_a_budget_is_reached_where_only_its_reserve_is_left(budget: float, reserve: float) -> None:
    declared = study(price_per_gpu_hour=3600.0, budget=budget)
    assert money_reserve(declared).money == pytest.approx(reserve)
    watched, state = Budget(declared), StudyState()
    state.redeclare(declared)
    watched.begin(state, Moment(0.0), 0.0, 60.0)
    seconds = (budget - reserve) / 4
    assert not watched.is_reached(0.999 * seconds) and watched.is_reached(1.001 * seconds)


def test_without_a_budget_or_a_price_nothing_is_kept_back() -> None:
    assert money_reserve(study(price_per_gpu_hour=3600.0)).money == 0.0
    assert money_reserve(study(budget=10.0)).money == 0.0
