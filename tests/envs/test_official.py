"""The real environment behind our functions; skipped where the extra `official` is not installed."""

import importlib.util
import sys

import jax
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.envs import official, registry
from dreamproof.envs.scripted import go_to_goal_policy
from dreamproof.jaxcore.keys import layout_keys, noise_keys
from dreamproof.settings.env import EnvSettings

pytestmark = pytest.mark.optimised

INSTALLED = all(importlib.util.find_spec(name) for name in ("safety_gymnasium", "mujoco", "xmltodict"))
needs_official = pytest.mark.skipif(not INSTALLED, reason="make official")


@needs_official
def test_the_real_task_shows_the_same_observation_as_ours() -> None:
    real = official.OfficialPointGoal(EnvSettings())
    ours = registry.make("SafetyPointGoal1").spec
    observation, info = real.reset(seed=0)
    assert observation.shape == (ours.observation_size,) == (33,)
    facts = real.facts()
    goal = ours.slot("goal")
    assert goal is not None
    assert np.linalg.norm(observation[goal]) == pytest.approx(np.linalg.norm(facts.goal - facts.place), abs=1e-5)
    np.testing.assert_allclose(observation[25:29], [3, 0, 3, 0])
    np.testing.assert_allclose(observation[31:33], facts.place, atol=1e-6)
    assert 0 <= info["margin"] <= 0.5
    assert official.OfficialPointGoal(EnvSettings(observation="lidar")).reset(seed=0)[0].shape == (60,)


@needs_official
def test_a_policy_runs_on_the_real_task_through_the_same_functions() -> None:
    env = registry.make("OfficialSafetyPointGoal1")
    assert env.spec.slots == registry.make("SafetyPointGoal1").spec.slots
    policy = go_to_goal_policy(env.spec)
    step_all = jax.jit(lambda keys, state, action: env.step(keys, state, action, ()))
    state, shown = env.reset(layout_keys(0, "test", 2, 0), ())
    total = np.zeros(2)
    for step in range(200):
        action = policy(jax.random.key(0), shown.observation)
        state, shown = step_all(noise_keys(0, "test", 2, step), state, action)
        total += np.asarray(shown.reward)
    assert (total > 10).all()
    assert bool(shown.truncated.all())
    assert not bool(shown.terminated.any())


@needs_official
def test_dataclasses_are_as_strict_as_before_once_the_package_is_loaded() -> None:
    import dataclasses

    official.load_builder()
    with pytest.raises(ValueError, match="mutable default"):
        dataclasses.make_dataclass("Bad", [("field", np.ndarray, np.zeros(2))])


def test_a_missing_package_is_reported_with_the_command_that_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "safety_gymnasium.builder", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput) as caught:
        official.load_builder()
    assert caught.value.hint == "make official"
