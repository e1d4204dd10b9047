"""Which of the recorded episodes a cell learns from."""

from pathlib import Path

import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.data.chunk_writer import write_chunk
from dreamproof.data.library import EpisodeLibrary
from dreamproof.data.recordings import Recording, write_recording
from dreamproof.settings.recorded import RecordedData

TASKS = ("ProbeTarget", "ProbeRecall", "ProbeCredit")


def library_of(folder: Path, **changes: object) -> EpisodeLibrary:
    """Two files of twelve episodes each; the first observation is the episode's number, its task that modulo 3."""
    files = []
    for first in (0, 12):
        number = np.arange(first, first + 12)
        shown = np.repeat(number[:, None, None], 4, 1).astype(np.float32)
        rows, ends = np.full(12, 4), np.zeros(12, bool)
        files.append(folder / f"{first}.npz")
        write_recording(files[-1], Recording(shown, shown * 0, shown[..., 0], number % 3, rows, ends))
    given = {"files": tuple(map(str, files)), "tasks": TASKS, "observation_size": 1, "action_size": 1}
    return EpisodeLibrary(RecordedData.model_validate(given | changes))


def numbers(library: EpisodeLibrary) -> list[int]:
    loaded = library.load(np.arange(len(library)))
    found = [int(value) for value in loaded.observation[:, 0, 0]]
    assert [number % 3 for number in found] == list(loaded.task)
    return found


def test_all_are_used_unless_said_otherwise(tmp_path: Path) -> None:
    assert numbers(library_of(tmp_path)) == list(range(24))


def test_the_episodes_of_a_task_can_be_left_out(tmp_path: Path) -> None:
    library = library_of(tmp_path, max_episodes={"ProbeRecall": 0})
    assert numbers(library) == [number for number in range(24) if number % 3 != 1]
    # An episode has three steps, and the reward of each is the episode's number.
    assert library.returns() == {"ProbeTarget": (31.5, 63.0), "ProbeCredit": (37.5, 69.0)}


def test_a_few_episodes_of_a_task_are_drawn_the_same_way_every_time(tmp_path: Path) -> None:
    few = {"ProbeTarget": 3, "others": 2}
    found = numbers(library_of(tmp_path, max_episodes=few))
    assert [sum(number % 3 == task for number in found) for task in range(3)] == [3, 2, 2]
    assert found == numbers(library_of(tmp_path, max_episodes=few)) != [0, 1, 2, 3, 4, 5, 6]
    assert set(found) < set(numbers(library_of(tmp_path, max_episodes={"others": 4})))
    assert numbers(library_of(tmp_path, max_episodes={"others": 100})) == list(range(24))
    alone = numbers(library_of(tmp_path, max_episodes={"ProbeRecall": 100, "others": 0}))
    assert alone == [number for number in range(24) if number % 3 == 1]


def test_the_best_episodes_of_every_task_are_those_with_the_highest_returns(tmp_path: Path) -> None:
    library = library_of(tmp_path, max_episodes={"ProbeCredit": 1})
    found = np.array(numbers(library))[library.best(0.25)]
    assert list(found) == [number for number in numbers(library) if number % 3 == 2 or number in (18, 21, 19, 22)]
    assert library.best(1.0).all() and library.best(1e-6).sum() == 3


def test_leaving_out_everything_or_an_unknown_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="leaves no recorded episode"):
        library_of(tmp_path, max_episodes={"others": 0})
    with pytest.raises(BadInput, match="did you mean 'ProbeRecall'"):
        library_of(tmp_path, max_episodes={"ProbeRecal": 1})


def test_a_chunk_of_mt80_with_its_101_rows_is_read_with_all_its_tasks(tmp_path: Path) -> None:
    chance, count = np.random.default_rng(0), 160
    observation = chance.normal(size=(count, 101, 39)).astype(np.float32)
    action = chance.uniform(-1, 1, (count, 101, 6)).astype(np.float32)
    reward = chance.uniform(0, 2, (count, 101)).astype(np.float32)
    task, rows = np.arange(count) % 80, np.full(count, 101)
    path = tmp_path / "chunk_0.pt"
    write_chunk(path, Recording(observation, action, reward, task, rows, np.zeros(count, bool)))
    library = EpisodeLibrary(RecordedData.model_validate({"files": (str(path),), "tasks": "mt80"}))
    assert (len(library), library.length, library.data.observation_size, library.data.action_size) == (160, 101, 39, 6)
    assert library.data.tasks[79] == "mw-hand-insert" and len(library.returns()) == 80
    np.testing.assert_allclose(library.episode_returns, reward[:, 1:].sum(1), rtol=1e-5)
    loaded = library.load(np.array([79, 80]))
    assert list(loaded.task) == [79, 0]
    np.testing.assert_array_equal(loaded.observation[0], observation[79])
    np.testing.assert_array_equal(loaded.action[0, 1:, :4], action[79, 1:, :4])
    assert not loaded.action[0, :, 4:].any() and not loaded.observation[1, :, 24:].any()
