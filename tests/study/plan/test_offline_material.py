"""What an offline study learns from must be there before anything is planned or started."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dreamproof.base.errors import BadInput
from dreamproof.cli.main import app
from dreamproof.data.recordings import Recording, write_recording
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.commands import can_micro_batch, check_training
from dreamproof.study.plan.packs import pack_groups

STUDY = Path(__file__).parents[3] / "studies" / "pwm_multitask.yaml"


@pytest.fixture
def study() -> Study:
    return read_study(STUDY)


def write_episodes(folder: Path, study: Study, tasks: int = 3, length: int = 20, reward: float = 1.0) -> Path:
    """The recorded episodes that a study names: one of each of its first tasks."""
    data = study.settings["data"]
    file = folder / data["files"][0]
    file.parent.mkdir(exist_ok=True)
    shape = (tasks, length)
    observation, action = (np.zeros((*shape, data[f"{name}_size"]), np.float32) for name in ("observation", "action"))
    rows, ended = np.full(tasks, length), np.zeros(tasks, bool)
    rewards = np.full(shape, reward, np.float32)
    write_recording(file, Recording(observation, action, rewards, np.arange(tasks), rows, ended))
    return file


def test_the_declared_study_is_valid_and_its_arms_differ_in_shape(study: Study) -> None:
    groups = pack_groups(study)
    assert len(set(groups.values())) == len(study.arms) == 4
    assert can_micro_batch(study)


def test_episodes_that_are_not_there_are_named_with_the_next_command(study: Study, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"mlp_gaussian: needs results/three\.npz, which does not exist") as error:
        check_training(study, tmp_path)
    assert "docs/multitask.md says how to record episodes" in error.value.hint
    write_episodes(tmp_path, study)
    check_training(study, tmp_path)


def test_episodes_that_do_not_suffice_are_refused_before_anything_is_planned(study: Study, tmp_path: Path) -> None:
    own = study.settings["data"]["tasks"].index(study.task)
    assert own == 0
    write_episodes(tmp_path, study, length=4)
    with pytest.raises(BadInput, match=f"train.window .*: the longest recorded episode of '{study.task}' has 4 rows"):
        check_training(study, tmp_path)
    write_episodes(tmp_path, study).write_bytes(b"no zip file")
    with pytest.raises(BadInput, match=r"three\.npz"):
        check_training(study, tmp_path)


def test_a_cell_without_a_policy_is_accepted_only_where_nothing_is_evaluated(study: Study, tmp_path: Path) -> None:
    write_episodes(tmp_path, study)
    waiting = study.settings["agent"]["behavior"]["warm_up_epochs"]
    short = study.model_copy(update={"agent_steps": waiting})
    with pytest.raises(BadInput, match="the policy would never learn"):
        check_training(short, tmp_path)
    check_training(short.model_copy(update={"conditions": []}), tmp_path)


SEVERAL_TASKS = """
name: several
question: Which dynamics are better?
metric: {name: relative_score, direction: higher, smallest_difference: 0.05}
tasks: [walker-walk, cartpole-balance]
trainer: pwm_offline
settings: {data: {files: [results/two.npz]}, agent: {behavior: {replayed_starts: 8}}}
arms: {mlp: {}}
reference_arm: mlp
seeds: 5
agent_steps: 40000
"""


def test_a_relative_score_needs_episodes_above_random(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(SEVERAL_TASKS)
    study = read_study(file)
    write_episodes(tmp_path, study, 1)
    with pytest.raises(
        BadInput, match="no recorded episode of the task 'cartpole-balance' is used; recorded: walker-walk"
    ):
        check_training(study, tmp_path)
    write_episodes(tmp_path, study, 2, reward=4.0)  # 76 in all: above the walker's 41, below the 326 of the cartpole
    with pytest.raises(BadInput, match="relative_score is undefined for 'cartpole-balance': the best recorded return"):
        check_training(study, tmp_path)
    scored = study.model_copy(update={"metric": study.metric.model_copy(update={"name": "score"})})
    check_training(scored, tmp_path)
    write_episodes(tmp_path, study, 2, reward=20.0)
    check_training(study, tmp_path)


def test_a_world_model_that_is_not_there_is_missed_for_its_arm_alone(study: Study, tmp_path: Path) -> None:
    write_episodes(tmp_path, study)
    arms = study.arms | {"taken": {"data": {"world_model": "results/before/runs/all-seed0"}}}
    with pytest.raises(BadInput, match="arm taken: needs results/before/runs/all-seed0"):
        check_training(study.model_copy(update={"arms": arms}), tmp_path)


def test_an_online_study_misses_the_world_model_that_it_starts_from(tmp_path: Path) -> None:
    study = read_study(STUDY.with_name("pwm_cheetah_run.yaml"))
    check_training(study, tmp_path)
    started = study.model_copy(update={"settings": study.settings | {"data": {"world_model": "results/before"}}})
    with pytest.raises(BadInput, match="arm mlp: needs results/before, which does not exist"):
        check_training(started, tmp_path)
    before = tmp_path / "results" / "before"
    before.mkdir(parents=True)
    with pytest.raises(BadInput, match="is a folder, but neither of a run nor of a checkpoint"):
        check_training(started, tmp_path)
    (before / "runs" / "mlp-seed0").mkdir(parents=True)
    (before / "runs" / "mlp-seed0" / "settings.json").touch()
    with pytest.raises(BadInput) as error:
        check_training(started, tmp_path)
    assert error.value.hint == f"name one of its runs, e.g. {before / 'runs' / 'mlp-seed0'}"
    (before / "settings.json").touch()
    check_training(started, tmp_path)


def test_a_home_folder_is_not_expanded(tmp_path: Path) -> None:
    study = read_study(STUDY.with_name("pwm_cheetah_run.yaml"))
    started = study.model_copy(update={"settings": study.settings | {"data": {"world_model": "~/before"}}})
    with pytest.raises(BadInput, match="needs ~/before") as error:
        check_training(started, tmp_path)
    assert error.value.hint.startswith("'~' is not expanded")


TOO_SHORT: dict[str, tuple[dict[str, object], int, str]] = {
    "the prefill of a recipe": (
        {"recipe": "published"},
        65_536,
        "agent_steps is 65,536, and its first update comes after 65,536 (train.prefill_agent_steps)",
    ),
    "the epochs of the model alone": (
        {"train": {"envs": 64, "epoch_env_steps": 4}},
        33_792,
        "after 8,192 (train.prefill_agent_steps) + 25,600 (agent.behavior.warm_up_epochs)",
    ),
}


@pytest.mark.parametrize("case", list(TOO_SHORT))
def test_a_study_that_ends_before_its_policy_learns_is_refused(tmp_path: Path, case: str) -> None:
    settings, agent_steps, seen = TOO_SHORT[case]
    study = read_study(STUDY.with_name("pwm_cheetah_run.yaml"))
    short = study.model_copy(update={"settings": settings, "arms": {"one": {}}, "agent_steps": agent_steps})
    with pytest.raises(BadInput, match="arm one: the policy would never learn") as error:
        check_training(short, tmp_path)
    assert seen in error.value.seen
    assert error.value.hint == f"set agent_steps above {agent_steps}, or lower train.prefill_agent_steps"
    check_training(short.model_copy(update={"agent_steps": agent_steps + 1}), tmp_path)


def test_a_plan_and_a_run_without_the_episodes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY.read_text())
    for arguments in (["plan", str(file)], ["run", str(file), "--no-check"]):
        refused = CliRunner().invoke(app, arguments)
        assert isinstance(refused.exception, BadInput), arguments
        assert "needs results/three.npz, which does not exist" in refused.exception.seen
    write_episodes(tmp_path, read_study(file))
    planned = CliRunner().invoke(app, ["plan", str(file)])
    assert planned.exit_code == 0 and "20 train cells" in planned.output


def test_a_study_of_world_models_alone_is_not_advised_to_evaluate_what_it_cannot(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    text = STUDY.read_text()
    study = read_study(STUDY)
    write_episodes(tmp_path, study)
    waiting = study.settings["agent"]["behavior"]["warm_up_epochs"]
    for old, new in (
        (f"agent_steps: {study.agent_steps}", f"agent_steps: {waiting}"),
        ("conditions: [id]", "conditions: []"),
    ):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    planned = CliRunner().invoke(app, ["plan", str(file)])
    assert planned.exit_code == 0, planned.output
    assert "trains world models and no policy" in planned.output and "conditions: [id]" not in planned.output
