"""An episode is counted whole and once: to its own end, not beyond it, on the layouts that everyone gets."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs.episodes import Episodes, complete_episodes, episode_keys, shared_episodes
from dreamproof.envs.probes import CreditProbe, SurviveProbe
from dreamproof.envs.shift import find_condition
from dreamproof.evaluate.episodes import floor_means
from dreamproof.jaxcore.types import TimeStep

LENGTH = 10
# The step at which each env of the probe gives up; the last two never do.
LIVES = np.array([1, 4, 9, LENGTH, 99, 99])


@pytest.fixture(scope="module")
def lives() -> Episodes:
    """Six episodes of a task that ends by termination, each at a step of its own."""

    def policy(memory: Any, seen: TimeStep, index: jax.Array) -> Any:
        gives_up = index + 1 >= jnp.asarray(LIVES)
        return jnp.where(gives_up, -1.0, 1.0)[:, None], memory + 1, {"step": index + jnp.zeros(len(LIVES))}

    env = SurviveProbe(episode_agent_steps=LENGTH)
    keys = episode_keys(0, "test", len(LIVES))
    played = jax.jit(lambda: complete_episodes(env, policy, jnp.zeros(len(LIVES)), keys, env.default_params()))
    return jax.device_get(played())


def test_an_episode_ends_at_its_termination_or_with_its_time(lives: Episodes) -> None:
    np.testing.assert_array_equal(lives.lengths, np.minimum(LIVES, LENGTH))


def test_nothing_is_counted_after_the_end(lives: Episodes) -> None:
    # One reward a step alive, none for the step that ends it.
    np.testing.assert_array_equal(lives.returns, np.where(LIVES <= LENGTH, LIVES - 1, LENGTH))


def test_metrics_are_means_over_the_decisions_of_the_episode_alone(lives: Episodes) -> None:
    np.testing.assert_allclose(lives.metrics["step"], (np.minimum(LIVES, LENGTH) - 1) / 2, rtol=1e-6)


def test_all_policies_meet_the_same_layouts_and_keep_their_own_results() -> None:
    env = CreditProbe(episode_agent_steps=LENGTH)
    signs = jnp.array([1.0, -1.0, 1.0])

    def policy(memory: Any, seen: TimeStep, index: jax.Array) -> Any:
        # The first and the last follow the sign that is shown, the one between them does the opposite.
        return signs[:, None, None] * seen.observation[..., :1], memory, {"shown": seen.observation[..., 0]}

    keys = episode_keys(0, "validation", 5)
    played = jax.jit(lambda: shared_episodes(env, policy, jnp.zeros((3, 5)), keys, env.default_params()))()
    best = env.known().best_return
    np.testing.assert_allclose(played.returns, np.array([[best], [-best], [best]]) * np.ones((1, 5)))
    np.testing.assert_array_equal(played.metrics["shown"][0], played.metrics["shown"][1])
    assert len(np.unique(np.asarray(played.metrics["shown"][0]))) > 1


def test_splits_and_episodes_do_not_share_a_layout() -> None:
    keys = [jax.random.key_data(episode_keys(0, split, 4)[0]) for split in ("train", "validation", "test")]
    rows = np.concatenate([np.asarray(part).reshape(4, -1) for part in keys])
    assert len(np.unique(rows, axis=0)) == 12


def test_a_layout_does_not_depend_on_how_many_are_asked_for() -> None:
    few, many = (np.asarray(jax.random.key_data(episode_keys(0, "test", count)[0])) for count in (3, 50))
    np.testing.assert_array_equal(few, many[:3])


def test_the_random_floor_of_a_probe_is_its_known_random_return() -> None:
    env = SurviveProbe(episode_agent_steps=LENGTH)
    found = floor_means(env, find_condition(env, "id"), 2000)
    assert list(found) == ["random"]
    # Half of all random actions end an episode: the mean is known, and its standard error is 0.03 here.
    assert found["random"]["return"] == pytest.approx(env.known().random_return, abs=0.12)
    assert found["random"]["cost"] == 0.0
