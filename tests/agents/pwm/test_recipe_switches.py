"""Every switch by which recipes differ changes what it says, and nothing else."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.agents.normalisation import add_moments, init_moments
from dreamproof.agents.pwm.behavior import DifferentiableRollout, imagined_return, minibatches
from dreamproof.agents.pwm.rewards import standardised
from dreamproof.jaxcore.types import TimeStep
from dreamproof.settings.pwm import PwmBehaviorSettings
from dreamproof.settings.traced import traced_values

pytestmark = pytest.mark.long(30)

ENVS, HORIZON = 3, 4


def seen(step: int, first: list[bool] | None = None) -> TimeStep:
    """Observations (3, 2) that change with every step."""
    zero, no = jnp.zeros(ENVS), jnp.zeros(ENVS, bool)
    observation = jax.random.normal(jax.random.key(100 + step), (ENVS, 2))
    return TimeStep(observation, zero, zero, zero, zero, no if first is None else jnp.asarray(first), no, no)


class Acting:
    """An agent that acts step by step."""

    def __init__(self, explore: bool = True, **behavior: Any) -> None:
        self.agent = toy.make_agent(behavior=behavior)
        self.state, self.memory = toy.lively(self.agent), self.agent.init_memory(ENVS)

        @eqx.filter_jit
        def act(state: Any, memory: Any, seen: TimeStep, key: jax.Array) -> Any:
            return self.agent.act(state, memory, seen, key, {}, explore)

        self.compiled = act

    def act(self, shown: TimeStep, key: int = 0) -> np.ndarray:
        """The actions (3, 1) in one step."""
        decided = self.compiled(self.state, self.memory, shown, jax.random.key(key))
        self.memory = decided.memory
        return np.asarray(decided.action)


def test_open_loop_actions_depend_on_an_observation_once_in_a_horizon() -> None:
    one, other = Acting(acting="open_loop"), Acting(acting="open_loop")
    for step in range(2 * HORIZON + 1):
        # The same observations at the start of each horizon, different ones between.
        shown = seen(step), seen(step if step % HORIZON == 0 else 50 + step)
        np.testing.assert_array_equal(one.act(shown[0], step), other.act(shown[1], step))
    for step in range(2 * HORIZON + 1, 3 * HORIZON):
        np.testing.assert_array_equal(one.act(seen(0), step), other.act(seen(1), step))
    assert (one.act(seen(0)) != other.act(seen(1))).all()


def test_open_loop_latents_are_those_that_the_model_predicts() -> None:
    acting = Acting(acting="open_loop")
    model, z = acting.state.model, acting.agent.encode(acting.state.model, seen(0).observation)
    for step in range(HORIZON):
        noise = jax.random.normal(jax.random.key(step), (ENVS, 1))
        expected = acting.state.actor(z, noise)
        np.testing.assert_allclose(acting.act(seen(step), step), expected, rtol=1e-4, atol=1e-5)
        z = model.dynamics.next(z, expected)


def test_open_loop_starts_again_in_a_new_episode() -> None:
    one, other = Acting(acting="open_loop"), Acting(acting="open_loop")
    for acting in (one, other):
        acting.act(seen(0))
    again, differs = seen(1, [True, False, False]), seen(2, [True, False, False])
    is_other = (one.act(again) != other.act(differs)).any(1)
    np.testing.assert_array_equal(is_other, [True, False, False])


@pytest.mark.parametrize(("explore", "acting"), [(True, "closed_loop"), (False, "open_loop")])
def test_in_closed_loop_and_in_evaluation_every_observation_counts(explore: bool, acting: str) -> None:
    one, other = (Acting(explore, acting=acting) for _ in range(2))
    one.act(seen(0)), other.act(seen(0))
    assert (one.act(seen(1)) != other.act(seen(2))).all()


def test_minibatches_that_are_not_shuffled_are_consecutive_steps() -> None:
    settings = PwmBehaviorSettings(shuffled=False, critic_passes=2, critic_batches=3)
    expected = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(minibatches(jax.random.key(0), 12, settings), [*expected, *expected])
    drawn = np.asarray(minibatches(jax.random.key(0), 12, settings.model_copy(update={"shuffled": True})))
    assert (drawn[:3] != expected).any() and (drawn[:3] != drawn[3:]).any()
    np.testing.assert_array_equal(np.sort(drawn[:3].ravel()), np.arange(12))


def test_one_more_power_of_the_discount_counts_for_the_last_value_alone() -> None:
    rollout = DifferentiableRollout(
        jnp.zeros((3, 1, 8)), jnp.zeros((2, 1, 1)), jnp.ones((2, 1)), jnp.ones((2, 1)), jnp.zeros((2, 1))
    )
    plain, later = (float(imagined_return(rollout, jnp.full(1, 8.0), 0.5, factor)[0]) for factor in (1.0, 0.5))
    assert (plain, later) == (1.5 + 8 / 4, 1.5 + 8 / 8)


def fresh_return(power: str) -> float:
    """The imagined return of a fresh agent, whose rewards are 0 and whose values are not."""
    agent = toy.make_agent(behavior={"final_value_power": power, "rounds": 1, "discount": 0.5, "replayed_starts": 4})
    fresh, scalars = toy.fresh(agent), jax.tree.map(jnp.asarray, traced_values(agent.settings))
    drawn = jax.tree.map(lambda part: part[None], toy.windows(jax.random.key(0)))
    start = agent._start(fresh, drawn.observation[0, 0, :4], jnp.ones(4))
    start = start._replace(z=start.z[None], counts=start.counts[None])
    rates = {"actor": jnp.zeros(()), "critics": jnp.zeros(())}
    learn = eqx.filter_jit(agent._learn_behavior)
    return float(learn(fresh, start, jax.random.key(1), rates, scalars)[1]["imagined/return"])


def test_the_actor_uses_the_power_of_the_settings() -> None:
    plain = fresh_return("horizon")
    assert plain != 0.0 and fresh_return("horizon_plus_one") == pytest.approx(0.5 * plain, rel=1e-5)


def test_standardised_rewards_have_no_mean_and_are_clipped() -> None:
    windows = jax.tree.map(lambda part: part[None], toy.windows(jax.random.key(0)))
    reward = 100.0 + 10.0 * jax.random.normal(jax.random.key(1), windows.reward.shape)
    reward = reward.at[0, 1, 0].set(1e4)
    moments = add_moments(init_moments(), 100.0 + 10.0 * jnp.linspace(-3.0, 3.0, 1001), jnp.ones(1001))
    made = standardised(windows._replace(reward=reward), moments, 5.0)
    expected = np.clip((np.asarray(reward) - 100.0) / np.sqrt(np.asarray(moments.deviation) ** 2), -5.0, 5.0)
    np.testing.assert_allclose(made.reward, expected, rtol=1e-3, atol=1e-3)
    assert float(made.reward.max()) == 5.0
    np.testing.assert_array_equal(made.scale, [1.0])


def learned_rewards(**world_model: Any) -> np.ndarray:
    """Mean rewards that a model predicts, at the end of its training on rewards around 30."""
    agent = toy.make_agent(world_model={"learning_rate": 1e-2, **world_model})
    scalars = jax.tree.map(jnp.asarray, traced_values(agent.settings))

    @eqx.filter_jit
    def update(state: Any, key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        drawn = toy.windows(key, steps=1)
        drawn = jax.tree.map(lambda part: part[None], drawn._replace(reward=drawn.reward + 30.0))
        return agent.update_model(state, drawn, key, scalars, jnp.zeros(()))

    state = toy.fresh(agent)
    for index in range(300):
        state, metrics = update(state, jax.random.key(index))
    assert np.isfinite(float(metrics["model/reward_scale"]))
    drawn = toy.windows(jax.random.key(1000), batch=64)
    z = state.model.encode(drawn.observation[:-1])
    return np.asarray(state.model.reward(z, drawn.action[1:]))


def test_a_model_learns_rewards_in_the_unit_of_its_normalisation() -> None:
    assert learned_rewards().mean() == pytest.approx(1.0, abs=0.2)  # 30 in root mean squares
    standard = learned_rewards(reward_normalisation="standardise")
    assert abs(standard.mean()) < 0.3 and 0.5 < standard.std() < 2.0


def test_rewards_of_the_broken_head_are_always_zero() -> None:
    predicted = learned_rewards(reward="broken", reward_normalisation="standardise", bins=101)
    np.testing.assert_allclose(predicted, 0.0, atol=1e-5)


def test_cumulative_scales_are_those_of_all_history() -> None:
    parts = [jax.random.normal(jax.random.key(n), (50,)) * (1 + n) + n for n in range(4)]
    everything = init_moments()
    for part in parts:
        everything = add_moments(everything, part, jnp.ones(50))
    together = np.concatenate(parts)
    assert float(everything.mean) == pytest.approx(together.mean(), rel=1e-5)
    assert float(everything.deviation) == pytest.approx(together.std(), rel=1e-4)
    none = add_moments(everything, jnp.ones(3), jnp.zeros(3))
    assert [float(part) for part in none] == [float(part) for part in everything]


@pytest.mark.parametrize("kind", ["exponential", "cumulative"])
def test_scales_of_rewards_and_returns_move_as_the_settings_say(kind: str) -> None:
    agent = toy.make_agent()
    agent = type(agent)(agent.spec, agent.settings.model_copy(update={"running_scales": kind}))
    values, weights = jnp.array([1.0, 3.0]), jnp.ones(2)
    moved = agent.moved(agent.moved(init_moments(), values, weights), values, weights)
    assert float(moved.weight) == pytest.approx(4.0 if kind == "cumulative" else 1 - 0.99**2)
    assert float(moved.mean) == pytest.approx(2.0)
