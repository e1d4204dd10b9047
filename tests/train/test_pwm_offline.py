"""Recorded episodes in the layout of the multi-task sets: the row shift, filters, refusals, learning from them."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.agents.pwm.behavior import Start, dream
from dreamproof.agents.pwm.world_model import model_gradients
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec
from dreamproof.nn.optimiser import Adam, adam_step, init_adam
from dreamproof.settings.traced import traced_values
from dreamproof.train.offline import action_masks, read_episodes, sample_windows

EPISODES, LENGTH = 40, 21


def recorded() -> dict[str, np.ndarray]:
    """Episodes of two tasks: a step pays the first number seen times the action, with the other sign in task 1."""
    draw = np.random.default_rng(0)
    task = np.repeat(np.arange(2), EPISODES // 2)
    observation = draw.uniform(-1, 1, (EPISODES, LENGTH, 2)).astype(np.float32)
    action = np.full((EPISODES, LENGTH, 1), np.nan, np.float32)
    action[:, 1:] = draw.uniform(-1, 1, (EPISODES, LENGTH - 1, 1))
    reward = np.full((EPISODES, LENGTH), np.nan, np.float32)
    sign = np.where(task == 0, 1.0, -1.0)[:, None]
    reward[:, 1:] = sign * observation[:, :-1, 0] * action[:, 1:, 0]
    return {"obs": observation, "action": action, "reward": reward, "task": np.repeat(task[:, None], LENGTH, 1)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "chunk_0.npz", **recorded())
    return tmp_path / "chunk_0.npz"


def test_a_rows_reward_is_that_of_the_observation_before_it(file: Path) -> None:
    windows = sample_windows(read_episodes(file), jax.random.key(0), (4, 64), jnp.ones(()))
    sign = np.where(np.asarray(windows.task) == 0, 1.0, -1.0)
    before = np.asarray(windows.observation[:-1, :, 0]) * np.asarray(windows.action[1:, :, 0]) * sign
    np.testing.assert_allclose(windows.reward[1:], before, rtol=1e-5, atol=1e-6)
    # Read without the shift, nothing fits.
    same = np.asarray(windows.observation[1:, :, 0]) * np.asarray(windows.action[1:, :, 0]) * sign
    assert abs(np.corrcoef(np.asarray(windows.reward[1:]).ravel(), same.ravel())[0, 1]) < 0.3
    assert np.isfinite(np.asarray(windows.reward)).all() and np.isfinite(np.asarray(windows.action)).all()


def test_episodes_of_one_task_are_found_by_its_number(file: Path) -> None:
    assert set(np.asarray(read_episodes(file, only_task=1).task)) == {1}
    with pytest.raises(BadInput, match="no episode of task 7; it holds 0, 1"):
        read_episodes(file, only_task=7)


def without(name: str) -> dict[str, np.ndarray]:
    """The arrays less one."""
    return {key: value for key, value in recorded().items() if key != name}


BROKEN: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "missing": (without("reward"), "'reward' is missing"),
    "short": (recorded() | {"reward": recorded()["reward"][:, :-1]}, "'reward' has the shape"),
    "holes": (recorded() | {"obs": np.full((EPISODES, LENGTH, 2), np.nan, np.float32)}, "not finite"),
    "mixed": (recorded() | {"task": np.tile(np.arange(LENGTH), (EPISODES, 1))}, "more than one task"),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_a_file_that_is_not_in_the_layout_is_refused(tmp_path: Path, case: str) -> None:
    arrays, expected = BROKEN[case]
    np.savez(tmp_path / "bad.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=expected):
        read_episodes(tmp_path / "bad.npz")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        read_episodes(tmp_path / "none.npz")


def test_a_model_of_two_tasks_learns_both_and_its_embedding_is_learned(file: Path) -> None:
    spec = Spec("Two", observation_size=2, action_size=1, episode_agent_steps=LENGTH - 1, terminates=False)
    agent = toy.make_agent(spec, world_model={"tasks": 2, "task_size": 4, "reward": "two_hot"})
    scales = jax.tree.map(jnp.asarray, traced_values(agent.settings))["world_model"]
    episodes = read_episodes(file)

    @eqx.filter_jit
    def learn(model: Any) -> Any:
        arrays, static = eqx.partition(model, eqx.is_array)

        def one(carry: Any, key: jax.Array) -> tuple[Any, None]:
            now = eqx.combine(carry[0], static)
            windows = sample_windows(episodes, key, (2, 32), jnp.ones(()))
            gradients, _ = model_gradients(now, windows, key, scales)
            step = adam_step(now, gradients, carry[1], 5e-3, 20.0, Adam(warm_up=1))
            return (eqx.filter(step.model, eqx.is_array), step.state), None

        keys = jax.random.split(jax.random.key(2), 1200)
        return eqx.combine(jax.lax.scan(one, (arrays, init_adam(model)), keys)[0][0], static)

    fresh = toy.fresh(agent).model
    model = learn(fresh)
    windows = sample_windows(episodes, jax.random.key(3), (2, 256), jnp.ones(()))
    told = _told(model, windows)
    assert np.corrcoef(np.asarray(told), np.asarray(windows.reward[1]))[0, 1] > 0.95
    assert float(jnp.abs(model.tasks - fresh.tasks).max()) > 0.01


@eqx.filter_jit
def _told(model: Any, windows: Any) -> jax.Array:
    task = model.task_vector(windows.task)
    z = model.encode(windows.observation[0], task)
    return model.reward(z, jnp.concatenate([task, windows.action[1]], -1))


def test_actions_that_only_fill_up_are_never_used_in_a_dream() -> None:
    masks = action_masks([2, 1])
    np.testing.assert_array_equal(masks, [[1, 1], [1, 0]])
    spec = Spec("Two", observation_size=2, action_size=2, episode_agent_steps=20, terminates=False)
    agent = toy.make_agent(spec, world_model={"tasks": 2, "task_size": 4})
    state, task = toy.lively(agent), jnp.array([0, 1])

    @eqx.filter_jit
    def run(model: Any, actor: Any) -> jax.Array:
        vectors = model.task_vector(task)
        start = Start(model.encode(jnp.ones((2, 2)), vectors), jnp.ones(2), vectors, masks[task])
        return dream(model, actor, start, agent.settings.behavior, jax.random.key(0), False).action

    action = np.asarray(run(state.model, state.actor))
    assert not action[:, 1, 1].any()
    assert action[:, 0].all() and action[:, 1, 0].all()
