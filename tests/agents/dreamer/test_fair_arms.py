"""What a margin means, and that an arm without its signal is the baseline, bit for bit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.tiny import tiny_cell

from dreamproof.agents.dreamer.agent import DreamerAgent, DreamerState
from dreamproof.agents.dreamer.world_model import nearer, widened_costs
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.settings.traced import traced_values

ENVS = 4
SPEC = Spec(
    "Fair",
    observation_size=7,
    action_size=2,
    episode_agent_steps=10,
    has_margin=True,
    max_step_cost=5.0,
    slots=(("hazards", 3, 7),),
    entities=(3, 7, 2),
)
U_ONLY = {"risk": {"uncertainty_weight": 1.0, "tube": 2.0, "innovation_margin": 0.1}}


class Setting:
    """A tiny agent with random networks, in which the arm's mechanism counts in full."""

    def __init__(self, agent: dict[str, Any] | None = None, spec: Spec = SPEC) -> None:
        self.agent = DreamerAgent(spec, tiny_cell(agent).agent)
        outputs: DreamerState = eqx.filter_jit(self.agent.init_state)(jax.random.key(0))
        self.state = outputs._replace(risk_share=jnp.ones(()))
        self.act = eqx.filter_jit(lambda *given: self.agent.act(*given, explore=False))
        self.explore = eqx.filter_jit(lambda *given: self.agent.act(*given, explore=True))

    def agreeing(self) -> DreamerState:
        """The same state with members that are all the first one."""
        members = jax.tree.map(
            lambda x: jnp.broadcast_to(x[:1], x.shape) if eqx.is_array(x) else x, self.state.risk.members
        )
        return self.state._replace(risk=eqx.tree_at(lambda risk: risk.members, self.state.risk, members))

    def decided(self, state: DreamerState, changes: dict[str, Any], explore: bool = False) -> Any:
        scalars = jax.tree.map(jnp.asarray, traced_values(tiny_cell(changes).agent))
        zero, no = jnp.zeros(ENVS), jnp.zeros(ENVS, bool)
        observation = 0.3 * jax.random.normal(jax.random.key(1), (ENVS, SPEC.observation_size))
        seen = TimeStep(observation, zero, zero, zero, zero, zero, no, no)
        act = self.explore if explore else self.act
        return act(state, self.agent.init_memory(ENVS), seen, jax.random.key(2), scalars)


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting()


@pytest.fixture(scope="module")
def without_entities() -> Setting:
    """As for lidar or a velocity limit; the predicted margin is about 0, where every metre would count."""
    return Setting(spec=SPEC._replace(entities=None))


@pytest.fixture(params=["setting", "without_entities"])
def any_setting(request: pytest.FixtureRequest) -> Setting:
    found: Setting = request.getfixturevalue(request.param)
    return found


def test_at_zero_disagreement_u_only_is_the_baseline_bit_for_bit(any_setting: Setting) -> None:
    setting = any_setting
    state = setting.agreeing()
    baseline, u_only = (setting.decided(state, changes) for changes in ({}, U_ONLY))
    assert float(baseline.metrics["shadow/uncertainty"].max()) == 0.0
    assert float(u_only.metrics["shadow/alarm"].max()) == 0.0
    np.testing.assert_array_equal(baseline.action, u_only.action)
    np.testing.assert_array_equal(baseline.memory.mean, u_only.memory.mean)


def test_a_margin_close_to_zero_is_close_to_none(any_setting: Setting) -> None:
    setting = any_setting
    plain, least = (setting.decided(setting.state, {"planner": {"margin": value}}) for value in (0.0, 1e-6))
    np.testing.assert_allclose(plain.metrics["plan/cost"], least.metrics["plan/cost"], atol=0.05)


