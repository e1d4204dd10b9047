"""Files of recorded episodes: layout, padding, task info, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.data.recordings import (
    Recording,
    TaskInfo,
    check_output,
    conflicts,
    open_episodes,
    read_good_part,
    write_recording,
)

NOTES = TaskInfo(("short", "long"), (1, 2), (1, 1))


def some() -> Recording:
    """Two episodes of four rows, the first of which ends after two."""
    return Recording(
        observation=np.array([[[1, 0], [2, 0], [0, 0], [0, 0]], [[1, 2], [3, 4], [5, 6], [7, 8]]], np.float32),
        action=np.array([[[0], [1], [0], [0]], [[0], [1], [-1], [1]]], np.float32),
        reward=np.array([[0, 3, 0, 0], [0, 1, 2, 3]], np.float32),
        task=np.array([0, 1]),
        rows=np.array([2, 4]),
        terminated=np.array([True, False]),
        task_info=NOTES,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_recording(tmp_path / "some.npz", some())
    return tmp_path / "some.npz"


def test_what_is_written_is_read_again(file: Path) -> None:
    found, expected = read_good_part(open_episodes(file)), some()
    for name in Recording._fields[:-1]:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.task_info == NOTES
    assert [path.name for path in file.parent.iterdir()] == ["some.npz"]


def test_rows_without_a_step_hold_no_number_in_the_file(file: Path) -> None:
    with np.load(file, allow_pickle=False) as arrays:
        np.testing.assert_array_equal(np.isnan(arrays["reward"]), [[1, 0, 1, 1], [1, 0, 0, 0]])
        np.testing.assert_array_equal(np.isnan(arrays["action"][..., 0]), [[1, 0, 1, 1], [1, 0, 0, 0]])
        assert arrays["task"].shape == (2, 4)
        assert arrays["obs"].dtype == np.float32


def plain() -> dict[str, Any]:
    """Episodes as a converted set of others holds them: no rows, no ends, no notes."""
    made = some()
    reward, action = made.reward.copy(), made.action.copy()
    reward[:, 0], action[:, 0] = np.nan, np.nan
    return {"obs": made.observation, "action": action, "reward": reward, "task": np.repeat(made.task[:, None], 4, 1)}


def test_a_file_without_notes_holds_whole_episodes_that_never_terminate(tmp_path: Path) -> None:
    np.savez(tmp_path / "chunk.npz", **plain())
    found = read_good_part(open_episodes(tmp_path / "chunk.npz"))
    assert found.task_info is None
    assert found.rows.tolist() == [4, 4] and not found.terminated.any()
    assert not found.reward[:, 0].any() and not found.action[:, 0].any()


def named(names: list[str], observed: list[int], taken: list[int]) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in zip(TaskInfo._fields, (names, observed, taken), strict=True)}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({key: value for key, value in plain().items() if key != "reward"}, "'reward' is missing; it holds obs"),
    "short": (plain() | {"reward": plain()["reward"][:, :-1]}, "'reward' has the shape"),
    "flat": (plain() | {"obs": plain()["obs"][..., 0]}, "'obs' has the shape"),
    "holes": (plain() | {"obs": np.full((2, 4, 2), np.nan, np.float32)}, "not finite"),
    "mixed": (plain() | {"task": np.tile(np.arange(4), (2, 1))}, "more than one task"),
    "empty": ({name: value[:0] for name, value in plain().items()}, "holds no transition"),
    "too many rows": (plain() | {"rows": np.array([5, 4])}, "'rows' is not one integer from 2 to 4"),
    "ends": (plain() | {"terminated": np.zeros(3, bool)}, "'terminated' is not one flag"),
    "notes": (plain() | {"names": np.array(["one"])}, "names and sizes do not match"),
    "half rows": (plain() | {"rows": np.array([2.5, 4.0])}, "'rows' is not one integer from 2 to 4"),
    "text rows": (plain() | {"rows": np.array(["2", "4"])}, "'rows' is not one integer from 2 to 4"),
    "no flags": (plain() | {"terminated": np.array([np.nan, 0.0])}, "'terminated' is not one flag"),
    "text flags": (plain() | {"terminated": np.array(["no", "yes"])}, "'terminated' is not one flag"),
    "nameless": (plain() | named([], [], []), "'names' is no list of task names"),
    "one name": (plain() | {"names": np.array("one")}, "'names' is no list of task names"),
    "half sizes": (plain() | named(["one", "two"], [1.5, 2], [1, 1]), "names and sizes do not match"),
    "columns": (plain() | {"obs": np.zeros((2, 4, 0), np.float32)}, "have no columns"),
    "twice": (plain() | named(["one", "one"], [1, 2], [1, 1]), "it names the task one twice"),
    "wider": (plain() | named(["short", "long"], [1, 3], [1, 1]), "the sizes of 'long' are 3 and 1, its arrays obs"),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_a_file_that_is_not_in_the_layout_is_refused(tmp_path: Path, case: str) -> None:
    arrays, expected = BROKEN[case]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(BadInput, match=expected):
        read_good_part(open_episodes(tmp_path / "bad.npz"))


def test_a_file_that_is_not_there_or_no_plain_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file of recorded episodes") as error:
        read_good_part(open_episodes(tmp_path / "none.npz"))
    assert "python -m dreamproof.record" in error.value.hint
    (tmp_path / "chunk.npz").write_bytes(b"\x80\x04not an npz")
    with pytest.raises(BadInput, match="not a readable zip file"):
        read_good_part(open_episodes(tmp_path / "chunk.npz"))
    np.savez(tmp_path / "objects.npz", **(plain() | {"obs": np.array([{}, {}], object)}))
    with pytest.raises(BadInput, match="holds objects, not numbers"):
        read_good_part(open_episodes(tmp_path / "objects.npz"))


def test_a_place_where_nothing_can_be_written_is_refused_before_recording(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"are written as \.npz"):
        check_output(tmp_path / "episodes.pt")
    with pytest.raises(BadInput, match="no such folder"):
        check_output(tmp_path / "nowhere" / "episodes.npz")


def test_a_compressed_file_is_refused_with_the_function_that_does_not_compress(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "small.npz", obs=np.zeros((1, 3, 2), np.float32))
    with pytest.raises(
        BadInput, match=r"member obs\.npy is compressed and cannot be mapped; save it with numpy\.savez"
    ):
        open_episodes(tmp_path / "small.npz")


def test_a_recording_has_one_task_per_episode(tmp_path: Path) -> None:
    values, rows = np.zeros((2, 4, 1), np.float32), np.full(2, 4)
    wrong = Recording(values, values, values[..., 0], np.zeros((2, 4), int), rows, rows < 4)
    with pytest.raises(BadInput, match=r"task of a recording has the shape \(2, 4\), not \(E,\)"):
        write_recording(tmp_path / "wrong.npz", wrong)
    assert not list(tmp_path.iterdir())


def test_actions_that_no_policy_can_take_are_refused(tmp_path: Path) -> None:
    values, rows = np.zeros((2, 4, 1), np.float32), np.full(2, 4)
    action = values.copy()
    action[1, 2] = -1.5
    write_recording(tmp_path / "wide.npz", Recording(values, action, values[..., 0], np.zeros(2, int), rows, rows < 4))
    with pytest.raises(BadInput, match="1 of 2 episodes have actions beyond -1 to 1"):
        read_good_part(open_episodes(tmp_path / "wide.npz"))


def test_a_task_with_other_sizes_in_another_file_is_a_conflict(file: Path) -> None:
    write_recording(file.with_name("other.npz"), some()._replace(task_info=TaskInfo(("long", "third"), (1, 2), (1, 1))))
    files = [open_episodes(file), open_episodes(file.with_name("other.npz"))]
    [conflict] = conflicts(files)
    assert conflict == f"{files[1].path}: 'long' has the sizes 1 and 1, and 2 and 1 in {file}"
    assert conflicts(files[:1]) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros((1, 4), np.float32)}, "observation of a recording has the shape"),
        ({"action": np.zeros((1, 4, 1), np.float32)}, "action of a recording has the shape"),
        ({"task": np.array([0.0, 1.7])}, "task of a recording has values of the type float64"),
        ({"task": np.array([0, -1])}, "task of a recording is negative"),
        ({"terminated": np.array([0, 2])}, "terminated is neither 0 nor 1"),
        ({"rows": np.array([2, 9])}, "'rows' is not one integer from 2 to 4"),
        ({"task_info": TaskInfo(("short", "long"), (1, 3), (1, 1))}, "the sizes of 'long' are 3 and 1"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        write_recording(tmp_path / "some.npz", some()._replace(**changes))
    assert not list(tmp_path.iterdir())


def test_whole_numbers_are_written_as_floats(tmp_path: Path) -> None:
    made = some()
    write_recording(tmp_path / "some.npz", made._replace(observation=made.observation.astype(int)))
    assert np.array_equal(read_good_part(open_episodes(tmp_path / "some.npz")).observation, made.observation)


def test_a_negative_task_without_names_is_a_fault(tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", **plain() | {"task": np.array([[0] * 4, [-1] * 4])})
    with pytest.raises(BadInput, match="1 of 2 episodes have a task number without a name"):
        read_good_part(open_episodes(tmp_path / "some.npz"))
