"""Behaviour: the actor's gradient is the true one, returns are what they say, and policies keep their bounds."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.agents.pwm import toy

from dreamproof.agents.normalisation import init_moments, update_moments
from dreamproof.agents.pwm.behavior import Dream, Start, critic_targets, dream, dream_return
from dreamproof.settings.pwm import Behavior

STARTS = 6
FLOW = {"kind": "flow", "integrator": "heun", "substeps": 1}


def lively(state: Any, key: int = 3) -> Any:
    """The state with all numbers of the model and the critics moved, so that nothing is silent."""
    flat, unravel = ravel_pytree(eqx.filter((state.model, state.critics), eqx.is_inexact_array))
    moved = unravel(flat + 0.3 * jax.random.normal(jax.random.key(key), flat.shape))
    model, critics = eqx.combine(moved, (state.model, state.critics))
    return state._replace(model=model, critics=critics)


def objective(agent: Any, state: Any, terminates: bool) -> Any:
    """What the actor's parameters are worth in a fixed dream, compiled, with its gradient."""
    settings = agent.settings.behavior
    z = state.model.encode(jax.random.normal(jax.random.key(1), (STARTS, 2)))
    start = Start(z, jnp.ones(STARTS))

    def worth(actor: Any) -> jax.Array:
        dreamt = dream(state.model, actor, start, settings, jax.random.key(2), terminates)
        return dream_return(dreamt, state.critics(dreamt.z[-1]), settings.discount).mean()

    return eqx.filter_jit(eqx.filter_value_and_grad(worth))


CASES = {
    "gaussian through a network": ({}, {"detached": False}),
    "flow policy through a flow": (FLOW, {"detached": False, "policy": "flow", "flow_substeps": 1}),
}


@pytest.mark.parametrize("case", list(CASES))
def test_the_actor_gradient_is_that_of_finite_differences(case: str) -> None:
    dynamics, behavior = CASES[case]
    agent = toy.make_agent(dynamics=dynamics, behavior={"horizon": 3, **behavior})
    state = lively(toy.fresh(agent))
    worth = objective(agent, state, terminates=True)
    _, gradient = worth(state.actor)
    flat, unravel = ravel_pytree(eqx.filter(state.actor, eqx.is_inexact_array))
    slopes, _ = ravel_pytree(gradient)
    assert float(jnp.linalg.norm(slopes)) > 1e-3
    for seed in range(4):
        # Along the gradient and along random ways that are not orthogonal to it.
        way = slopes / jnp.linalg.norm(slopes) + 0.2 * seed * jax.random.normal(jax.random.key(seed), flat.shape)
        way = way / jnp.linalg.norm(way)
        ahead, behind = (
            float(worth(eqx.combine(unravel(flat + sign * 2e-2 * way), state.actor))[0]) for sign in (1, -1)
        )
        assert (ahead - behind) / 4e-2 == pytest.approx(float(slopes @ way), rel=0.05, abs=2e-4)


@pytest.fixture(scope="module")
def plain() -> tuple[Any, Any]:
    """An agent and its lively state."""
    agent = toy.make_agent(behavior={"horizon": 3})
    return agent, lively(toy.fresh(agent))


def test_the_actor_gradient_is_zero_where_reward_and_value_are_constant(plain: tuple[Any, Any]) -> None:
    agent, state = plain
    model = eqx.tree_at(
        lambda made: (made.reward_head.last.weight, made.reward_head.last.bias),
        state.model,
        (jnp.zeros_like(state.model.reward_head.last.weight), jnp.full(1, 2.5)),
    )
    last = state.critics.members.last
    critics = eqx.tree_at(
        lambda made: (made.members.last.weight, made.members.last.bias),
        state.critics,
        (jnp.zeros_like(last.weight), jnp.full_like(last.bias, 7.0)),
    )
    constant = state._replace(model=model, critics=critics)
    value, gradient = objective(agent, constant, terminates=False)(state.actor)
    discounts = agent.settings.behavior.discount ** np.arange(4)
    assert float(value) == pytest.approx(2.5 * discounts[:3].sum() + 7.0 * discounts[3], rel=1e-5)
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in jax.tree.leaves(gradient))