def test_without_entities_a_margin_makes_the_safe_set_smaller_by_so_much() -> None:
    margins = jnp.array([-0.1, 0.0, 0.01, 0.03, 0.05, 0.06, 0.3])
    learned = jnp.array([[4.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(widened_costs(learned, margins, 0.0, 5.0), learned)
    np.testing.assert_allclose(
        widened_costs(learned, margins, 0.05, 5.0)[0], [4.0, 5.0, 5.0, 5.0, 0.0, 0.0, 1.0], atol=1e-5
    )
    metres = jnp.linspace(0.0, 0.1, 1001)[:, None]
    swept = jax.vmap(lambda metre: widened_costs(learned, margins, metre, 5.0)[0])(metres)
    steps = np.diff(swept, axis=0)
    # 0.1 mm changes no cost by more than 0.5 % of its maximum, and none downwards.
    assert steps.min() >= 0
    assert steps.max() < 0.026


def test_without_entities_a_margin_charges_the_constraint_that_costs() -> None:
    margins = jnp.array([0.01, 0.01])
    learned = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    total, hazards, vases = np.asarray(widened_costs(learned, margins, 0.05, 5.0))
    np.testing.assert_allclose(total, 5.0)
    np.testing.assert_allclose(hazards, [5.0, 2.5], atol=0.1)
    np.testing.assert_allclose(vases, [0.0, 2.5], atol=0.1)


def test_disagreement_changes_what_u_only_expects_to_cost(setting: Setting) -> None:
    baseline, u_only = (setting.decided(setting.state, changes) for changes in ({}, U_ONLY))
    assert not np.array_equal(baseline.metrics["plan/cost"], u_only.metrics["plan/cost"])


def test_a_fixed_margin_is_a_setting_of_every_arm(setting: Setting) -> None:
    plain, wide = (setting.decided(setting.state, {"planner": {"margin": value}}) for value in (0.0, 0.2))
    assert not np.array_equal(plain.metrics["plan/cost"], wide.metrics["plan/cost"])


def test_the_margin_that_acts_is_logged(setting: Setting) -> None:
    fixed, u_only = (setting.decided(setting.state, changes) for changes in ({"planner": {"margin": 0.2}}, U_ONLY))
    np.testing.assert_allclose(fixed.metrics["plan/margin"], 0.2, rtol=1e-6)
    assert float(u_only.metrics["plan/margin"].min()) > 0
    agreeing = setting.decided(setting.agreeing(), U_ONLY)
    np.testing.assert_array_equal(agreeing.metrics["plan/margin"], 0.0)


def test_a_margin_of_evaluation_is_added_where_nothing_is_explored(setting: Setting) -> None:
    both = {"planner": {"margin": 0.05, "evaluation_margin": 0.15}}
    acting, exploring = (setting.decided(setting.state, both, explore) for explore in (False, True))
    np.testing.assert_allclose(acting.metrics["plan/margin"], 0.2, rtol=1e-6)
    np.testing.assert_allclose(exploring.metrics["plan/margin"], 0.05, rtol=1e-6)


def test_new_latent_samples_change_which_candidate_is_best_but_not_the_mean(setting: Setting) -> None:
    checked = Setting({"planner": {"evaluation_check_draws": 3}})
    rows = ({"planner": {"execute_best": value}} for value in (0.0, 1.0))
    mean, best = ((setting.decided(setting.state, row), checked.decided(setting.state, row)) for row in rows)
    np.testing.assert_allclose(mean[0].action, mean[1].action, atol=1e-5)
    assert float(np.abs(best[0].action - best[1].action).max()) > 1e-3


def test_a_margin_moves_hazards_nearer_by_so_many_metres() -> None:
    entities = jnp.array([[[3.0, 4.0], [0.0, 0.1]]])
    np.testing.assert_allclose(nearer(entities, 1.0), [[[2.4, 3.2], [0.0, 0.0]]], atol=1e-5)
    np.testing.assert_array_equal(nearer(entities, 0.0), entities)
    np.testing.assert_allclose(nearer(entities, jnp.array([0.05]))[0, 1], [0.0, 0.05], atol=1e-6)


def test_a_state_within_the_margin_costs_what_a_state_that_much_nearer_costs(setting: Setting) -> None:
    model = setting.state.model
    latent = model.initial((1,))
    here, there = (latent._replace(e=jnp.array([[[x, 0.0], [2.0, 0.0]]])) for x in (0.25, 0.20))
    # The far one moves too, but is cut off where it cannot matter less.
    wide = model.step_costs(here, model.feature(here), 0.05)[0]
    near = model.step_costs(there._replace(e=there.e.at[0, 1, 0].set(1.95)), model.feature(there))[0]
    np.testing.assert_allclose(wide, near, rtol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"planner": {"margin": 0.03}},
        {"planner": {"evaluation_margin": 0.03}},
        {"risk": {"tube": 1.0}},
        {"risk": {"innovation_margin": 0.05}},
        {"risk": {"certified_only": 1.0}},
    ],
)
def test_a_task_without_a_margin_is_refused_with_a_reason(change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"the task 'Fair' has no margin, so agent\.(planner|risk)\."):
        DreamerAgent(SPEC._replace(has_margin=False), tiny_cell(change).agent)
