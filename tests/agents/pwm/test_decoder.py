"""The decoder: made on request alone, judged in deviations, and learned through the open loop."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm.agent import PwmAgent
from dreamproof.agents.pwm.world_model import observed_scales, world_model_loss
from dreamproof.settings.traced import traced_values

STEPS, DECAY = 3, 0.99
EULER: dict[str, Any] = {"kind": "flow", "integrator": "euler", "substeps": 1}


@pytest.fixture(scope="module")
def agent() -> PwmAgent:
    """With a decoder."""
    return toy.make_agent(world_model={"decoder": True}, dynamics=EULER)


def given_scales(agent: PwmAgent) -> dict[str, jax.Array]:
    """The weights of the losses."""
    return jax.tree.map(jnp.asarray, traced_values(agent.settings))["world_model"]


def test_it_is_made_on_request_alone_and_leaves_all_other_weights_as_they_are(agent: PwmAgent) -> None:
    without = toy.fresh(toy.make_agent(dynamics=EULER)).model
    model = toy.fresh(agent).model
    assert without.decoder is None
    assert model.decoder is not None
    assert model.decoder.last.weight.shape[-1] == agent.spec.observation_size
    others = eqx.tree_at(lambda made: made.decoder, model, None)
    for one, other in zip(jax.tree.leaves(others), jax.tree.leaves(without), strict=True):
        np.testing.assert_array_equal(one, other)


def test_errors_count_in_deviations_from_the_mean_of_each_number(agent: PwmAgent) -> None:
    model = toy.fresh(agent).model
    drawn = toy.windows(jax.random.key(1), steps=STEPS, batch=8)
    elsewhere = drawn._replace(observation=drawn.observation * jnp.array([1.0, 1000.0]) + jnp.array([0.0, 50.0]))

    @eqx.filter_jit
    def error(windows: Windows) -> jax.Array:
        scales = given_scales(agent) | observed_scales(windows)
        return world_model_loss(model, windows, jax.random.key(2), scales)[1]["model/observation"]

    # A fresh decoder says 0, which is the mean.
    seen = np.asarray(drawn.observation, np.float64)
    standard = (seen - seen.mean((0, 1))) / seen.std((0, 1))
    weights = DECAY ** np.arange(STEPS) / STEPS**2
    by_hand = (weights[:, None, None] * standard[1:] ** 2).sum(0).mean()
    assert float(error(drawn)) == pytest.approx(by_hand, rel=1e-5)
    assert float(error(elsewhere)) == pytest.approx(by_hand, rel=1e-4)


def test_a_number_that_never_changes_is_no_division_by_zero() -> None:
    still = toy.windows(jax.random.key(1), steps=STEPS, batch=8)
    scales = observed_scales(still._replace(observation=jnp.full_like(still.observation, 3.0)))
    np.testing.assert_allclose(scales["observed_mean"], 3.0)
    np.testing.assert_allclose(scales["observed_deviation"], 0.01)


def test_an_update_of_the_model_asks_for_observations_where_there_is_a_decoder(agent: PwmAgent) -> None:
    batches = jax.tree.map(lambda part: part[None], toy.windows(jax.random.key(1), steps=STEPS))

    def logged(one: PwmAgent) -> set[str]:
        scalars = jax.tree.map(jnp.asarray, traced_values(one.settings))
        state = eqx.filter_eval_shape(one.init_state, jax.random.key(0))
        inputs = (batches, jax.random.key(3), scalars, jnp.zeros(()))
        return set(eqx.filter_eval_shape(one.update_model, state, *inputs)[1])

    assert logged(agent) - logged(toy.make_agent(dynamics=EULER)) == {"model/observation"}


def test_observations_are_decoded_from_latents_in_open_loop(agent: PwmAgent) -> None:
    steps = 6
    state, _ = toy.train_model(agent, 350, rate=3e-3, steps=steps)
    unseen = toy.windows(jax.random.key(9), steps=steps, batch=64)

    @eqx.filter_jit
    def decoded(model: Any) -> jax.Array:
        reached = model.roll_out(model.encode(unseen.observation[0]), unseen.action[1:], jax.random.key(0))
        return model.decoder(reached[-1])

    scales = observed_scales(unseen)
    target = (unseen.observation[-1] - scales["observed_mean"]) / scales["observed_deviation"]
    missed = jnp.square(decoded(state.model) - target).mean()
    nothing_learnt = jnp.square(decoded(toy.fresh(agent).model) - target).mean()
    assert nothing_learnt > 0.8
    assert missed < 0.1
