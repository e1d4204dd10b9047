"""The list of built-in tasks agrees with the environments."""

from pathlib import Path

import pytest

from dreamproof.envs import registry
from dreamproof.envs.episodes import cost_names
from dreamproof.envs.probes import PROBES
from dreamproof.settings.task_list import RANDOM_RETURNS, TaskFacts, built_in_tasks

CARD = Path(__file__).parents[2] / "gallery" / "mt30_data" / "mt30.md"
LISTED = {task.name: task for task in built_in_tasks()}


def test_every_built_in_task_is_listed_once() -> None:
    own = {*registry.GOAL_TASKS, *registry.OFFICIAL_TASKS, *registry.LOCOMOTION_TASKS, *PROBES}
    assert set(LISTED) == own
    assert len(built_in_tasks()) == len(own)
    assert own <= set(registry.tasks())


def test_listed_sizes_are_those_of_the_environments() -> None:
    for task in LISTED.values():
        if task.name not in registry.OFFICIAL_TASKS:
            spec = registry.make(task.name).spec
            sizes = (spec.observation_size, spec.action_size, spec.episode_agent_steps)
            assert sizes == task[2:5], task.name
            assert task.costs == cost_names(spec) and (task.random_cost is not None) == spec.has_cost, task.name
    for official, ours in registry.OFFICIAL_TASKS.items():
        assert LISTED[official][2:5] == LISTED[ours][2:5] and LISTED[official].costs == LISTED[ours].costs


@pytest.mark.parametrize("task", [task for task in LISTED.values() if task.name in PROBES], ids=lambda task: task.name)
def test_the_floor_of_a_probe_is_the_known_return_of_random_actions(task: TaskFacts) -> None:
    assert task.random_return == pytest.approx(PROBES[task.name]().known().random_return, abs=0.05)


def test_random_returns_of_mt30_are_those_of_the_data_card() -> None:
    rows = (line.split("|") for line in CARD.read_text("utf-8").splitlines() if line.startswith("| "))
    recorded = {cells[1].strip(): float(cells[2]) for cells in rows if cells[2].strip().isdigit()}
    assert recorded == RANDOM_RETURNS
