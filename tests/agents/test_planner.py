"""How the planner ranks candidates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.agents.dreamer.planner import Networks, Scores, rank
from dreamproof.settings.dreamer import Planner

PRICES: dict[str, Any] = {
    "risk": {"uncertainty_weight": 0.0, "certificate_weight": 0.0, "price": 0.5, "certified_only": 0.0, "slack": 0.0},
    "planner": {"cost_limit": 1.0, "cost_price": 0.0},
}
SETTINGS = Planner(elites=2, samples=4, proposals=0)


def scores(**columns: list[float]) -> Scores:
    """Candidates of one env; what is not said is 0, and the barrier is kept."""
    count = len(next(iter(columns.values())))
    zero = {name: [0.0] * count for name in Scores._fields} | {"least_barrier": [1.0] * count}
    return Scores(**{name: jnp.asarray(values)[:, None] for name, values in (zero | columns).items()})


def best(found: Scores, prices: dict[str, Any] = PRICES, settings: Planner = SETTINGS, scale: float = 1.0) -> list[int]:
    """Candidates from best to worst, as the planner's top-k orders them."""
    networks = Networks(*[None] * 6, jnp.asarray(scale))  # type: ignore[arg-type]
    ranked = rank(found, networks, prices, settings)
    return jax.lax.top_k(ranked[:, 0], ranked.shape[0])[1].tolist()


def priced(**changes: float) -> dict[str, Any]:
    """The prices with some changed."""
    return {room: {name: changes.get(name, value) for name, value in group.items()} for room, group in PRICES.items()}


def test_safe_candidates_come_first_and_by_worth() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], cost=[0.5, 7.0, 0.9, 1.0])
    assert best(found)[:3] == [2, 3, 0]
    assert best(found)[-1] == 1


def test_where_too_few_are_safe_all_are_ordered_by_cost() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], cost=[3.0, 7.0, 0.9, 2.0])
    assert best(found) == [2, 3, 0, 1]


def test_equal_costs_of_unsafe_candidates_are_told_apart_by_worth() -> None:
    found = scores(reward=[1.0, 5.0, 3.0], cost=[4.0, 4.0, 4.0])
    assert best(found) == [1, 2, 0]


def test_the_limit_is_a_traced_price() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], cost=[3.0, 7.0, 0.9, 2.0])
    assert best(found, priced(cost_limit=10.0)) == [1, 2, 3, 0]
    moved = jax.vmap(
        lambda limit: rank(found, Networks(*[None] * 6, jnp.asarray(1.0)), priced(cost_limit=limit), SETTINGS)  # type: ignore[arg-type]
    )(jnp.array([1.0, 10.0]))
    assert jnp.argmax(moved[:, :, 0], axis=1).tolist() == [2, 1]


def test_filter_mode_looks_at_cost_alone_and_ties_go_to_the_lowest_index() -> None:
    found = scores(reward=[1.0, 2.0, 3.0, 9.0, 4.0], cost=[0.0, 0.0, 5.0, 0.0, 0.0])
    assert best(found, settings=Planner(mode="filter", elites=2)) == [0, 1, 3, 4, 2]


@pytest.mark.parametrize("weight", ["uncertainty_weight", "certificate_weight"])
def test_an_arm_that_prices_risk_prefers_the_certain_candidate(weight: str) -> None:
    signal = "uncertainty" if weight == "uncertainty_weight" else "violation"
    found = scores(reward=[3.0, 2.0, 1.0], **{signal: [9.0, 0.0, 0.0]})
    assert best(found)[0] == 0
    assert best(found, priced(**{weight: 1.0}))[0] == 1


def test_risk_is_priced_in_units_of_the_spread_of_returns() -> None:
    found = scores(reward=[30.0, 20.0, 0.0], uncertainty=[4.0, 0.0, 0.0])
    prices = priced(uncertainty_weight=1.0)
    # The penalty is 0.5 · 4 = 2: less than 10 units of reward, but more than 10 units in a spread of 10.
    assert best(found, prices, scale=1.0)[0] == 0
    assert best(found, prices, scale=10.0)[0] == 1


def test_where_asked_for_only_certified_candidates_are_safe() -> None:
    found = scores(reward=[9.0, 1.0, 2.0], least_barrier=[-0.1, 0.1, 0.1])
    assert best(found)[0] == 0
    assert best(found, priced(certified_only=1.0)) == [2, 1, 0]


def test_the_price_of_cost_orders_safe_candidates() -> None:
    found = scores(reward=[3.0, 2.9], cost=[0.9, 0.1])
    assert best(found)[0] == 0
    assert best(found, priced(cost_price=1.0))[0] == 1


def test_every_env_is_ranked_by_itself() -> None:
    one, other = scores(reward=[1.0, 2.0], cost=[0.0, 0.0]), scores(reward=[1.0, 2.0], cost=[3.0, 9.0])
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), one, other)
    ranked = rank(both, Networks(*[None] * 6, jnp.asarray(1.0)), PRICES, SETTINGS)  # type: ignore[arg-type]
    np.testing.assert_array_equal(jnp.argmax(ranked, axis=0), [1, 0])


def test_slack_lets_a_young_certificate_be_broken() -> None:
    found = scores(reward=[1.0, 9.0, 3.0, 2.0], least_barrier=[0.1, -0.4, 0.2, -0.9])
    assert best(found, priced(certified_only=1.0))[:2] == [2, 0]
    assert best(found, priced(certified_only=1.0, slack=0.5))[:3] == [1, 2, 0]
    assert best(found, priced(certified_only=1.0, slack=1.0)) == [1, 2, 3, 0]
