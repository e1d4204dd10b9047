"""Limits of their own for several costs: what is learned, what the planner keeps, and that nothing changes without."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.tiny import tiny_cell

from dreamproof.agents.api import Batch
from dreamproof.agents.dreamer.agent import DreamerAgent, DreamerState
from dreamproof.agents.dreamer.behavior import replay_returns
from dreamproof.agents.dreamer.world_model import costs_of
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec
from dreamproof.settings.traced import traced_values

SPEC = Spec(
    "Two costs",
    observation_size=11,
    action_size=2,
    episode_agent_steps=10,
    max_step_cost=1.0,
    has_margin=True,
    slots=(("hazards", 3, 7), ("vases", 7, 11)),
    entities=(3, 11, 4),
    entity_types=2,
    costs=("hazards", "vases"),
)
LIMITS = {"hazards": 5.0, "vases": 1.0}


def agent_with(limits: dict[str, float], spec: Spec = SPEC, **parts: Any) -> DreamerAgent:
    """A tiny agent with these limits."""
    return DreamerAgent(spec, tiny_cell({"planner": {"cost_limits": limits}, **parts}).agent)


@cache
def fresh(entities: bool) -> DreamerState:
    """The first state of such an agent; nothing else in its settings changes it."""
    agent = agent_with(LIMITS, world_model={"entities": entities})
    state: DreamerState = eqx.filter_jit(agent.init_state)(jax.random.key(0))
    return state


def windows(spec: Spec = SPEC) -> Batch:
    """Windows (6, 4) in which hazards cost in every second step and vases never."""
    key, zero = jax.random.key(0), jnp.zeros((6, 4))
    hazards = zero.at[::2].set(1.0)
    return Batch(
        observation=jax.random.normal(key, (6, 4, spec.observation_size)),
        action=jnp.zeros((6, 4, spec.action_size)),
        reward=zero,
        cost=hazards,
        margin=zero,
        first=zero.at[0].set(1.0),
        terminated=zero,
        held_out=jnp.array([1.0, 0.0, 0.0, 0.0]),
        costs=jnp.stack([hazards, zero], axis=-1),
    )


def outputs(agent: DreamerAgent) -> tuple[int, int]:
    """How many costs the model predicts, and how many critics there are; nothing is computed."""
    state = eqx.filter_eval_shape(agent.init_state, jax.random.key(0))
    feature = jax.ShapeDtypeStruct((3, state.model.feature_size), jnp.float32)
    return state.model.costs, eqx.filter_eval_shape(lambda critics, x: critics(x), state.critics, feature).shape[0]


def test_every_cost_has_a_head_and_a_critic_beside_the_total() -> None:
    assert outputs(agent_with(LIMITS)) == (3, 1 + 3)
    assert agent_with(LIMITS).planner_constants.limits == ((1, 5.0), (2, 1.0))


def test_without_limits_the_networks_are_those_of_the_total() -> None:
    assert outputs(agent_with({})) == (1, 2)
    assert agent_with({}).planner_constants.limits == ()


@pytest.mark.parametrize("entities", [True, False], ids=["entities", "one vector"])
def test_each_head_learns_its_own_cost(entities: bool) -> None:
    agent = agent_with(LIMITS, world_model={"entities": entities, "learning_rate": 1e-2})
    scalars = traced_values(agent.settings) | {"latent_swaps": 0.0}
    state, batch = fresh(entities), windows()
    learn = jax.jit(lambda state, key: agent._learn_model(state, batch, key, scalars)[:2])
    for step in range(250):
        state, states = learn(state, jax.random.key(step))
    total, hazards, vases = state.model.step_costs(states, state.model.feature(states))[:, 1:].mean((1, 2))
    assert float(vases) < 0.1
    assert float(hazards) > 0.25
    assert float(total) > 0.25


def test_each_critic_learns_from_its_own_costs() -> None:
    batch, settings = windows(), tiny_cell().agent.behavior
    np.testing.assert_array_equal(costs_of(batch, 3), np.stack([batch.cost, batch.costs[..., 0], batch.costs[..., 1]]))
    returns, _ = replay_returns(jnp.zeros((4, 6, 4)), batch, jnp.zeros((5, 4)), settings)
    assert returns.shape == (4, 5, 4)
    np.testing.assert_array_equal(returns[1], returns[2])
    np.testing.assert_array_equal(returns[3], 0.0)


def test_a_whole_update_is_finite() -> None:
    agent = agent_with(LIMITS)
    scalars = traced_values(agent.settings) | {"latent_swaps": 0.0}
    update = jax.jit(lambda state, key: agent.update(state, windows(), key, scalars, jnp.asarray(0.5)))
    state, metrics = update(fresh(True), jax.random.key(1))
    assert bool(state.finite) and all(bool(jnp.isfinite(value).all()) for value in metrics.values())


def test_a_single_named_cost_may_have_a_limit_too() -> None:
    spec = SPEC._replace(costs=("hazards",))
    assert outputs(agent_with({"hazards": 2.0}, spec)) == (2, 3)
    np.testing.assert_array_equal(costs_of(windows()._replace(costs=None), 2)[1], windows().cost)


@pytest.mark.parametrize("costs", [("hazards",), ()], ids=["another", "none"])
def test_a_cost_that_the_task_does_not_count_is_refused(costs: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match=r"has no cost 'vases'; it counts (hazards|a total only)"):
        agent_with({"vases": 1.0}, SPEC._replace(costs=costs))