def test_without_detaching_gradients_also_pass_through_what_the_policy_sees(plain: tuple[Any, Any]) -> None:
    _, state = plain
    found = []
    for detached in (True, False):
        agent = toy.make_agent(behavior={"horizon": 3, "detached": detached})
        value, gradient = objective(agent, state, terminates=False)(state.actor)
        found.append((float(value), ravel_pytree(gradient)[0]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    assert float(jnp.abs(found[0][1] - found[1][1]).max()) > 1e-6


def some_dream(proceed: np.ndarray | None = None) -> Dream:
    """Three steps of two starts with known rewards."""
    reward = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    going = jnp.ones((3, 2)) if proceed is None else jnp.asarray(proceed)
    return Dream(jnp.zeros((4, 2, 8)), jnp.zeros((3, 2, 1)), reward, going)


def test_a_dream_is_worth_its_rewards_and_the_last_value_at_the_right_power_of_the_discount() -> None:
    worth = dream_return(some_dream(), jnp.array([10.0, 20.0]), 0.5)
    np.testing.assert_allclose(worth, [1 + 1.5 + 1.25 + 10 / 8, 2 + 2 + 1.5 + 20 / 8])


def test_what_comes_after_an_imagined_termination_is_worth_nothing() -> None:
    proceed = np.array([[1.0, 1.0], [0.0, 0.25], [1.0, 1.0]])
    worth = dream_return(some_dream(proceed), jnp.array([10.0, 20.0]), 0.5)
    np.testing.assert_allclose(worth, [1 + 1.5, 2 + 2 + 0.25 * (1.5 + 20 / 8)])


@pytest.mark.parametrize("mixing", [0.0, 0.6, 1.0])
def test_critic_targets_are_the_explicit_mixture_of_n_step_returns(mixing: float) -> None:
    discount, proceed = 0.9, np.array([[1.0, 1.0], [0.3, 1.0], [1.0, 0.0]])
    values = np.array([[0.5, -1.0], [2.0, 0.7], [1.5, 3.0], [4.0, -2.0]])
    dreamt = some_dream(proceed)
    settings = Behavior(discount=discount, mixing=mixing)
    targets, weights = critic_targets(dreamt, jnp.asarray(values), settings)
    reward = np.asarray(dreamt.reward)

    def n_step(t: int, n: int) -> np.ndarray:
        total, factor = np.zeros(2), np.ones(2)
        for k in range(t, t + n):
            total = total + factor * reward[k]
            factor = factor * discount * proceed[k]
        return total + factor * values[t + n]

    for t in range(3):
        left = 3 - t
        mixture = sum((1 - mixing) * mixing ** (n - 1) * n_step(t, n) for n in range(1, left))
        mixture = mixture + mixing ** (left - 1) * n_step(t, left)
        np.testing.assert_allclose(targets[t], mixture, rtol=1e-5)
    np.testing.assert_allclose(weights, [[1, 1], [1, 1], [0.3, 1]])


def test_the_least_of_the_critics_counts(plain: tuple[Any, Any]) -> None:
    _, state = plain
    z = state.model.encode(jnp.ones((5, 2)))
    everyone = np.asarray(state.critics.all(z))
    assert everyone.shape == (3, 5)
    np.testing.assert_allclose(state.critics(z), everyone.min(0))
    assert np.ptp(everyone, axis=0).min() > 0


@pytest.mark.parametrize("policy", ["gaussian", "flow"])
def test_actions_are_bounded_deterministic_without_noise_and_spread_with_it(policy: str) -> None:
    state = toy.fresh(toy.make_agent(behavior={"policy": policy}))
    act = eqx.filter_jit(lambda actor, z, noise: actor(z, noise))
    z = jnp.zeros((400, 16))
    still = np.asarray(act(state.actor, z, jnp.zeros((400, 1))))
    noisy = np.asarray(act(state.actor, z, jax.random.normal(jax.random.key(0), (400, 1))))
    assert np.ptp(still) == 0.0
    assert np.abs(noisy).max() <= 1.0
    assert noisy.std() > 0.05


def test_the_noise_of_the_gaussian_policy_has_a_floor() -> None:
    actor = toy.fresh(toy.make_agent()).actor
    quiet = eqx.tree_at(lambda made: made.log_sigma, actor, jnp.array([-9.0]))
    assert float(quiet.sigma[0]) == pytest.approx(np.exp(-1.427), rel=1e-5)
    assert float(actor.sigma[0]) == pytest.approx(np.exp(-1.0), rel=1e-5)


def test_rewards_are_scaled_by_their_size_and_never_shifted() -> None:
    values, weights = jnp.array([1.0, 3.0, 100.0]), jnp.array([1.0, 1.0, 0.0])
    moments = init_moments()
    assert float(moments.root_mean_square) == 1.0
    for _ in range(3):
        moments = update_moments(moments, values, weights)
    assert float(moments.root_mean_square) == pytest.approx(np.sqrt(5.0), rel=1e-5)
    assert float(moments.deviation) == pytest.approx(1.0, rel=1e-4)
    same = update_moments(moments, values, jnp.zeros(3))
    jax.tree.map(np.testing.assert_array_equal, same, moments)
