"""Probe tasks: their known answers are really the answers."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs.probes import PROBES, ProbeEnv
from dreamproof.evaluate.drawing import NEEDED
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = pytest.mark.optimised

COUNT = 256


def play(probe: ProbeEnv, policy: Callable[[jax.Array, list[jax.Array], int], jax.Array]) -> tuple[float, float]:
    """Mean return and cost of one episode of many envs; the policy may look at all it has seen."""
    params = probe.default_params()
    state, shown = probe.reset(layout_keys(0, "train", COUNT, 0), params)
    seen, returns, costs = [shown.observation], jnp.zeros(COUNT), jnp.zeros(COUNT)
    step_all = jax.jit(probe.step)
    for step in range(probe.episode_agent_steps):
        action = policy(jax.random.key(step), seen, step)
        state, shown = step_all(noise_keys(0, "train", COUNT, step), state, action[:, None], params)
        seen.append(shown.observation)
        returns, costs = returns + shown.reward, costs + shown.cost
    assert bool(shown.truncated.all())
    return float(returns.mean()), float(costs.mean())


BEST = {
    "ProbeTarget": lambda key, seen, step: seen[-1][:, 0],
    "ProbeCredit": lambda key, seen, step: seen[-1][:, 0],
    "ProbeRecall": lambda key, seen, step: seen[0][:, 0],
    "ProbeSurvive": lambda key, seen, step: jnp.ones(COUNT),
    "ProbeCostLine": lambda key, seen, step: jnp.ones(COUNT),
}


@pytest.mark.parametrize("name", list(PROBES))
def test_the_best_policy_reaches_the_known_best(name: str) -> None:
    probe = PROBES[name]()
    assert play(probe, BEST[name])[0] == pytest.approx(probe.known().best_return, abs=1e-3)


@pytest.mark.parametrize("name", list(PROBES))
def test_random_actions_earn_the_known_floor(name: str) -> None:
    probe = PROBES[name]()
    got, _ = play(probe, lambda key, seen, step: jax.random.uniform(key, (COUNT,), minval=-1, maxval=1))
    assert got == pytest.approx(probe.known().random_return, abs=0.5)


def test_walking_to_the_border_is_the_best_safe_walk() -> None:
    probe = PROBES["ProbeCostLine"]()
    toward = lambda key, seen, step: jnp.clip((0.5 - seen[-1][:, 0]) / 0.2, -1, 1)  # noqa: E731
    got, cost = play(probe, toward)
    assert got == pytest.approx(probe.known().best_safe_return, abs=1e-3)
    assert cost == 0
    _, reckless = play(probe, BEST["ProbeCostLine"])
    assert reckless == pytest.approx(18.0)


def test_recall_cannot_be_solved_without_memory() -> None:
    probe = PROBES["ProbeRecall"]()
    _, shown = probe.reset(layout_keys(0, "train", COUNT, 0), probe.default_params())
    assert set(np.unique(shown.observation[:, 0])) == {-1.0, 1.0}
    forgetful, _ = play(probe, lambda key, seen, step: jnp.sign(seen[-1][:, 0]))
    assert forgetful == pytest.approx(1.0)


def test_the_walk_on_the_line_can_be_drawn() -> None:
    env = PROBES["ProbeCostLine"]()
    params = env.default_params()
    state, _ = env.reset(jax.random.split(jax.random.key(0), 3), params)
    state, _ = env.step(jax.random.split(jax.random.key(1), 3), state, jnp.ones((3, 1)), params)
    places = env.render_state(state, params)
    assert set(NEEDED) <= set(places)
    assert jnp.allclose(places["agent"], jnp.array([0.2, 0.9]))  # one stride to the right, one step of twenty down
    left = (places["hazards"][0, :, 0] - places["hazard_radius"][0]).min()
    assert jnp.isclose(left, 0.5)  # what costs begins at the border
