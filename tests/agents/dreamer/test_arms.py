"""The arms of the shipped safe studies: one compile, separated by the scalars of their mechanism alone."""

from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_cell

from dreamproof.agents.dreamer.agent import DreamerAgent
from dreamproof.envs.registry import spec_for
from dreamproof.settings.cell import DreamerCell
from dreamproof.settings.dreamer import DreamerSettings
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.settings.traced import static_key, traced_values

STUDIES = Path(__file__).parents[3] / "studies"
SAFE = [
    "safedreamer_v2",
    "safedreamer_safest",
    "safety_point_goal2",
    "safety_car_goal1",
    "safety_velocity",
    "safety_lidar",
]
MARGIN, WIDENED = (
    ("planner", "margin"),
    {("risk", "tube"), ("risk", "innovation_margin"), ("risk", "uncertainty_weight")},
)
CERTIFIED = {("risk", "certified_only"), ("risk", "certificate_weight")}


def cell_of(study: Study, arm: str) -> DreamerCell:
    return DreamerCell.model_validate(study.merged_settings(arm))


@pytest.mark.parametrize("name", [*SAFE, "safedreamer_baselines"])
def test_every_arm_of_a_safe_study_fits_its_task(name: str) -> None:
    study = read_study(STUDIES / f"{name}.yaml")
    for arm in study.arms:
        cell = cell_of(study, arm)
        DreamerAgent(spec_for(study.task, cell), cell.agent)


@pytest.mark.parametrize("name", SAFE)
def test_the_arms_share_one_compile(name: str) -> None:
    study = read_study(STUDIES / f"{name}.yaml")
    assert len({static_key(cell_of(study, arm)) for arm in study.arms}) == 1


def test_the_arms_differ_in_the_scalars_of_their_mechanism_only() -> None:
    study = read_study(STUDIES / "safedreamer_v2.yaml")
    values = {arm: traced_values(cell_of(study, arm).agent) for arm in study.arms}
    plain = values["baseline"]
    names = [(room, name) for room, group in plain.items() if isinstance(group, dict) for name in group]
    changed = {
        arm: {(room, name) for room, name in names if plain[room][name] != of[room][name]} for arm, of in values.items()
    }
    assert changed == {
        "baseline": set(),
        "margin": {MARGIN},
        "u_only": WIDENED,
        "cert_only": CERTIFIED,
        "full": WIDENED | CERTIFIED,
    }


def test_both_costs_of_point_goal_2_have_limits_of_their_own() -> None:
    study = read_study(STUDIES / "safety_point_goal2.yaml")
    cell = cell_of(study, "full")
    limits = {f"cost_{name}": limit for name, limit in cell.agent.planner.cost_limits.items()}
    assert limits == {limit.name: limit.at_most for limit in study.limits}
    assert DreamerAgent(spec_for(study.task, cell), cell.agent).planner_constants.limits == ((1, 5.0), (2, 5.0))


@pytest.mark.parametrize(
    "change",
    [
        {"world_model": {"units": 64}},
        {"behavior": {"horizon": 6}},
        {"planner": {"mode": "off"}},
        {"risk": {"members": 3}},
        {"precision": "bfloat16"},
    ],
)
def test_what_shapes_a_compile_parts_the_packs(change: dict[str, Any]) -> None:
    assert static_key(tiny_cell(change)) != static_key(tiny_cell())


def test_every_traced_setting_is_a_number() -> None:
    def flat(values: dict[str, Any]) -> list[Any]:
        return [leaf for value in values.values() for leaf in (flat(value) if isinstance(value, dict) else [value])]

    found = flat(traced_values(DreamerSettings()))
    assert len(found) > 20
    assert all(isinstance(value, float) for value in found)
