"""Adapters in both directions: our task for other agents, other people's environments for ours."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dreamproof.base.errors import BadInput
from dreamproof.envs.gym_adapter import from_gymnasium, make_gymnasium, make_safety_gymnasium
from dreamproof.envs.host import HostBatch, HostRules
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = pytest.mark.optimised


class Ledge(gymnasium.Env[np.ndarray, np.ndarray]):
    """Walks from 0 in steps of the action; falls off beyond 3, and costs beyond 1. Actions lie in [0, 2]."""

    def __init__(self, six_values: bool = False, cost_key: str = "cost") -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(0.0, 2.0, (1,), np.float32)
        self._six, self._cost_key = six_values, cost_key
        self._place = self._seed = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts at 0."""
        self._place, self._seed = 0.0, self._seed if seed is None else float(seed % 1000)
        return self._look(), {}

    def _look(self) -> np.ndarray:
        return np.array([self._place, self._seed], np.float32)

    def step(self, action: np.ndarray) -> Any:
        """Moves on."""
        self._place += float(action[0])
        cost, fell = float(self._place > 1), self._place > 3
        if self._six:
            return self._look(), 1.0, cost, fell, False, {}
        return self._look(), 1.0, fell, False, {self._cost_key: cost}


def test_our_task_passes_gymnasiums_own_checks() -> None:
    env = make_gymnasium("SafetyPointGoal1", {"ghost_slots": 0, "episode_simulator_steps": 25})
    check_env(env, skip_render_check=True)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    other, _ = env.reset()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    for step in range(5):
        observation, reward, terminated, truncated, info = env.step(np.array([1.0, 0.1], np.float32))
        assert (terminated, truncated) == (False, step == 4)
    assert observation.shape == (29,)
    assert isinstance(reward, float)
    assert set(info) == {"cost", "margin", "goals"}


def test_the_safety_form_returns_six_values() -> None:
    env = make_safety_gymnasium("ProbeCostLine")
    env.reset(seed=0)
    for _ in range(4):
        observation, reward, cost, terminated, truncated, info = env.step(np.array([1.0]))
    assert observation == pytest.approx([0.8])
    assert (reward, cost, terminated, truncated) == (pytest.approx(0.8), 1.0, False, False)
    assert info["cost"] == cost


@pytest.mark.parametrize("six_values", [False, True])
def test_a_gymnasium_env_runs_inside_a_compiled_loop(six_values: bool) -> None:
    env = from_gymnasium(lambda: Ledge(six_values), "Ledge", HostRules(episode_agent_steps=50))
    assert (env.spec.observation_size, env.spec.action_size, env.spec.has_cost) == (2, 1, True)

    @jax.jit
    def run(keys: jax.Array) -> Any:
        state, shown = env.reset(keys, ())

        def tick(carry: Any, step: jax.Array) -> Any:
            state, shown = env.step(noise_keys(0, "train", 2, step), carry, jnp.array([[0.0], [-1.0]]), ())
            return state, shown

        return shown, jax.lax.scan(tick, state, jnp.arange(5))[1]

    first, seen = run(layout_keys(0, "train", 2, 0))
    assert first.observation[0, 1] != first.observation[1, 1]
    # The middle of [0, 2] is a step of 1: places 1, 2, 3, then 4, where the episode ends and restarts at 0.
    np.testing.assert_allclose(seen.observation[:, 0, 0], [1, 2, 3, 0, 1])
    np.testing.assert_allclose(seen.final_observation[:, 0, 0], [1, 2, 3, 4, 1])
    np.testing.assert_allclose(seen.cost[:, 0], [0, 1, 1, 1, 0])
    assert seen.terminated[:, 0].tolist() == seen.first[:, 0].tolist() == [False, False, False, True, False]
    # The lower end stands still.
    np.testing.assert_allclose(seen.observation[:, 1, 0], 0)


def test_a_batch_that_does_not_restart_stands_still_after_the_end() -> None:
    batch = HostBatch(Ledge, "Ledge", HostRules(restarts=False))
    batch.reset([1])
    seen = [batch.step(np.ones((1, 1))) for _ in range(4)]
    assert [float(shown.observation[0, 0]) for shown in seen] == [2, 4, 4, 4]
    assert [bool(shown.terminated[0]) for shown in seen] == [False, True, True, True]
    assert [float(shown.reward[0]) for shown in seen] == [1, 1, 0, 0]


def test_a_missing_cost_is_refused_with_the_remedy() -> None:
    batch = HostBatch(lambda: Ledge(cost_key="damage"), "Ledge", HostRules())
    batch.reset([0])
    with pytest.raises(BadInput, match="holds no 'cost' \\(it holds damage\\)") as caught:
        batch.step(np.zeros((1, 1)))
    assert "cost_key" in caught.value.hint
    named = HostBatch(lambda: Ledge(cost_key="damage"), "Ledge", HostRules(cost_key="damage"))
    named.reset([0])
    assert float(named.step(np.ones((1, 1))).cost[0]) == 1.0
    free = HostBatch(lambda: Ledge(cost_key="damage"), "Ledge", HostRules(has_cost=False))
    free.reset([0])
    assert float(free.step(np.ones((1, 1))).cost[0]) == 0.0


def test_a_margin_is_read_where_it_is_named_and_never_made_up() -> None:
    class Measured(Ledge):
        def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
            return super().reset(**options)[0], {"to_edge": 1.0}

        def step(self, action: np.ndarray) -> Any:
            *rest, info = super().step(action)
            return (*rest, info | {"to_edge": 1.0 - self._place})

    assert not HostBatch(Ledge, "Ledge", HostRules()).spec.has_margin
    named = HostBatch(Measured, "Measured", HostRules(margin_key="to_edge"))
    assert named.spec.has_margin
    assert float(named.reset([0]).margin[0]) == 1.0
    assert float(named.step(np.zeros((1, 1))).margin[0]) == 0.0
    with pytest.raises(BadInput, match=r"holds no 'to_edge' \(it holds nothing\)") as caught:
        HostBatch(Ledge, "Ledge", HostRules(margin_key="to_edge")).reset([0])
    assert "margin_key" in caught.value.hint


def test_environments_that_do_not_fit_are_refused_with_the_remedy() -> None:
    class Buttons(Ledge):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(3)

    class Parts(Ledge):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gymnasium.spaces.Dict({"place": self.observation_space})

    with pytest.raises(BadInput, match="bounded box"):
        HostBatch(Buttons, "Buttons", HostRules())
    with pytest.raises(BadInput, match="one array"):
        HostBatch(Parts, "Parts", HostRules())


def test_stepping_before_a_reset_is_refused() -> None:
    with pytest.raises(BadInput, match="before it was reset"):
        HostBatch(Ledge, "Ledge", HostRules()).step(np.zeros((1, 1)))
