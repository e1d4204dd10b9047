"""`dreamproof tasks` lists every built-in task."""

import json

from tests.cli.conftest import Verb

from dreamproof.settings.task_sets import MT30


def test_every_task_is_one_line_with_sizes_back_end_and_floor(dreamproof: Verb) -> None:
    lines = dreamproof("tasks").output.splitlines()
    assert [line.split()[0] for line in lines[1:31]] == [task.name for task in MT30]
    assert lines[29].split() == ["cup-spin", "28", "8", "2", "500", "MJX", "173.0", "–", "–"]
    assert lines[-1].endswith("means of random actions")
    assert max(map(len, lines)) <= 100


def test_the_same_as_json(dreamproof: Verb) -> None:
    tasks = {task["name"]: task for task in json.loads(dreamproof("tasks", "--json").output)["tasks"]}
    assert tasks["fish-swim"]["mt30"] == 16
    assert all(0 <= tasks[task.name]["random_return"] <= 1000 for task in MT30)
    assert tasks["ProbeTarget"]["mt30"] is None
