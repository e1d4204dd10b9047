"""Recorded episodes as windows on the device: the row shift, shares, fillers, several files, learning from them."""

from collections import Counter
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError
from tests.agents.pwm import toy

from dreamproof.agents.pwm.agent import PwmAgent, pieces_of
from dreamproof.agents.pwm.behavior import imagine_rollout
from dreamproof.agents.pwm.world_model import model_gradients
from dreamproof.base.errors import BadInput
from dreamproof.data.chunk_writer import write_chunk
from dreamproof.data.library import EpisodeLibrary, RecordedEpisodes
from dreamproof.data.recordings import open_episodes, read_good_part
from dreamproof.jaxcore.types import Spec
from dreamproof.nn.optimiser import Adam, adam_step, init_adam
from dreamproof.settings.recorded import RecordedData
from dreamproof.settings.traced import traced_values
from dreamproof.train.offline import WindowIndex, draw, index_tasks, index_windows, sample_steps, sample_windows

pytestmark = pytest.mark.long(60)

EPISODES, LENGTH = 40, 21
TWO_TASKS = {"tasks": 2, "task_size": 4}


def recorded() -> dict[str, Any]:
    """Episodes of two tasks: reward is the first observed number times the action, with the other sign in task 1."""
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


def data_of(*files: Path, **changes: Any) -> RecordedData:
    """Settings that read these files."""
    settings = {"tasks": ("with", "against"), "observation_size": 2, "action_size": 1} | changes
    return RecordedData(files=tuple(map(str, files)), **settings)


def read_episodes(data: RecordedData) -> RecordedEpisodes:
    library = EpisodeLibrary(data)
    return RecordedEpisodes(*map(jnp.asarray, library.load(np.arange(len(library)))))


def all_of(*files: Path, window: int) -> tuple[RecordedEpisodes, WindowIndex]:
    """The episodes of files, and a share of all their windows."""
    episodes = read_episodes(data_of(*files))
    return episodes, index_windows(episodes, window)


def test_a_rows_reward_is_that_of_the_observation_before_it(file: Path) -> None:
    windows = sample_windows(*all_of(file, window=4), jax.random.key(0), (4, 64))
    sign = np.where(np.asarray(windows.task) == 0, 1.0, -1.0)
    before = np.asarray(windows.observation[:-1, :, 0]) * np.asarray(windows.action[1:, :, 0]) * sign
    np.testing.assert_allclose(windows.reward[1:], before, rtol=1e-5, atol=1e-6)
    # Read without the shift, nothing fits.
    same = np.asarray(windows.observation[1:, :, 0]) * np.asarray(windows.action[1:, :, 0]) * sign
    assert abs(np.corrcoef(np.asarray(windows.reward[1:]).ravel(), same.ravel())[0, 1]) < 0.3
    assert np.isfinite(np.asarray(windows.reward)).all() and np.isfinite(np.asarray(windows.action)).all()
    assert bool(windows.valid.all())


def test_steps_of_a_task_come_from_its_episodes_alone(file: Path) -> None:
    episodes = read_episodes(data_of(file))
    tasks, rows = np.asarray(episodes.task), np.asarray(episodes.rows)
    own = index_tasks(tasks, rows, 4, [1])
    assert set(np.asarray(sample_windows(episodes, own.windows, jax.random.key(0), (4, 64)).task)) == {1}
    both = index_tasks(tasks, rows, 4, [1, 0])
    steps = sample_steps(episodes, both, jax.random.key(0), 64)
    assert steps.observation.shape == (2, 64, 2) and steps.action.shape == (2, 64, 1)
    for task, seen, taken in zip([1, 0], *map(np.asarray, steps[:2]), strict=True):
        there = np.asarray(episodes.observation)[tasks == task][:, :-1].reshape(-1, 2)
        after = np.asarray(episodes.action)[tasks == task][:, 1:].reshape(-1, 1)
        at = [int((there == one).all(1).argmax()) for one in seen]
        np.testing.assert_array_equal(there[at], seen)
        np.testing.assert_array_equal(after[at], taken)
    with pytest.raises(AssertionError):
        index_tasks(tasks, rows, 4, [7])


