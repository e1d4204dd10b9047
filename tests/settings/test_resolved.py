"""Settings after defaults: what they are named by."""

from typing import Any

import pytest
from pydantic import Field

from dreamproof.settings import cell
from dreamproof.settings.resolved import Resolved, resolve, resolved_changes, resolved_hash
from dreamproof.settings.train import StepTrain


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


def test_limits_of_single_costs_are_written_only_where_they_are_declared() -> None:
    plain = resolved({})
    assert "cost_limits" not in plain["settings"]["agent"]["planner"]
    declared = resolved({"agent": {"planner": {"cost_limits": {"hazards": 2}}}})
    assert declared["settings"]["agent"]["planner"]["cost_limits"] == {"hazards": 2.0}
    assert resolved_hash(declared) != resolved_hash(plain)


def test_settings_that_came_or_went_are_named() -> None:
    old, new = {"settings": {"a": 1, "gone": 2}}, {"settings": {"a": 1, "new": 3}}
    assert resolved_changes(old, new) == [
        "settings.gone: 2 → (no such setting)",
        "settings.new: (no such setting) → 3",
    ]
