"""Targets of the critics: one objective for imagined and replayed steps, and costs of what was executed."""

import jax.numpy as jnp
import numpy as np

from dreamproof.agents.api import Batch
from dreamproof.agents.dreamer.behavior import critic_weights, replay_returns
from dreamproof.settings.dreamer import DreamerBehaviorSettings

SETTINGS = DreamerBehaviorSettings(discount=0.5, gae_lambda=1.0)


def window(first: list[float]) -> Batch:
    """Four rows of one env with reward 1 and cost 2 per step."""
    zero = jnp.zeros((4, 1))
    return Batch(
        observation=jnp.zeros((4, 1, 3)),
        action=jnp.zeros((4, 1, 2)),
        reward=zero + 1.0,
        cost=zero + 2.0,
        margin=zero,
        first=jnp.asarray(first)[:, None],
        terminated=zero,
        held_out=jnp.zeros(1),
    )


def test_replayed_rewards_carry_the_risk_penalty_and_costs_do_not() -> None:
    values = jnp.zeros((2, 4, 1))
    plain, _ = replay_returns(values, window([0.0] * 4), jnp.zeros((3, 1)), SETTINGS)
    with_coefs, _ = replay_returns(values, window([0.0] * 4), jnp.full((3, 1), 0.25), SETTINGS)
    np.testing.assert_allclose(plain[0, :, 0], [1.75, 1.5, 1.0])
    # A penalty of a quarter of the reward takes a quarter of the return.
    np.testing.assert_allclose(with_coefs[0], 0.75 * plain[0])
    np.testing.assert_allclose(with_coefs[1], plain[1])


def test_an_episode_that_ends_inside_a_window_cuts_the_return() -> None:
    values = jnp.full((2, 4, 1), 7.0)
    found, valid = replay_returns(values, window([0.0, 0.0, 1.0, 0.0]), jnp.full((3, 1), 0.25), SETTINGS)
    assert valid[:, 0].tolist() == [1.0, 0.0, 1.0]
    assert float(found[0, 1, 0]) == 7.0


def test_the_cost_critic_learns_from_executed_steps_unless_set_otherwise() -> None:
    imagined, replayed = jnp.ones(2), jnp.ones(3)
    rates = {"replay_value_scale": jnp.asarray(0.3), "imagined_cost_scale": jnp.asarray(0.0)}
    reward, cost = critic_weights(imagined, replayed, rates)
    np.testing.assert_allclose(reward, [1.0, 1.0, 0.3, 0.3, 0.3])
    np.testing.assert_allclose(cost, [0.0, 0.0, 1.0, 1.0, 1.0])
    _, both = critic_weights(imagined, replayed, rates | {"imagined_cost_scale": jnp.asarray(1.0)})
    np.testing.assert_allclose(both, 1.0)
