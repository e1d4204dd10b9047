"""`tasks` in a study: conditions, what decides and the settings of the cells follow from it."""

from typing import Any

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.settings.cell import PwmOfflineCell
from dreamproof.settings.strict import validate
from dreamproof.settings.study import Study
from dreamproof.settings.task_sets import MT8, MT30
from dreamproof.study.plan.packs import pack_groups


def declared(**changes: Any) -> dict[str, Any]:
    """A study over a set of tasks."""
    return {
        "name": "many",
        "question": "Which dynamics?",
        "metric": {"name": "score", "smallest_difference": 0.05},
        "tasks": "mt30",
        "trainer": "pwm_offline",
        "settings": {"data": {"files": ["some.pt"]}},
        "arms": {"mlp": {}, "flow": {"agent": {"dynamics": {"kind": "flow"}}}},
        "seeds": 3,
        "agent_steps": 1000,
    } | changes


def study(**changes: Any) -> Study:
    return validate(Study, declared(**changes), "many.yaml")


def test_a_set_of_tasks_is_the_task_the_conditions_and_the_decision() -> None:
    found, names = study(), [task.name for task in MT30]
    assert (found.task, found.tasks) == ("mt30", names)
    assert [condition.name for condition in found.conditions] == names
    assert found.decides is not None and (found.decides.conditions, found.decides.over) == (names, "iqm")
    assert found.metric.condition == names[0]


def test_every_cell_learns_a_policy_for_every_task() -> None:
    cell = PwmOfflineCell.model_validate(study().merged_settings("flow"))
    assert cell.data.policies == cell.data.tasks == tuple(task.name for task in MT30)
    assert (cell.agent.world_model.tasks, cell.data.observation_size, cell.data.action_size) == (30, 24, 6)


def test_policies_of_some_tasks_in_a_model_of_more() -> None:
    some = ["walker-walk", "cup-catch"]
    found = study(tasks=some, settings={"data": {"files": ["some.pt"], "tasks": "mt30"}})
    cell = PwmOfflineCell.model_validate(found.merged_settings("mlp"))
    assert (found.task, cell.data.policies, len(cell.data.tasks)) == ("several", tuple(some), 30)
    assert cell.agent.world_model.tasks == 30


def test_an_unknown_set_of_policies_is_refused_and_never_taken_for_none() -> None:
    found = study(settings={"data": {"files": ["some.pt"], "policies": "mt31"}})
    with pytest.raises(BadInput, match="policies"):
        validate(PwmOfflineCell, found.merged_settings("mlp"), "many.yaml")


def test_what_the_study_says_itself_stays() -> None:
    found = study(
        decides={"over": "mean"}, metric={"name": "return", "smallest_difference": 5, "condition": "cup-catch"}
    )
    assert found.decides is not None and found.decides.over == "mean"
    assert found.metric.condition == "cup-catch"


def test_a_declaration_that_was_recorded_is_read_as_the_same_study() -> None:
    found = study()
    again = Study.model_validate(found.model_dump(mode="json"))
    assert again == found and again.hash() == found.hash()


def test_the_hash_of_a_study_over_one_task_is_as_before() -> None:
    one = declared(task="cheetah-run", decides={"conditions": ["id"]}, conditions=["id"])
    del one["tasks"]
    dumped = validate(Study, one, "one.yaml").model_dump(mode="json")
    assert dumped["tasks"] is None and dumped["decides"]["over"] == "mean"
    assert Study.model_validate(dumped).hash() == validate(Study, one, "one.yaml").hash()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": "mt31"}, "there is no set 'mt31'; known: mt8, mt30, mt80"),
        ({"tasks": ["walker-walk"]}, "lists one task only; write `task: walker-walk` instead"),
        ({"tasks": ["walker-walk", "walker-walk", "cup-catch"]}, "walker-walk is listed twice"),
        ({"tasks": []}, "at least 2 items"),
        ({"conditions": ["id"]}, "remove `conditions`"),
        ({"trainer": "pwm", "settings": {}}, "tasks become the arms; remove `arms`"),
        ({"tasks": 5}, "tasks"),
        ({"decides": {"conditions": ["walker-walk", "cup-catch"]}}, "decides over all of them"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        study(**changes)


def test_tasks_of_a_trainer_of_one_task_are_arms() -> None:
    alone = declared(trainer="pwm", settings={}, metric={"name": "return", "smallest_difference": 50}, tasks="mt8")
    del alone["arms"]
    found = validate(Study, alone, "many.yaml")
    assert list(found.arms) == [task.name for task in MT8] and found.tasks is None
    assert (found.task, found.task_of("pendulum-spin")) == ("mt8", "pendulum-spin")
    assert "task" not in found.merged_settings("pendulum-spin")
    groups = pack_groups(found)
    assert len(set(groups.values())) == len(MT8)
    assert Study.model_validate(found.model_dump(mode="json")).hash() == found.hash()


def test_a_setting_named_task_of_a_script_is_its_own() -> None:
    command = {"command": ["train", "{settings.task}"]}
    found = study(tasks=None, task="any", trainer=command, settings={}, arms={"a": {"task": "x"}, "b": {"task": "y"}})
    assert found.task_of("a") == "any" and found.merged_settings("a") == {"task": "x"}


MISSPELT = {
    "a task of the study": (
        {"tasks": ["pendulum-swingupp", "cartpole-swingup"]},
        {},
        "did you mean 'pendulum-swingup'",
    ),
    "a set of the data": (
        {"tasks": ["cup-spin", "cartpole-swingup"]},
        {"tasks": "mt31"},
        "there is no set 'mt31'; known",
    ),
    "a task of one's own": (
        {"tasks": ["Mine", "cup-spin"]},
        {"action_size": 2},
        "observation_size must be set: 'Mine'",
    ),
}


@pytest.mark.parametrize("case", list(MISSPELT))
def test_an_unknown_task_is_named_where_its_sizes_are_missing(case: str) -> None:
    changes, data, seen = MISSPELT[case]
    with pytest.raises(BadInput, match=seen):
        pack_groups(study(settings={"data": {"files": ["some.npz"], **data}}, **changes))


def test_sizes_of_known_tasks_need_not_be_written() -> None:
    data = {"files": ["some.npz"], "tasks": ["walker-run", "cup-spin"]}
    cell = validate(PwmOfflineCell, {"data": data, "agent": {"world_model": {"tasks": 2}}}, "a test")
    assert (cell.data.observation_size, cell.data.action_size) == (24, 6)
