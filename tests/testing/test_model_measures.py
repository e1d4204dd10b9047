"""World models are measured on their own agent's episodes apart from those of others, in the rewards of the task."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from tests.agents.pwm.toy import lively, make_agent

from dreamproof.agents.normalisation import Moments
from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Env, Params, Spec, State, TimeStep
from dreamproof.settings.traced import traced_values
from dreamproof.testing import model_measures as measures
from dreamproof.testing.model_measures import HORIZONS, STEPS, ModelMeasures, TrainedAgent, check_same_task, measure


class _Clock(NamedTuple):
    agent_steps: Array


@dataclass(frozen=True)
class SumOfActions(Env):
    """Shows the last action and the time; the reward is the sum of the action."""

    @property
    def spec(self) -> Spec:
        return Spec("Sum", observation_size=4, action_size=2, episode_agent_steps=40, has_cost=False)

    def default_params(self) -> Params:
        return jnp.zeros(())

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        return self._shown(_Clock(jnp.zeros(keys.shape[0], jnp.int32)), jnp.zeros((keys.shape[0], 2)))

    def step(self, keys: Array, state: _Clock, action: Array, params: Params) -> tuple[State, TimeStep]:
        return self._shown(_Clock(state.agent_steps + 1), action)

    def _shown(self, state: _Clock, action: Array) -> tuple[State, TimeStep]:
        zero, no = jnp.zeros(action.shape[0]), jnp.zeros(action.shape[0], bool)
        observation = jnp.pad(action, ((0, 0), (0, 2))) + 0.01 * state.agent_steps[:, None]
        ends = state.agent_steps >= self.spec.episode_agent_steps
        return state, TimeStep(observation, action.sum(-1), zero, zero, zero, state.agent_steps == 0, no, ends)


DEVIATION, ROOT_MEAN_SQUARE = 3.0, 5.0


def trained(arm: str, task: str = "Sum", spread: float = 0.3, **settings: Any) -> TrainedAgent:
    """A small agent that was never trained, with rewards of a known deviation and size."""
    env = SumOfActions()
    agent = make_agent(env.spec, **settings)
    mean = (ROOT_MEAN_SQUARE**2 - DEVIATION**2) ** 0.5
    rewards = Moments(*(np.float32(part) for part in (mean, ROOT_MEAN_SQUARE**2, 1.0)))
    state = lively(agent, spread)._replace(rewards=rewards)
    return TrainedAgent(arm, 0, task, agent, env, state, traced_values(agent.settings))


def measured(agents: list[TrainedAgent], monkeypatch: pytest.MonkeyPatch) -> list[ModelMeasures]:
    """All agents on the episodes of all."""
    monkeypatch.setattr(measures, "REPEATS", 1)
    played = [measures.play(agent, 2, 3) for agent in agents]
    starts, player = measures.join(played), np.repeat(np.arange(len(agents)), [6] * len(agents))
    true = np.asarray(measures.true_gradients(agents[0].env, starts, 0.99), np.float64)
    assert starts.reward.shape == (STEPS + 1, 6 * len(agents)) and true.shape == (len(HORIZONS), 6 * len(agents), 2)
    np.testing.assert_allclose(true, 1.0, atol=1e-3)  # the reward of this env is the sum of the action
    return [measure(agent, starts, true, player == number) for number, agent in enumerate(agents)]


def test_own_and_others_episodes_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    both = measured([trained("a"), trained("b", spread=0.2)], monkeypatch)
    alone = measured([trained("a")], monkeypatch)
    assert alone[0].others is None and both[0].others is not None
    assert both[0].own.reward == pytest.approx(alone[0].own.reward, rel=1e-3)
    assert both[0].own.latent == pytest.approx(alone[0].own.latent, rel=1e-3)
    assert both[0].others.latent != pytest.approx(both[0].own.latent, rel=1e-3)
    rows = measures.table(both)[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| `{arm}`", f"{whose} episodes"] for arm in "ab" for whose in ("own", "others'")
    ]
    assert [measures.from_row(json.loads(json.dumps(measures.as_row(each)))) for each in both] == both


def test_no_measure_of_the_dynamics_leaves_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(HORIZONS) == 2, "the return of one imagined step contains the reward head alone"
    (found,) = measured([trained("a")], monkeypatch)
    places = {name: at for name, (_, _, at) in measures.PANELS.items()}
    assert all(len(getattr(found.own, name)) == len(at) for name, at in places.items())
    assert places["reward"][0] == 0 and "reward head alone" in measures.PANELS["reward"][1]
    assert "reward head alone" in measures.table([found])[0]


def test_gradients_are_in_the_rewards_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    (scaled,) = measured([trained("a")], monkeypatch)
    (standardised,) = measured([trained("a", world_model={"reward_normalisation": "standardise"})], monkeypatch)
    ratios = np.asarray(standardised.own.gain) / np.asarray(scaled.own.gain)
    np.testing.assert_allclose(ratios, DEVIATION / ROOT_MEAN_SQUARE, rtol=1e-3)


@pytest.mark.parametrize(
    ("other", "name"),
    [(trained("b", task="Other"), "task"), (trained("b", behavior={"discount": 0.9}), "discount")],
    ids=["task", "discount"],
)
def test_agents_of_another_task_or_discount_are_refused(other: TrainedAgent, name: str) -> None:
    check_same_task([trained("a"), trained("c")])
    with pytest.raises(BadInput, match=f"b/0 has another {name} than a/0"):
        check_same_task([trained("a"), other])
