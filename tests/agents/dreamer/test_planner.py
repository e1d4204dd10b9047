"""How the planner ranks candidates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.agents.dreamer.planner import (
    Candidates,
    Networks,
    PlannerConstants,
    Scores,
    choose,
    episode_cost,
    executed_metrics,
    is_safe,
    rank,
)
from dreamproof.nn.heads import TwoHot
from dreamproof.settings.dreamer import PlannerSettings

COEFS: dict[str, Any] = {
    "risk": {"uncertainty_weight": 0.0, "certificate_weight": 0.0, "coef": 0.5, "certified_only": 0.0, "slack": 0.0},
    "planner": {"cost_limit": 1.0, "cost_coef": 0.0, "execute_best": 1.0, "execute_safe": 0.0},
}
SETTINGS = PlannerSettings(elites=2, samples=4, proposals=0)


def scores(**columns: list[float]) -> Scores:
    """Candidates of one env; what is not said is 0, and the barrier is kept."""
    count = len(next(iter(columns.values())))
    zero = {name: [0.0] * count for name in Scores._fields if name != "excesses"} | {"min_barrier": [1.0] * count}
    return Scores(**{name: jnp.asarray(values)[:, None] for name, values in (zero | columns).items()})


def networks(scale: float = 1.0) -> Networks:
    """Nothing but the spread of returns: ranking looks at no network."""
    return Networks(*[None] * 6, jnp.asarray(scale), None)  # type: ignore[arg-type]


def best(
    found: Scores, coefs: dict[str, Any] = COEFS, settings: PlannerSettings = SETTINGS, scale: float = 1.0
) -> list[int]:
    """Candidates from best to worst, as the planner's top-k orders them."""
    ranked = rank(found, networks(scale), coefs, settings, settings.elites)
    return jax.lax.top_k(ranked[:, 0], ranked.shape[0])[1].tolist()


def with_coefs(**changes: float) -> dict[str, Any]:
    """The prices with some changed."""
    return {room: {name: changes.get(name, value) for name, value in group.items()} for room, group in COEFS.items()}


def test_safe_candidates_come_first_and_by_worth() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], cost=[0.5, 7.0, 0.9, 1.0])
    assert best(found)[:3] == [2, 3, 0]
    assert best(found)[-1] == 1


def test_where_too_few_are_safe_all_are_ordered_by_cost() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], cost=[3.0, 7.0, 0.9, 2.0])
    assert best(found) == [2, 3, 0, 1]


def test_equal_costs_of_unsafe_candidates_are_ranked_by_value() -> None:
    found = scores(reward=[1.0, 5.0, 3.0], cost=[4.0, 4.0, 4.0])
    assert best(found) == [1, 2, 0]


def test_a_candidate_is_safe_if_it_keeps_the_limit_of_every_cost() -> None:
    hazards, vases = jnp.array([[-1.0], [-1.0], [0.5], [0.0]]), jnp.array([[-2.0], [3.0], [-2.0], [-0.1]])
    found = scores(reward=[1.0, 9.0, 8.0, 2.0], cost=[50.0, 0.0, 0.0, 60.0])._replace(excesses=(hazards, vases))
    assert is_safe(found, COEFS)[:, 0].tolist() == [True, False, False, True]
    assert best(found)[:2] == [3, 0]


def test_where_too_few_keep_all_limits_the_worst_excess_decides() -> None:
    hazards, vases = jnp.array([[1.0], [9.0], [-9.0]]), jnp.array([[6.0], [-9.0], [2.0]])
    found = scores(reward=[1.0, 1.0, 1.0], cost=[0.0, 1.0, 99.0])._replace(excesses=(hazards, vases))
    assert best(found) == [2, 0, 1]


def test_the_worst_draw_counts_for_every_cost() -> None:
    drawn = jax.tree.map(lambda x: jnp.stack([x, x]), scores(reward=[1.0]))
    drawn = drawn._replace(excesses=(jnp.array([[[-1.0]], [[0.5]]]),))
    assert float(drawn.over_draws(jnp.asarray(0.0)).excesses[0][0, 0]) == -0.25
    assert float(drawn.over_draws(jnp.asarray(1.0)).excesses[0][0, 0]) == 0.5