def test_windows_are_uniform_over_all_that_lie_inside_episodes_of_any_length() -> None:
    rows, zero = jnp.array([3, 6, 2]), jnp.zeros((3, 6))
    episodes = RecordedEpisodes(zero[..., None], zero[..., None], zero, jnp.zeros(3, jnp.int32), rows, jnp.zeros(3))
    index = index_windows(episodes, 3)
    # One window of three rows in the first, four in the second, and the short third counts as one.
    np.testing.assert_array_equal(index.windows, [1, 4, 1])
    episode, start = (np.asarray(part) for part in draw(index, jax.random.key(0), 6000))
    found = Counter(zip(episode.tolist(), start.tolist(), strict=True))
    assert set(found) == {(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)}
    assert all(900 < count < 1100 for count in found.values()), found


def test_what_lies_behind_an_episodes_end_does_not_count(tmp_path: Path) -> None:
    short = {"rows": np.full(EPISODES, 3, np.int32), "terminated": np.arange(EPISODES) % 2 == 0}
    np.savez(tmp_path / "short.npz", **(recorded() | short))
    windows = sample_windows(*all_of(tmp_path / "short.npz", window=5), jax.random.key(0), (5, 32))
    np.testing.assert_array_equal(windows.valid, np.array([1.0, 1.0, 0.0, 0.0])[:, None] * np.ones((4, 32)))
    np.testing.assert_array_equal(windows.terminated.sum(0), windows.terminated[2])
    assert 0 < float(windows.terminated.sum()) < 32


