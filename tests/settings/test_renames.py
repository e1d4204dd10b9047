"""Renamed keys: old files read, count as the same declaration, and are reported once."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from dreamproof.base.errors import BadInput
from dreamproof.base.files import canonical_json, text_hash
from dreamproof.settings.added import without_added
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.renames import current_names, first_names, old_names_of
from dreamproof.settings.resolved import resolve, resolved_changes, resolved_hash
from dreamproof.settings.strict import Settings
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import deprecation_notes, read_study
from dreamproof.settings.traced import static_key, traced_values

REPOSITORY = Path(__file__).parents[2]
DECLARED = sorted([*(REPOSITORY / "gallery").glob("*/study.yaml"), *(REPOSITORY / "studies").glob("*.yaml")])


def settings_classes(parent: type[Settings] = Settings) -> list[type[Settings]]:
    """Every settings class of the package."""
    found = [each for each in parent.__subclasses__() if each.__module__.startswith("dreamproof.")]
    return found + [each for one in found for each in settings_classes(one)]


RENAMED = [(model, old, new) for model in settings_classes() for old, new in model.old_names.items()]


def test_some_keys_were_renamed() -> None:
    assert len(RENAMED) > 20


@pytest.mark.parametrize(("model", "old", "new"), RENAMED, ids=lambda each: getattr(each, "__name__", str(each)))
def test_an_old_key_is_read_as_its_current_name(model: type[Settings], old: str, new: str) -> None:
    default = model.model_fields[new].get_default()
    value = default.model_dump() if isinstance(default, BaseModel) else default
    assert old not in model.model_fields
    assert model.model_validate({old: value}) == model.model_validate({new: value})
    with pytest.raises(ValueError, match=f"'{old}' and '{new}' are two names of one key"):
        model.model_validate({old: value, new: value})


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_committed_study_reads_and_resolves(path: Path) -> None:
    study = read_study(path)
    for arm in study.arms:
        settings = study.merged_settings(arm)
        if isinstance(study.trainer, str):
            assert resolve(study.trainer, study.task, study.agent_steps, settings, str(path))["settings"]


def declaration(settings: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "renamed",
        "question": "Does a new name change anything?",
        "metric": {"smallest_difference": 1.0},
        "task": "SafetyPointGoal1",
        "trainer": "dreamer",
        "settings": settings,
        "arms": {"plain": {}, "other": arm},
        "seeds": 2,
        "agent_steps": 1000,
        "conditions": ["id", {"name": "ghosts", "settings": {"ghosts": 1, "ghost_most_steps": 3}}],
        "liveness": {"floor_seconds": 60},
    }


OLD = declaration(
    {"agent": {"planner": {"least_sigma": 0.1}, "risk": {"price": 0.2}}}, {"agent": {"planner": {"least_sigma": 0.2}}}
)
NEW = json.loads(
    json.dumps(OLD)
    .replace("least_sigma", "min_std")
    .replace('"price"', '"coef"')
    .replace("ghost_most_steps", "ghost_max_steps")
    .replace("floor_seconds", "stalled_after_seconds")
)


def test_old_and_new_keys_are_the_same_declaration() -> None:
    old, new = Study.model_validate(OLD), Study.model_validate(NEW)
    assert old == new
    assert old.hash() == new.hash()
    for arm in old.arms:
        assert old.merged_settings(arm) == new.merged_settings(arm)


def test_an_old_key_in_the_shared_settings_and_a_new_one_in_an_arm_meet() -> None:
    mixed = Study.model_validate(OLD | {"arms": {"plain": {}, "other": {"agent": {"planner": {"min_std": 0.3}}}}})
    cell = CELL_SETTINGS["dreamer"].model_validate(mixed.merged_settings("other"))
    assert cell.model_dump()["agent"]["planner"]["min_std"] == 0.3


def test_two_names_of_one_key_are_refused_with_the_place(tmp_path: Path) -> None:
    both = NEW | {"settings": {"agent": {"planner": {"least_sigma": 0.1, "min_std": 0.1}}}}
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump(both))
    with pytest.raises(BadInput, match=r"'agent\.planner\.least_sigma' and 'agent\.planner\.min_std' are two names"):
        read_study(file)


def test_settings_of_a_command_are_its_own() -> None:
    foreign = NEW | {"trainer": {"command": ["train"], "evaluate": ["evaluate"]}, "settings": {"least_sigma": 1}}
    assert Study.model_validate(foreign).settings == {"least_sigma": 1}


def test_old_traced_keys_share_a_compile_and_static_ones_do_not() -> None:
    model = CELL_SETTINGS["dreamer"]
    plain, traced, static = (
        model.model_validate({"agent": agent})
        for agent in ({}, {"behavior": {"entropy": 0.5}}, {"behavior": {"least_sigma": 0.5}})
    )
    assert static_key(traced) == static_key(plain) != static_key(static)
    assert traced_values(traced)["agent"]["behavior"]["entropy_coef"] == 0.5


@pytest.mark.parametrize("trainer", ["dreamer", "pwm"])
def test_a_rename_changes_no_hash_of_resolved_settings(trainer: str) -> None:
    resolved = resolve(trainer, "Ant", 10, {}, "test")
    first = without_added(CELL_SETTINGS[trainer], resolved["settings"])
    recorded = resolved | {"settings": first_names(CELL_SETTINGS[trainer], first)}
    assert recorded != resolved
    assert resolved_hash(resolved) == resolved_hash(recorded) == text_hash(canonical_json(recorded))
    assert resolved_changes(recorded, resolved) == []
    assert current_names(CELL_SETTINGS[trainer], recorded["settings"]) == first


def test_every_old_key_of_a_study_file_is_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(OLD))
    assert deprecation_notes(file) == [
        "note: liveness.floor_seconds is now liveness.stalled_after_seconds",
        "note: agent.planner.least_sigma is now agent.planner.min_std",
        "note: agent.risk.price is now agent.risk.coef",
        "note: ghosts.ghost_most_steps is now ghosts.ghost_max_steps",
    ]


@pytest.mark.parametrize("path", sorted((REPOSITORY / "studies").glob("*.yaml")), ids=lambda path: path.name)
def test_our_own_studies_use_current_names(path: Path) -> None:
    assert deprecation_notes(path) == []


def test_old_names_point_at_fields() -> None:
    for model in settings_classes():
        assert set(old_names_of(model).values()) <= set(model.model_fields), model
