"""Settings of environments and shifts: defaults change nothing, nonsense is refused."""

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.settings.env import EnvSettings, Shift
from dreamproof.settings.strict import validate


def test_the_defaults_are_the_study_of_the_coordinate_task() -> None:
    settings = EnvSettings()
    assert (settings.observation, settings.ghost_slots, settings.action_repeat) == ("coordinates", 2, 5)
    assert settings.episode_simulator_steps == 1000


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"observaton": "lidar"}, "did you mean 'observation'"),
        ({"action_repeat": 3}, "action_repeat"),
        ({"action_repeat": 8, "episode_simulator_steps": 1001}, "no multiple of action_repeat 8"),
        ({"ghost_slots": 4}, "ghost_slots"),
    ],
)
def test_settings_that_make_no_task_are_refused(value: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        validate(EnvSettings, value, "study.yaml")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"hazards": 17}, "hazards"),
        ({"action_delay": 3}, "action_delay"),
        ({"mass_factor": 0.0}, "mass_factor"),
        ({"ghost_min_steps": 5, "ghost_max_steps": 3}, "minimum number of steps is above its maximum"),
    ],
)
def test_shifts_that_cannot_be_are_refused(value: dict[str, object], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        validate(Shift, value, "condition 'mine'")
