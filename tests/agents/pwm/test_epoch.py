"""One epoch of an agent: how often running scales move, and that terminations without a weight are off."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.agents.api import Batch, EpochBatch
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.traced import traced_values

ENVS, ROUNDS = 3, 4
TERMINATING = toy.SPEC._replace(terminates=True)


def epoch() -> EpochBatch:
    """One batch of windows, in some of which the episode ends, and what the envs show."""
    drawn = toy.windows(jax.random.key(0), steps=4)
    ends = drawn.terminated.at[-1, ::2].set(1.0)
    zero = jnp.zeros_like(drawn.reward)
    rows = Batch(drawn.observation, drawn.action, drawn.reward, zero, zero, drawn.first, ends, zero[0])
    none, no = jnp.zeros(ENVS), jnp.zeros(ENVS, bool)
    now = TimeStep(jax.random.normal(jax.random.key(1), (ENVS, 2)), none, none, none, none, no, no, no)
    return EpochBatch(jax.tree.map(lambda part: part[None], rows), now)


@pytest.fixture(scope="module")
def after() -> dict[float, tuple[Any, Any, dict[str, float]]]:
    """The state before and after an epoch and its metrics, by the weight of terminations: one compiled program."""
    agent = toy.make_agent(TERMINATING)
    state, update = toy.fresh(agent), eqx.filter_jit(agent.update)
    found = {}
    for scale in (0.0, 1.0):
        scalars = jax.tree.map(jnp.asarray, traced_values(agent.settings))
        scalars["world_model"]["termination_scale"] = jnp.asarray(scale)
        changed, metrics = update(state, epoch(), jax.random.key(2), scalars, jnp.zeros(()))
        found[scale] = (state, changed, {name: float(value) for name, value in metrics.items()})
    return found


def test_terminations_without_a_weight_are_off_in_imagination_and_in_learning(after: Any) -> None:
    before, off, metrics = after[0.0]
    assert metrics["imagined/continue_prob"] == 1.0
    heads = (jax.tree.leaves(state.model.termination_head) for state in (before, off))
    for one, other in zip(*heads, strict=True):
        np.testing.assert_array_equal(one, other)
    _, on, learned = after[1.0]
    assert learned["imagined/continue_prob"] < 0.99
    assert (np.asarray(on.model.termination_head.last.bias) != np.asarray(off.model.termination_head.last.bias)).all()


def test_the_scale_of_rewards_moves_once_an_epoch_and_that_of_returns_in_every_round(after: Any) -> None:
    _, changed, _ = after[1.0]
    assert float(changed.rewards.weight) == pytest.approx(0.01)
    assert float(changed.returns.weight) == pytest.approx(1 - 0.99**ROUNDS)
