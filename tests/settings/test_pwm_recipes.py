"""Recipes are named values of settings: a study's own values override them, and resolved settings hold the values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.settings.test_agent_settings import fields_of, nested, value_at

from dreamproof.base.errors import BadInput
from dreamproof.settings.cell import PwmCell, PwmOfflineCell
from dreamproof.settings.pwm_recipes import RECIPES, with_recipe
from dreamproof.settings.resolved import resolve, resolved_hash
from dreamproof.settings.strict import validate
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.commands import check_training
from dreamproof.study.plan.packs import pack_groups
from dreamproof.study.plan.provenance import resolved_arm
from dreamproof.testing.small_agent import merged

STUDY = Path(__file__).parents[2] / "studies" / "pwm_recipes.yaml"
# What the specification of PWM as released says, written here by hand.
PUBLISHED: dict[str, Any] = {
    "agent.behavior.horizon": 16,
    "agent.behavior.rounds": 1,
    "agent.behavior.replayed_starts": 0,
    "agent.behavior.critic_passes": 8,
    "agent.behavior.critic_batches": 4,
    "agent.behavior.shuffled": False,
    "agent.behavior.acting": "open_loop",
    "agent.behavior.final_value_power": "horizon_plus_one",
    "agent.behavior.warm_up_epochs": 0,
    "agent.world_model.reward": "scalar",
    "agent.world_model.reward_normalisation": "standardise",
    "agent.world_model.reward_clip": 5.0,
    "agent.world_model.termination_scale": 0.0,
    "agent.running_scales": "cumulative",
    "agent.precision": "float32",
    "train.replay_sampling": "trajectories",
    "train.bootstrap_updates": 1000,
    "train.prefill_actions": "policy",
    "train.staggered": False,
    "train.window": 17,
    "train.batches": 8,
    "train.batch": 256,
    "train.epoch_env_steps": 16,
    "train.collapse.fraction": 0.0,
}
FORK: dict[str, Any] = {
    "agent.world_model.reward": "broken",
    "agent.world_model.bins": 101,
    "agent.world_model.source_pull": 1.0,
    "agent.world_model.endpoint_scale": 0.0,
    "agent.dynamics.kind": "flow",
    "agent.dynamics.space": "broken",
    "train.batch": 1024,
    "train.envs": 256,
}
EXPECTED = {"published": PUBLISHED, "fork": PUBLISHED | FORK}


def cell(**settings: Any) -> PwmCell:
    return validate(PwmCell, settings, "a test")


def dotted(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every leaf."""
    for key, value in tree.items():
        yield from dotted(value, f"{above}{key}.") if isinstance(value, dict) else [(above + key, value)]


@pytest.mark.parametrize("name", list(EXPECTED))
def test_a_recipe_has_the_values_of_what_it_is_named_after(name: str) -> None:
    made = cell(recipe=name)
    assert {path: value_at(made, path) for path in EXPECTED[name]} == EXPECTED[name]


def test_our_own_recipe_is_the_defaults() -> None:
    assert cell(recipe="dreamproof").model_dump() == cell().model_dump()


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_value_of_a_recipe_is_that_of_a_setting(name: str) -> None:
    made, known = cell(recipe=name), dict(fields_of(PwmCell))
    for path, value in dotted(RECIPES[name]):  # type: ignore[index]
        assert path in known and value_at(made, path) == value


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_name_means_the_same_as_its_values_written_out(name: str) -> None:
    named, written = (resolve("pwm", "Ant", 10, each, "") for each in ({"recipe": name}, RECIPES[name]))  # type: ignore[index]
    assert named == written and resolved_hash(named) == resolved_hash(written)
    assert "recipe" not in named["settings"]


def test_own_settings_override_a_recipe_and_leave_the_rest() -> None:
    made = cell(recipe="published", agent={"behavior": {"horizon": 8, "mixing": 0.9}}, train={"envs": 64})
    assert (made.agent.behavior.horizon, made.agent.behavior.gae_lambda, made.train.envs) == (8, 0.9, 64)
    assert made.agent.behavior.acting == "open_loop" and made.train.window == 17
    assert cell(recipe="fork", agent={"dynamics": {"kind": "mlp"}}).agent.dynamics.kind == "mlp"


def study(settings: dict[str, Any], arms: dict[str, Any], **changes: Any) -> Study:
    given = {"name": "s", "question": "q", "metric": {"smallest_difference": 1.0}, "task": "cheetah-run"}
    given |= {"trainer": "pwm", "settings": settings, "arms": arms, "seeds": 1, "agent_steps": 1000}
    return validate(Study, given | changes, "a study")


def test_a_recipe_of_an_arm_replaces_that_of_all_arms() -> None:
    shared = {"recipe": "published", "train": {"envs": 64}}
    made = study(shared, {"one": {}, "two": {"recipe": "dreamproof"}, "three": {"agent": {"behavior": {"rounds": 2}}}})
    resolved = {arm: resolved_arm(made, arm)["settings"] for arm in made.arms}
    assert [resolved[arm]["agent"]["behavior"]["rounds"] for arm in made.arms] == [1, 16, 2]
    assert [resolved[arm]["agent"]["behavior"]["acting"] for arm in made.arms] == [
        "open_loop",
        "closed_loop",
        "open_loop",
    ]
    assert all(settings["train"]["envs"] == 64 for settings in resolved.values())


def test_a_run_gets_values_and_no_name() -> None:
    made = study({}, {"one": {"recipe": "published"}})
    assert "recipe" not in made.merged_settings("one")
    assert made.merged_settings("one") == RECIPES["published"] == with_recipe({"recipe": "published"})


def test_an_unknown_recipe_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="recipe: must be 'published', 'fork' or 'dreamproof'"):
        pack_groups(study({"recipe": "publishd"}, {"one": {}}))


def test_other_trainers_have_no_recipes() -> None:
    with pytest.raises(BadInput, match="unknown key 'recipe'"):
        pack_groups(study({"recipe": "published"}, {"one": {}}, trainer="dreamer"))


def test_offline_cells_do_not_act_in_open_loop() -> None:
    data = {"files": ["a.npz"], "tasks": ["a"], "observation_size": 1, "action_size": 1}
    with pytest.raises(BadInput, match="acting: open_loop has no effect"):
        validate(PwmOfflineCell, {"data": data, "agent": {"behavior": {"acting": "open_loop"}}}, "a test")


def test_the_declared_study_runs_all_three_side_by_side(tmp_path: Path) -> None:
    made = read_study(STUDY)
    check_training(made, tmp_path)
    assert list(made.arms) == list(RECIPES) and len(made.seeds) == 5 and made.task == "cheetah-run"
    assert len(set(pack_groups(made).values())) == 3 and made.backend.slots == 3
    for arm in made.arms:
        settings = resolved_arm(made, arm)["settings"]
        assert settings["agent"]["world_model"]["size"] == "5M"
        own = merged(RECIPES[arm], made.settings)  # type: ignore[index]
        assert merged(settings, own) == settings
        epoch = settings["train"]["envs"] * settings["train"]["epoch_env_steps"]
        assert made.agent_steps % epoch == settings["train"]["evaluate_every_agent_steps"] % epoch == 0


def test_names_are_dotted() -> None:
    assert dict(dotted(nested("a.b", 1))) == {"a.b": 1}