def test_the_executed_plan_is_certified_at_a_least_barrier_of_zero() -> None:
    for barrier, certified in ((0.1, 1.0), (0.0, 1.0), (-0.1, 0.0)):
        found = executed_metrics(scores(min_barrier=[barrier], metres=[0.04], cost=[2.0]), COEFS)
        assert {name: round(float(value[0]), 3) for name, value in found.items()} == {
            "plan/executed_safe": 0.0,
            "plan/certified": certified,
            "plan/margin": 0.04,
        }


def test_the_limit_is_a_traced_price() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], cost=[3.0, 7.0, 0.9, 2.0])
    assert best(found, with_coefs(cost_limit=10.0)) == [1, 2, 3, 0]
    moved = jax.vmap(lambda limit: rank(found, networks(), with_coefs(cost_limit=limit), SETTINGS, SETTINGS.elites))(
        jnp.array([1.0, 10.0])
    )
    assert jnp.argmax(moved[:, :, 0], axis=1).tolist() == [2, 1]


def test_filter_mode_looks_at_cost_alone_and_ties_go_to_the_lowest_index() -> None:
    found = scores(reward=[1.0, 2.0, 3.0, 9.0, 4.0], cost=[0.0, 0.0, 5.0, 0.0, 0.0])
    assert best(found, settings=PlannerSettings(mode="filter", elites=2)) == [0, 1, 3, 4, 2]


@pytest.mark.parametrize("weight", ["uncertainty_weight", "certificate_weight"])
def test_an_arm_that_prices_risk_prefers_the_certain_candidate(weight: str) -> None:
    signal = "uncertainty" if weight == "uncertainty_weight" else "violation"
    found = scores(reward=[3.0, 2.0, 1.0], **{signal: [9.0, 0.0, 0.0]})
    assert best(found)[0] == 0
    assert best(found, with_coefs(**{weight: 1.0}))[0] == 1


def test_risk_is_priced_in_units_of_the_spread_of_returns() -> None:
    found = scores(reward=[30.0, 20.0, 0.0], uncertainty=[4.0, 0.0, 0.0])
    coefs = with_coefs(uncertainty_weight=1.0)
    # The penalty is 0.5 · 4 = 2: less than 10 units of reward, but more than 10 units in a spread of 10.
    assert best(found, coefs, scale=1.0)[0] == 0
    assert best(found, coefs, scale=10.0)[0] == 1


def test_where_asked_for_only_certified_candidates_are_safe() -> None:
    found = scores(reward=[9.0, 1.0, 2.0], min_barrier=[-0.1, 0.1, 0.1])
    assert best(found)[0] == 0
    assert best(found, with_coefs(certified_only=1.0)) == [2, 1, 0]


def test_the_cost_coefficient_orders_safe_candidates() -> None:
    found = scores(reward=[3.0, 2.9], cost=[0.9, 0.1])
    assert best(found)[0] == 0
    assert best(found, with_coefs(cost_coef=1.0))[0] == 1


def test_every_env_is_ranked_by_itself() -> None:
    one, other = scores(reward=[1.0, 2.0], cost=[0.0, 0.0]), scores(reward=[1.0, 2.0], cost=[3.0, 9.0])
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), one, other)
    ranked = rank(both, networks(), COEFS, SETTINGS, SETTINGS.elites)
    np.testing.assert_array_equal(jnp.argmax(ranked, axis=0), [1, 0])


def test_slack_lets_a_young_certificate_be_broken() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], min_barrier=[0.1, -0.4, 0.2, -0.9])
    assert best(found, with_coefs(certified_only=1.0))[:2] == [2, 0]
    assert best(found, with_coefs(certified_only=1.0, slack=0.5))[:3] == [1, 2, 0]
    assert best(found, with_coefs(certified_only=1.0, slack=1.0)) == [1, 2, 3, 0]


def candidates(found: Scores) -> Candidates:
    """Candidates of one step and one env whose action is their number."""
    count = found.reward.shape[0]
    return Candidates(jnp.arange(float(count))[None, :, None, None], found)


