"""Behaviour: the actor's gradient is the true one, returns are what they say, and policies keep their bounds."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.flatten_util import ravel_pytree
from tests.agents.pwm import toy

from dreamproof.agents.api import RecordedSteps
from dreamproof.agents.normalisation import init_moments, update_moments
from dreamproof.agents.pwm.behavior import (
    DifferentiableRollout,
    LatentWindows,
    RolloutStart,
    cloning_loss,
    critic_targets,
    imagine_rollout,
    imagined_return,
    recorded_targets,
)
from dreamproof.agents.pwm.rewards import reward_loss_factor, reward_scale
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.pwm import PwmBehaviorSettings
from dreamproof.settings.traced import traced_values

STARTS = 6
FLOW = {"kind": "flow", "integrator": "heun", "substeps": 1}


def objective(agent: Any) -> Any:
    """What an actor is worth in a fixed rollout through a model and critics, compiled, with its gradient."""
    settings = agent.settings.behavior

    def worth(actor: Any, state: Any) -> jax.Array:
        z = state.model.encode(jax.random.normal(jax.random.key(1), (STARTS, 2)))
        rollout = imagine_rollout(
            state.model, actor, RolloutStart(z, jnp.ones(STARTS)), settings, jax.random.key(2), True
        )
        return imagined_return(rollout, state.critics(rollout.z[-1]), settings.discount).mean()

    return eqx.filter_jit(eqx.filter_value_and_grad(worth))


def made(dynamics: Any, **behavior: Any) -> tuple[Any, Any]:
    """A lively state and its objective."""
    agent = toy.make_agent(dynamics=dynamics, behavior={"horizon": 3, **behavior})
    return toy.lively(agent), objective(agent)


@pytest.fixture(scope="module")
def whole() -> tuple[Any, Any]:
    """A gaussian policy through a plain network; gradients also pass through what the policy sees."""
    return made({}, detached=False)


@pytest.fixture(scope="module")
def detached() -> tuple[Any, Any]:
    """The same without those gradients."""
    return made({}, detached=True)


@pytest.fixture(scope="module")
def flows() -> tuple[Any, Any]:
    """A flow policy through a flow."""
    return made(FLOW, detached=False, policy="flow", flow_substeps=1)


@pytest.mark.parametrize("case", ["whole", "flows"])
def test_the_actor_gradient_is_that_of_finite_differences(case: str, request: pytest.FixtureRequest) -> None:
    state, worth = request.getfixturevalue(case)
    _, gradient = worth(state.actor, state)
    flat, unravel = ravel_pytree(eqx.filter(state.actor, eqx.is_inexact_array))
    slopes, _ = ravel_pytree(gradient)
    assert float(jnp.linalg.norm(slopes)) > 1e-3
    for seed in range(4):
        # Along the gradient and along random ways that are not orthogonal to it.
        way = slopes / jnp.linalg.norm(slopes) + 0.2 * seed * jax.random.normal(jax.random.key(seed), flat.shape)
        way = way / jnp.linalg.norm(way)
        ahead, behind = (
            float(worth(eqx.combine(unravel(flat + sign * 2e-2 * way), state.actor), state)[0]) for sign in (1, -1)
        )
        assert (ahead - behind) / 4e-2 == pytest.approx(float(slopes @ way), rel=0.05, abs=5e-4)


def test_the_actor_gradient_is_zero_where_reward_and_value_are_constant(detached: tuple[Any, Any]) -> None:
    state, worth = detached

    def constant(last: Any, value: float) -> Any:
        parts = (jnp.zeros_like(last.weight), jnp.full_like(last.bias, value))
        return eqx.tree_at(lambda made: (made.weight, made.bias), last, parts)

    model, critics = state.model, state.critics
    model = eqx.tree_at(lambda made: made.reward_head.last, model, constant(model.reward_head.last, 2.5))
    # A continue probability that is 1 but for rounding.
    model = eqx.tree_at(lambda made: made.termination_head.last, model, constant(model.termination_head.last, -40.0))
    critics = eqx.tree_at(lambda made: made.members.last, critics, constant(critics.members.last, 7.0))
    value, gradient = worth(state.actor, state._replace(model=model, critics=critics))
    discounts = 0.99 ** np.arange(4)
    assert float(value) == pytest.approx(2.5 * discounts[:3].sum() + 7.0 * discounts[3], rel=1e-5)
    assert all(float(jnp.abs(leaf).max()) == 0.0 for leaf in jax.tree.leaves(gradient))


def test_without_detaching_gradients_also_pass_through_what_the_policy_sees(
    whole: tuple[Any, Any], detached: tuple[Any, Any]
) -> None:
    one, other = (worth(state.actor, state) for state, worth in (whole, detached))
    assert float(one[0]) == pytest.approx(float(other[0]), rel=1e-5)
    slopes = [ravel_pytree(gradient)[0] for _, gradient in (one, other)]
    assert float(jnp.abs(slopes[0] - slopes[1]).max()) > 1e-5


def some_rollout(continue_prob: np.ndarray | None = None) -> DifferentiableRollout:
    """Three steps of two starts with known rewards."""
    reward = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    going = jnp.ones((3, 2)) if continue_prob is None else jnp.asarray(continue_prob)
    return DifferentiableRollout(jnp.zeros((4, 2, 8)), jnp.zeros((3, 2, 1)), reward, going, -jnp.ones((3, 2)))


def test_a_rollout_is_worth_its_rewards_and_the_last_value_at_the_right_power_of_the_discount() -> None:
    worth = imagined_return(some_rollout(), jnp.array([10.0, 20.0]), 0.5)
    np.testing.assert_allclose(worth, [1 + 1.5 + 1.25 + 10 / 8, 2 + 2 + 1.5 + 20 / 8])


def test_what_comes_after_an_imagined_termination_is_worth_nothing() -> None:
    continue_prob = np.array([[1.0, 1.0], [0.0, 0.25], [1.0, 1.0]])
    worth = imagined_return(some_rollout(continue_prob), jnp.array([10.0, 20.0]), 0.5)
    np.testing.assert_allclose(worth, [1 + 1.5, 2 + 2 + 0.25 * (1.5 + 20 / 8)])


def recorded(count: int) -> RecordedSteps:
    """Recorded steps of the toy task."""
    return RecordedSteps(jnp.ones((count, 2)), jnp.zeros((count, toy.SPEC.action_size)))


@pytest.mark.parametrize(("scale", "expected"), [(0.0, 1.0), (1.0, 1.0 / (1.0 + np.exp(-4.0)))])
def test_without_a_weight_of_terminations_no_imagined_step_is_the_last(scale: float, expected: float) -> None:
    agent = toy.make_agent(toy.SPEC._replace(terminates=True))
    state, scalars = toy.fresh(agent), jax.tree.map(jnp.asarray, traced_values(agent.settings))
    scalars["world_model"]["termination_scale"] = jnp.asarray(scale)
    _, metrics = eqx.filter_jit(agent.update_behavior)(
        state, recorded(STARTS), jax.random.key(0), scalars, jnp.zeros(())
    )
    assert float(metrics["imagined/continue_prob"]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_critic_targets_are_the_explicit_mixture_of_n_step_returns(gae_lambda: float) -> None:
    discount, continue_prob = 0.9, np.array([[1.0, 1.0], [0.3, 1.0], [1.0, 0.0]])
    values = np.array([[0.5, -1.0], [2.0, 0.7], [1.5, 3.0], [4.0, -2.0]])
    rollout = some_rollout(continue_prob)
    settings = PwmBehaviorSettings(discount=discount, gae_lambda=gae_lambda)
    targets, weights = critic_targets(rollout, jnp.asarray(values), settings)
    reward = np.asarray(rollout.reward)

    def n_step(t: int, n: int) -> np.ndarray:
        total, factor = np.zeros(2), np.ones(2)
        for k in range(t, t + n):
            total = total + factor * reward[k]
            factor = factor * discount * continue_prob[k]
        return total + factor * values[t + n]

    for t in range(3):
        left = 3 - t
        mixture = sum((1 - gae_lambda) * gae_lambda ** (n - 1) * n_step(t, n) for n in range(1, left))
        mixture = mixture + gae_lambda ** (left - 1) * n_step(t, left)
        np.testing.assert_allclose(targets[t], mixture, rtol=1e-5)
    np.testing.assert_allclose(weights, [[1, 1], [1, 1], [0.3, 1]])


def test_the_least_of_the_critics_counts(whole: tuple[Any, Any]) -> None:
    z = jnp.linspace(0.0, 1.0, 80).reshape(5, 16)
    everyone, least = eqx.filter_jit(lambda critics: (critics.all(z), critics(z)))(whole[0].critics)
    assert everyone.shape == (3, 5)
    np.testing.assert_allclose(least, np.asarray(everyone).min(0))
    assert np.ptp(np.asarray(everyone), axis=0).min() > 0


@pytest.mark.parametrize("policy", ["gaussian", "flow"])
def test_actions_are_bounded_deterministic_without_noise_and_spread_with_it(policy: str) -> None:
    state = toy.lively(toy.make_agent(behavior={"policy": policy}))
    act = eqx.filter_jit(lambda actor, z, noise: actor(z, noise))
    z = jnp.zeros((400, 16))
    still = np.asarray(act(state.actor, z, jnp.zeros((400, 1))))
    noisy = np.asarray(act(state.actor, z, jax.random.normal(jax.random.key(0), (400, 1))))
    assert np.ptp(still) == 0.0
    assert np.abs(noisy).max() <= 1.0
    assert noisy.std() > 0.05


def test_the_entropy_of_the_gaussian_policy_is_that_of_its_actions() -> None:
    actor = toy.lively(toy.make_agent()).actor
    z, noise = jnp.zeros((50, 16)), jax.random.normal(jax.random.key(0), (50, 1))
    raw = actor.unbounded(z, noise)
    density = jax.scipy.stats.norm.logpdf(raw, actor.network(z), actor.std) - jnp.log(1.0 - jnp.tanh(raw) ** 2)
    constant = (0.5 * jnp.log(2 * jnp.pi) + 0.5 * noise**2).mean(-1)
    np.testing.assert_allclose(actor.entropy(raw) + constant, -density.mean(-1), rtol=1e-3, atol=1e-4)
    assert np.isfinite(actor.entropy(jnp.array([[60.0], [-60.0]]))).all(), "also where actions are at their limits"


def test_actions_that_only_fill_up_have_no_entropy() -> None:
    actor = toy.lively(toy.make_agent()).actor
    raw, filled = jnp.array([[0.3], [-2.0]]), jnp.array([[0.3, 9.0], [-2.0, 0.0]])
    np.testing.assert_allclose(actor.entropy(filled, jnp.array([1.0, 0.0])), actor.entropy(raw), rtol=1e-5)


def test_entropy_is_paid_in_the_return_and_in_the_targets() -> None:
    rollout, last = some_rollout(), jnp.zeros(2)
    plain, with_entropy_bonus = (
        imagined_return(rollout.with_entropy_bonus(entropy_coef), last, 0.5) for entropy_coef in (0.0, 0.1)
    )
    np.testing.assert_allclose(plain - with_entropy_bonus, 0.1 * (1 + 0.5 + 0.25), rtol=1e-5)
    np.testing.assert_allclose(rollout.with_entropy_bonus(0.1).reward, rollout.reward - 0.1)


def test_where_nothing_else_is_paid_entropy_opens_the_policy() -> None:
    """Noise grows, and actions move away from their limits."""
    agent = toy.make_agent()
    first = toy.fresh(agent)
    # A fresh reward head says 0 already.
    narrow = eqx.tree_at(lambda made: made.log_std, toy.lively(agent, 1.0).actor, jnp.full(1, -1.2))
    state = first._replace(actor=narrow, critics=jax.tree.map(lambda part: 0 * part, first.critics))
    start, scales = RolloutStart(jnp.full((8, 16), 0.125), jnp.ones(8)), toy.behavior_scales(entropy_coef=1.0)
    inputs = (jnp.asarray(1e-2), scales, False)
    before, learn, entropies = float(state.actor.std.mean()), eqx.filter_jit(agent._learn_actor), []
    for seed in range(12):
        state, rollout, _ = learn(state, start, jax.random.key(seed), inputs)
        entropies.append(float(rollout.entropy.mean()))
    assert np.mean(entropies[-3:]) > np.mean(entropies[:3]) + 0.1
    assert float(state.actor.std.mean()) > before


def test_a_cloning_scale_keeps_the_policy_at_the_recorded_actions() -> None:
    """Rewards pull the actions to one side, the recording holds them on the other."""
    agent = toy.make_agent()
    first = toy.fresh(agent)._replace(model=toy.lively(agent).model)
    z = jax.nn.softmax(jax.random.normal(jax.random.key(0), (8, 2, 8))).reshape(8, 16)
    recorded = jnp.full((8, 1), -0.5)
    start = RolloutStart(z, jnp.ones(8), recorded=(z, recorded))
    learn, reached = eqx.filter_jit(agent._learn_actor), {}
    for scale in (0.0, 100.0):
        state = first
        scales = toy.behavior_scales(cloning_scale=scale)
        for seed in range(60):
            state, _, _ = learn(state, start, jax.random.key(seed), (jnp.asarray(1e-2), scales, False))
        reached[scale] = float(cloning_loss(state.actor, start.z, recorded, None))
    assert reached[100.0] < 0.01 < 0.1 < reached[0.0]


def test_imagined_returns_are_divided_by_no_less_than_the_floor_of_their_deviation() -> None:
    """Otherwise cloning counts for nothing where all starts are worth the same."""
    agent = toy.make_agent()
    lively = toy.lively(agent)
    first = toy.fresh(agent)._replace(model=lively.model, actor=lively.actor)
    start = RolloutStart(jnp.full((8, 16), 0.125), jnp.ones(8))
    learn, losses = eqx.filter_jit(agent._learn_actor), {}
    for floor in (0.0, 1e-3, 50.0):
        inputs = (jnp.asarray(1e-2), toy.behavior_scales(min_return_std=floor), False)
        state, _, metrics = learn(first, start, jax.random.key(0), inputs)
        losses[floor] = float(metrics["actor/loss"])
    deviation = float(state.returns.deviation)
    assert 1e-3 < deviation < 50.0
    assert losses[0.0] == losses[1e-3]
    assert losses[0.0] / losses[50.0] == pytest.approx(50.0 / deviation, rel=1e-4)


def test_recorded_targets_end_with_the_episode_and_continue_with_the_value_where_it_is_cut_off() -> None:
    """Three windows of three transitions: whole, terminated after two, and cut off without termination after two."""
    reward, values = jnp.full((3, 3), 2.0).at[2, 1:].set(9.0), jnp.full((4, 3), 10.0).at[3].set(50.0)
    continues = jnp.ones((3, 3)).at[1, 1].set(0.0)
    valid = jnp.ones((3, 3)).at[2, 1:].set(0.0)
    settings = PwmBehaviorSettings(discount=0.5, gae_lambda=1.0)
    found = recorded_targets(LatentWindows(jnp.zeros((4, 3, 1)), reward, continues, valid), values, settings)
    np.testing.assert_allclose(found[:, 0], [2 + 1 + 0.5 + 0.125 * 50, 2 + 1 + 0.25 * 50, 2 + 0.5 * 50])
    np.testing.assert_allclose(found[:2, 1], [2 + 0.5 * 2, 2])
    np.testing.assert_allclose(found[:2, 2], [2 + 0.5 * 2 + 0.25 * 10, 2 + 0.5 * 10])
    one_step = recorded_targets(
        LatentWindows(jnp.zeros((4, 3, 1)), reward, continues, valid),
        values,
        PwmBehaviorSettings(discount=0.5, gae_lambda=0.0),
    )
    np.testing.assert_allclose(one_step[:2, 2], [2 + 0.5 * 10, 2 + 0.5 * 10])


def recorded_windows(z: Array, reward: float, valid: float = 1.0) -> LatentWindows:
    """One transition from every latent (S, L), each the last of its episode."""
    count = len(z)
    ones = jnp.ones((1, count))
    return LatentWindows(jnp.stack([z, z]), reward * ones, 0.0 * ones, valid * ones)


def test_critics_learn_recorded_returns_beside_imagined_ones() -> None:
    """Recorded steps end with a reward of 3; imagined ones have none."""
    agent = toy.make_agent(behavior={"recorded_value_scale": 10.0, "critic_batches": 2})
    first = toy.fresh(agent)
    z = jax.nn.softmax(jax.random.normal(jax.random.key(0), (8, 2, 8))).reshape(8, 16)
    rollout = DifferentiableRollout(jnp.broadcast_to(z, (5, 8, 16)), *some_rewards((4, 8)))
    learn, values = eqx.filter_jit(agent._learn_critics), {}
    cases = {"none": None, "recorded": recorded_windows(z, 3.0), "padding": recorded_windows(z, 3.0, valid=0.0)}
    for name, windows in cases.items():
        state, start = first, RolloutStart(z, jnp.ones(8), windows=windows)
        for seed in range(60):
            state, metrics = learn(state, rollout, start, jax.random.key(seed), jnp.asarray(1e-2))
        values[name] = float(state.critics(z).mean())
        assert ("recorded/reward" in metrics) == (windows is not None)
    assert abs(values["none"]) < 0.3 and abs(values["padding"]) < 0.3
    assert values["recorded"] == pytest.approx(3.0 * 10 / 11, abs=0.4)


def some_rewards(shape: tuple[int, int]) -> tuple[Array, ...]:
    """Actions, rewards of 0, continuations of 0 and entropies of imagined steps (H, S)."""
    zero = jnp.zeros(shape)
    return zero[..., None], zero, zero, zero


def test_without_a_weight_of_the_return_the_actor_clones_alone() -> None:
    """Other critics then lead to the same actor; with a weight of 1 to another."""
    agent = toy.make_agent()
    lively = toy.lively(agent)
    first = toy.fresh(agent)._replace(model=lively.model, actor=lively.actor, critics=lively.critics)
    others = first._replace(critics=jax.tree.map(lambda part: -3 * part, first.critics))
    z = jax.nn.softmax(jax.random.normal(jax.random.key(0), (8, 2, 8))).reshape(8, 16)
    recorded = (z, jnp.full((8, 1), -0.5))
    scales = toy.behavior_scales(cloning_scale=2.0)
    learn, same = eqx.filter_jit(agent._learn_actor), {}
    for weight in (0.0, 1.0):
        start = RolloutStart(z, jnp.ones(8), recorded=recorded, return_scale=jnp.asarray(weight))
        found = [
            learn(state, start, jax.random.key(1), (jnp.asarray(1e-2), scales, False)) for state in (first, others)
        ]
        leaves = [jax.tree.leaves(eqx.filter(state.actor, eqx.is_array)) for state, _, _ in found]
        same[weight] = all(bool((one == other).all()) for one, other in zip(*leaves, strict=True))
        metrics = found[0][2]
        if not weight:
            assert float(metrics["actor/loss"]) == pytest.approx(2.0 * float(metrics["actor/cloning_distance"]))
    assert same == {0.0: True, 1.0: False}


def test_the_distance_to_recorded_actions_leaves_out_those_that_a_task_does_not_have() -> None:
    actor = toy.lively(toy.make_agent()).actor
    z = jnp.full((4, 16), 0.125)
    recorded = actor(z, jnp.zeros((4, 1))) + 0.5
    assert float(cloning_loss(actor, z, recorded, jnp.ones(1))) == pytest.approx(0.25, rel=1e-5)
    assert float(cloning_loss(actor, z, recorded, None)) == pytest.approx(0.25, rel=1e-5)


def test_the_noise_of_the_gaussian_policy_has_a_floor() -> None:
    actor = toy.lively(toy.make_agent()).actor
    for log_std, expected in ((-9.0, -1.427), (-1.0, -1.0), (0.5, 0.5)):
        clipped = eqx.tree_at(lambda made: made.log_std, actor, jnp.array([log_std]))
        assert float(clipped.std[0]) == pytest.approx(np.exp(expected), rel=1e-5)


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


def test_small_rewards_are_not_blown_up_and_large_ones_are_brought_down() -> None:
    scales = {"min_reward_scale": jnp.asarray(1.0)}
    for size, unit in ((0.01, 1.0), (4.0, 4.0)):
        moments = update_moments(init_moments(), jnp.full(8, size), jnp.ones(8))
        assert float(reward_scale(moments, scales)) == pytest.approx(unit, rel=1e-4)


def test_errors_of_rewards_count_in_their_own_deviations_down_to_a_least_one() -> None:
    scales = {"min_reward_scale": jnp.asarray(1.0), "min_reward_std": jnp.asarray(0.01)}
    for half, counted in ((0.05, 0.05), (3.0, 3.0), (0.001, 0.01)):
        moments = update_moments(init_moments(), jnp.array([2.0 - half, 2.0 + half]), jnp.ones(2))
        unit = reward_scale(moments, scales)
        error = 0.7 / unit
        emphasis = reward_loss_factor(moments, unit, scales)
        assert float(emphasis * error**2) == pytest.approx((0.7 / counted) ** 2, rel=0.02)


def test_every_round_steps_the_actor_once_and_the_critics_through_their_passes() -> None:
    agent = toy.make_agent(behavior={"rounds": 3, "critic_passes": 2, "critic_batches": 2})
    learn = eqx.filter_jit(agent.update_behavior)
    state = toy.fresh(agent)
    scalars = jax.tree.map(jnp.asarray, traced_values(agent.settings))
    after, _ = learn(state, recorded(8), jax.random.key(1), scalars, jnp.zeros(()))
    steps = {name: int(after.optimisers[name].steps) for name in ("actor", "critics", "model")}
    assert steps == {"actor": 3, "critics": 12, "model": 0}
    assert int(after.gradient_steps - state.gradient_steps) == 15


def test_every_round_imagines_from_what_the_envs_show_and_from_replayed_observations_of_its_own() -> None:
    agent = toy.make_agent(behavior={"rounds": 2, "replayed_starts": 5})
    state = toy.lively(agent)
    replayed = jax.tree.map(lambda part: part[None], toy.windows(jax.random.key(3), steps=3, batch=16))
    ended = replayed._replace(terminated=replayed.terminated.at[0, 0, 6].set(1.0))
    zero, no = jnp.zeros(2), jnp.zeros(2, bool)
    now = TimeStep(jnp.array([[1.0, 0.0], [0.0, 1.0]]), zero, zero, zero, zero, no, jnp.array([False, True]), no)
    start = agent.starts(state, now, ended)
    shown = state.model.encode(now.observation)
    firsts = state.model.encode(replayed.observation[0, 0])
    for at, own in enumerate((firsts[:5], firsts[5:10])):
        np.testing.assert_allclose(start.z[at], jnp.concatenate([shown, own]), rtol=1e-5)
    # The second env's episode is over, and so is that of the second round's second window.
    expected = np.ones((2, 7))
    expected[:, 1] = expected[1, 3] = 0.0
    np.testing.assert_array_equal(start.counts, expected)