def test_files_of_several_tasks_are_joined_by_the_names_of_their_tasks(tmp_path: Path) -> None:
    notes = {"names": np.array(["against", "with"]), "observation_sizes": [2, 2], "action_sizes": [1, 1]}
    np.savez(tmp_path / "named.npz", **(recorded() | notes))
    np.savez(tmp_path / "plain.npz", **recorded())
    paths = (tmp_path / "named.npz", tmp_path / "plain.npz")
    data = data_of(*paths, observation_size=3, action_size=2)
    episodes, hashes = read_episodes(data), EpisodeLibrary(data).hashes()
    np.testing.assert_array_equal(episodes.task, np.repeat([1, 0, 0, 1], EPISODES // 2))
    assert episodes.observation.shape == (2 * EPISODES, LENGTH, 3)
    assert not np.asarray(episodes.observation[..., 2:]).any() and not np.asarray(episodes.action[..., 1:]).any()
    assert list(hashes) == [str(path) for path in paths]


def test_a_chunk_and_a_recording_of_the_same_episodes_teach_the_same(tmp_path: Path) -> None:
    np.savez(tmp_path / "same.npz", **recorded())
    write_chunk(tmp_path / "same.pt", read_good_part(open_episodes(tmp_path / "same.npz")))
    plain = read_episodes(data_of(tmp_path / "same.npz"))
    chunk = read_episodes(data_of(tmp_path / "same.pt"))
    jax.tree.map(np.testing.assert_array_equal, plain, chunk)


def test_a_set_of_tasks_is_named_as_a_whole() -> None:
    data = RecordedData.model_validate({"files": ["chunk_0.pt"], "tasks": "mt30"})
    assert len(data.tasks) == 30 and data.number_of("cup-spin") == 28
    assert (data.observation_size, data.action_size) == (24, 6)
    with pytest.raises(ValidationError):
        RecordedData.model_validate({"files": ["chunk_0.pt"], "tasks": "mt31"})


def test_actions_that_a_task_does_not_have_teach_nothing(tmp_path: Path) -> None:
    arrays = recorded()
    wide = np.concatenate([arrays["action"], arrays["action"]], axis=2)
    notes = {"names": np.array(["with", "against"]), "observation_sizes": [2, 2], "action_sizes": [2, 1]}
    np.savez(tmp_path / "wide.npz", **(arrays | {"action": wide} | notes))
    episodes = read_episodes(data_of(tmp_path / "wide.npz", action_size=2))
    action = np.asarray(episodes.action)
    assert action[: EPISODES // 2, 1:].all()
    assert action[EPISODES // 2 :, 1:, 0].all() and not action[EPISODES // 2 :, :, 1].any()


def test_a_model_of_two_tasks_learns_both_and_its_embedding_is_learned(file: Path) -> None:
    spec = Spec("Two", observation_size=2, action_size=1, episode_agent_steps=LENGTH - 1, terminates=False)
    agent = toy.make_agent(spec, world_model=TWO_TASKS | {"reward": "two_hot"})
    scales = jax.tree.map(jnp.asarray, traced_values(agent.settings))["world_model"]
    episodes, index = all_of(file, window=2)

    @eqx.filter_jit
    def learn(model: Any) -> Any:
        arrays, static = eqx.partition(model, eqx.is_array)

        def one(carry: Any, key: jax.Array) -> tuple[Any, None]:
            now = eqx.combine(carry[0], static)
            windows = sample_windows(episodes, index, key, (2, 32))
            gradients, _ = model_gradients(now, windows, key, scales)
            step = adam_step(now, gradients, carry[1], 5e-3, 20.0, Adam(warm_up=1))
            return (eqx.filter(step.model, eqx.is_array), step.state), None

        keys = jax.random.split(jax.random.key(2), 1200)
        return eqx.combine(jax.lax.scan(one, (arrays, init_adam(model)), keys)[0][0], static)

    fresh = toy.fresh(agent).model
    model = learn(fresh)
    windows = sample_windows(episodes, index, jax.random.key(3), (2, 256))
    predicted = _predicted_reward(model, windows)
    assert np.corrcoef(np.asarray(predicted), np.asarray(windows.reward[1]))[0, 1] > 0.95
    assert float(jnp.abs(model.tasks - fresh.tasks).max()) > 0.01


@eqx.filter_jit
def _predicted_reward(model: Any, windows: Any) -> jax.Array:
    task = model.task_vector(windows.task)
    z = model.encode(windows.observation[0], task)
    return model.reward(z, jnp.concatenate([task, windows.action[1]], -1))


def test_actions_that_only_fill_up_are_never_used_in_a_rollout() -> None:
    spec = Spec("Two", 2, 2, episode_agent_steps=20, terminates=False, task=1, usable_actions=1)
    agent = PwmAgent(spec, toy.make_agent(world_model=TWO_TASKS).settings)

    @eqx.filter_jit
    def run(state: Any) -> jax.Array:
        start = agent._start(state, jnp.ones((3, 2)), jnp.ones(3))
        return imagine_rollout(
            state.model, state.actor, start, agent.settings.behavior, jax.random.key(0), False
        ).action

    action = np.asarray(run(toy.lively(agent)))
    assert not action[..., 1].any() and action[..., 0].all()


@pytest.mark.parametrize(("task", "expected"), [(None, "not one of them"), (2, "number is 2"), (-1, "number is -1")])
def test_an_agent_of_a_task_that_its_model_does_not_know_is_refused(task: int | None, expected: str) -> None:
    settings = toy.make_agent(world_model=TWO_TASKS).settings
    with pytest.raises(BadInput, match=expected):
        PwmAgent(toy.SPEC._replace(task=task), settings)


def test_the_task_changes_what_an_agent_makes_of_the_same_observation() -> None:
    settings = toy.make_agent(world_model=TWO_TASKS).settings
    agents = [PwmAgent(toy.SPEC._replace(task=task), settings) for task in (0, 1)]
    state, seen = toy.lively(agents[0]), jnp.ones((1, 2))
    one, other = (np.asarray(agent.encode(state.model, seen)) for agent in agents)
    assert np.abs(one - other).max() > 1e-3


def test_pieces_of_a_batch_keep_each_window_with_its_task(file: Path) -> None:
    windows = sample_windows(*all_of(file, window=3), jax.random.key(0), (3, 8))
    cut = jax.tree.map(lambda part: pieces_of(part, 2), windows)
    assert (cut.reward.shape, cut.task.shape, cut.scale.shape) == ((2, 3, 4), (2, 4), (2,))
    sign = np.where(np.asarray(cut.task) == 0, 1.0, -1.0)[:, None]
    expected = sign * np.asarray(cut.observation[:, :-1, :, 0]) * np.asarray(cut.action[:, 1:, :, 0])
    np.testing.assert_allclose(cut.reward[:, 1:], expected, rtol=1e-5, atol=1e-6)