def executed(found: Scores, coefs: dict[str, Any] = COEFS) -> int:
    """The number of the candidate that is executed; the first is the elite mean."""
    return int(choose(candidates(found), networks(), coefs, SETTINGS).actions[0, 0, 0, 0])


def test_an_unsafe_mean_is_not_executed() -> None:
    # Two elites pass a hazard left and right; their mean runs into it and promises most.
    found = scores(reward=[9.0, 2.0, 3.0], cost=[4.0, 0.1, 0.1])
    assert executed(found) == 2
    assert executed(found, with_coefs(execute_best=0.0)) == 0


def test_a_safe_mean_is_executed_and_an_unsafe_one_replaced_where_asked_for() -> None:
    coefs = with_coefs(execute_best=0.0, execute_safe=1.0)
    assert executed(scores(reward=[1.0, 2.0, 3.0], cost=[0.1, 0.1, 0.1]), coefs) == 0
    assert executed(scores(reward=[9.0, 2.0, 3.0], cost=[4.0, 0.1, 0.1]), coefs) == 2
    assert executed(scores(reward=[9.0, 2.0, 3.0], cost=[4.0, 2.0, 6.0]), coefs) == 1


def test_where_no_candidate_is_safe_the_least_unsafe_one_is_executed() -> None:
    assert executed(scores(reward=[9.0, 2.0, 3.0], cost=[4.0, 2.0, 6.0])) == 1


def test_a_single_safe_candidate_is_enough_to_execute_it() -> None:
    # As an elite set one is too few, so all would be ordered by cost alone.
    found = scores(reward=[1.0, 5.0, 5.0], cost=[0.2, 0.9, 3.0])
    assert executed(found) == 1


def test_a_limit_of_zero_can_be_met() -> None:
    found = scores(reward=[1.0, 5.0], cost=[0.0, 0.01])
    assert is_safe(found, with_coefs(cost_limit=0.0))[:, 0].tolist() == [True, False]
    assert executed(found, with_coefs(cost_limit=0.0)) == 0


def test_the_worst_draw_counts_where_asked_for_and_only_for_what_may_go_wrong() -> None:
    one, other = scores(reward=[1.0], cost=[0.0], min_barrier=[0.3]), scores(reward=[3.0], cost=[4.0])
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), one, other)
    mean, worst = both.over_draws(jnp.zeros(())), both.over_draws(jnp.ones(()))
    assert [float(x[0, 0]) for x in (mean.reward, mean.cost, mean.min_barrier)] == pytest.approx([2.0, 2.0, 0.65])
    assert [float(x[0, 0]) for x in (worst.reward, worst.cost, worst.min_barrier)] == pytest.approx([2.0, 4.0, 0.3])


def test_the_cost_critic_is_converted_to_the_cost_of_an_episode() -> None:
    facts = PlannerConstants(0.99, 200, 0.2, 5.0, TwoHot.make(21, 5.0))
    cost = jnp.full((10, 1, 1), 0.03)
    # A cost of 0.03 per step for ever is worth 0.03 / (1 − γ) = 3 to the critic, and 200 · 0.03 = 6 in an episode.
    for share in (0.0, 0.3, 1.0):
        assert float(episode_cost(cost, jnp.full((1, 1), 3.0), jnp.asarray(share), facts)[0, 0]) == pytest.approx(6.0)
    # Without any cost ahead of the horizon the critic alone speaks, for the 190 steps that are left.
    found = episode_cost(jnp.zeros((10, 1, 1)), jnp.full((1, 1), 3.0), jnp.ones(()), facts)
    assert float(found[0, 0]) == pytest.approx(0.03 * 190)


def test_evaluation_may_plan_with_more_effort_than_training() -> None:
    asked = PlannerSettings(samples=64, iterations=2, evaluation_samples=256, evaluation_draws=4)
    found = asked.at_evaluation()
    assert (found.samples, found.iterations, found.draws) == (256, 2, 4)
    assert (asked.samples, asked.draws) == (64, 1)
