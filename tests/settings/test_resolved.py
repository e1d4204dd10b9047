"""Settings after defaults: what they are named by."""

from typing import Any

import pytest
from pydantic import Field
from tests.settings.test_agent_settings import fields_of, nested

from dreamproof.settings import cell
from dreamproof.settings.added import without_added
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.resolved import Resolved, resolve, resolved_changes, resolved_hash
from dreamproof.settings.train import StepTrain
from dreamproof.testing.small_agent import merged


def resolved(settings: dict[str, Any]) -> Resolved:
    return resolve("dreamer", "SafetyPointGoal1", 1000, settings, "a test")


class ChangedTrain(StepTrain):
    """The same loop with another default."""

    batch: int = Field(33, ge=1)


class ChangedCell(cell.DreamerCell):
    """The same cell with another default in its loop."""

    train: ChangedTrain = ChangedTrain()


def test_nothing_that_was_left_out_is_missing() -> None:
    found = resolved({"train": {"envs": 4}})
    assert found["settings"]["train"]["envs"] == 4 and found["settings"]["train"]["batch"] == 32
    assert found["settings"]["agent"]["planner"]["mode"] == "constrained"


def test_typing_a_default_and_the_order_of_keys_change_nothing() -> None:
    plain = resolved_hash(resolved({"train": {"envs": 4}, "agent": {"risk": {"members": 2}}}))
    assert plain == resolved_hash(resolved({"agent": {"risk": {"members": 2}}, "train": {"batch": 32, "envs": 4}}))
    backwards = dict(reversed(list(resolved({"train": {"envs": 4}, "agent": {"risk": {"members": 2}}}).items())))
    assert plain == resolved_hash(backwards)


def test_a_changed_default_is_another_hash_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"train": {"envs": 4}}
    before = resolved(settings)
    monkeypatch.setitem(cell.CELL_SETTINGS, "dreamer", ChangedCell)
    after = resolved(settings)
    assert resolved_hash(before) != resolved_hash(after)
    assert resolved_changes(before, after) == ["settings.train.batch: 32 → 33"]


def test_limits_of_single_costs_are_part_of_the_hash_where_they_are_declared() -> None:
    plain, declared = resolved({}), resolved({"agent": {"planner": {"cost_limits": {"hazards": 2}}}})
    assert declared["settings"]["agent"]["planner"]["cost_limits"] == {"hazards": 2.0}
    assert resolved_hash(declared) != resolved_hash(plain)


def test_settings_that_came_or_went_are_named() -> None:
    old, new = {"settings": {"a": 1, "gone": 2}}, {"settings": {"a": 1, "new": 3}}
    assert resolved_changes(old, new) == [
        "settings.gone: 2 → (no such setting)",
        "settings.new: (no such setting) → 3",
    ]


RECORDED = {"data": {"files": ["a.npz"], "tasks": ["cheetah-run"], "observation_size": 17, "action_size": 6}}
WHOLE = {
    name: resolve(name, "cheetah-run", 1000, RECORDED if name == "pwm_offline" else {}, "") for name in CELL_SETTINGS
}
SETTINGS = [(name, path) for name, model in CELL_SETTINGS.items() for path, _ in fields_of(model)]


@pytest.mark.parametrize(("trainer", "path"), SETTINGS)
def test_every_setting_of_every_trainer_is_part_of_the_hash(trainer: str, path: str) -> None:
    whole = WHOLE[trainer]
    other = whole | {"settings": merged(whole["settings"], nested(path, "another value"))}
    assert resolved_hash(other) != resolved_hash(whole)
    assert [change.split(":")[0] for change in resolved_changes(whole, other)] == [f"settings.{path}"]


@pytest.mark.parametrize("key", ["task", "trainer", "agent_steps"])
def test_task_trainer_and_length_are_part_of_the_hash(key: str) -> None:
    assert resolved_hash(WHOLE["pwm"] | {key: "another"}) != resolved_hash(WHOLE["pwm"])


def test_a_later_key_that_says_what_was_done_before_changes_no_hash() -> None:
    now = WHOLE["pwm"]
    before = now | {"settings": without_added(CELL_SETTINGS["pwm"], now["settings"])}
    assert "data" in now["settings"] and "data" not in before["settings"]
    assert "fine_tune" in now["settings"]["train"] and "fine_tune" not in before["settings"]["train"]
    assert resolved_hash(before) == resolved_hash(now) and not resolved_changes(before, now)
    started = now | {"settings": merged(now["settings"], {"data": {"world_model": "runs/a-seed0"}})}
    assert resolved_hash(started) != resolved_hash(before)
    assert resolved_changes(before, started) == ["settings.data.world_model: (no such setting) → runs/a-seed0"]


def test_later_keys_are_listed_with_their_defaults() -> None:
    for trainer, whole in WHOLE.items():
        kept = without_added(CELL_SETTINGS[trainer], whole["settings"])
        assert merged(kept, whole["settings"]) == whole["settings"]
        assert whole["settings"] == resolve(trainer, "cheetah-run", 1000, kept, "")["settings"]


# Of version 0.2.0 before any key was listed in `added`: the gallery's studies keep their names.
FIRST_HASHES = {
    "dreamer": "64cffa9f3a0c042e840fc30639988cda42346d43712028724eef31130c836253",
    "pwm": "21308e8d797cfd0ec313f8a6a783f5cee079fa2c8a1b87aa10a38656c52d335c",
    "pwm_offline": "9fdffe6aadbe36b9298182d94ad1ad6294a07e903521f9f132955f466967a24a",
}


@pytest.mark.parametrize("trainer", list(FIRST_HASHES))
def test_the_hash_of_the_defaults_does_not_change_unnoticed(trainer: str) -> None:
    """A new key belongs into `added` of its class; a changed default is declared here and in the changelog."""
    assert resolved_hash(WHOLE[trainer]) == FIRST_HASHES[trainer]
