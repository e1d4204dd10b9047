"""The cheetah with a speed limit: cost and margin in known states, and what a condition may change."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.envs.locomotion.rollouts import COUNT, compiled_task
from tests.tiny import tiny_cell

from dreamproof.agents.dreamer.agent import DreamerAgent
from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.locomotion.runners import SPEED_LIMIT, SpeedLimitedCheetah
from dreamproof.envs.shift import find_condition

pytestmark = [pytest.mark.long(40), pytest.mark.optimised]

TASK = "SafetyCheetahVelocity"
HIGH = 5.0


def aloft(speeds: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of bodies in free fall, joints at rest: nothing changes their forward speed."""
    positions, velocities = np.zeros((COUNT, 9)), np.zeros((COUNT, 9))
    positions[:, 1], velocities[:, 0] = HIGH, speeds
    return positions, velocities


def test_every_control_step_above_the_limit_costs_one() -> None:
    task = compiled_task(TASK)
    speeds = [0.0, 3.0, 3.2, 3.22, 4.0, 9.0, -3.0, -9.0]
    _, shown = task.go(task.place(*aloft(speeds)), jnp.zeros(6))
    np.testing.assert_array_equal(shown.cost, [0, 0, 0, 2, 2, 2, 0, 0])
    np.testing.assert_array_equal(shown.costs, np.asarray(shown.cost)[:, None])
    margins = np.clip(SPEED_LIMIT - np.array(speeds), -0.5, 0.5)
    np.testing.assert_allclose(shown.margin, margins, atol=1e-5)
    # The reward is that of cheetah-run: a tenth of the speed in each of two control steps.
    np.testing.assert_allclose(shown.reward, 2 * np.clip(np.array(speeds) / 10, 0, 1), atol=1e-5)


def test_the_margin_is_negative_exactly_where_a_step_costs() -> None:
    env = registry.make(TASK)
    assert isinstance(env, SpeedLimitedCheetah)
    for speed in (SPEED_LIMIT - 1e-3, SPEED_LIMIT + 1e-3):
        motion = env.body.still(jnp.zeros(9), jnp.zeros(9).at[0].set(speed))
        assert bool(env.violates(motion)) == (float(env.margin(motion)) < 0) == (speed > SPEED_LIMIT)


def test_the_spec_names_the_constraint_and_has_a_margin() -> None:
    spec, plain = registry.make(TASK).spec, registry.make("cheetah-run").spec
    assert (spec.costs, spec.has_cost, spec.has_margin, spec.max_step_cost) == (("speed",), True, True, 2.0)
    assert (plain.costs, plain.has_cost, plain.has_margin, plain.max_step_cost) == ((), False, False, 0.0)
    assert spec.entities is None
    assert spec.max_return == 1000.0


def test_an_agent_may_use_the_margin() -> None:
    settings = tiny_cell({"planner": {"margin": 0.1}, "risk": {"tube": 1.0, "certified_only": 1.0}}).agent
    DreamerAgent(registry.make(TASK).spec, settings)


def test_a_condition_changes_the_body_and_leaves_the_limit() -> None:
    task = compiled_task(TASK)
    fast = task.place(*aloft([4.0] * COUNT))
    for name in ("mass_x1.5", "damping_x3", "force_x0.6", "friction_x0.5"):
        params = find_condition(task.env, name).change(task.env.default_params())
        _, shown = task.go(fast, jnp.zeros(6), params)
        np.testing.assert_array_equal(shown.cost, np.full(COUNT, 2.0))


def test_a_condition_that_the_body_cannot_have_is_refused_by_name() -> None:
    env = registry.make(TASK)
    with pytest.raises(BadInput, match="does not support the shift action_delay"):
        find_condition(env, "late", {"action_delay": 2})
    with pytest.raises(BadInput, match="has no condition 'action_delay_2'") as caught:
        find_condition(env, "action_delay_2")
    assert "ghost" not in str(caught.value)
