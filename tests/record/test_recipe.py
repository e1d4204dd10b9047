"""Data of our own: agents of single tasks trained in one study, their policies as files, a data set by a recipe."""

import io
import shutil
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml

from dreamproof.api import load
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import file_hash, read_json
from dreamproof.cli.main import main
from dreamproof.data.recordings import TaskInfo, open_episodes
from dreamproof.evaluate.loading import Loaded
from dreamproof.evaluate.policy_file import read_policy
from dreamproof.record import __main__ as record_command
from dreamproof.record import recipe as recipe_module
from dreamproof.record.recipe import inputs_of, make_data, open_levels, plan_task
from dreamproof.settings.recipe import Recipe
from dreamproof.settings.several_tasks import merge
from dreamproof.testing.small_agent import tiny_pwm_settings

pytestmark = [pytest.mark.long(60), pytest.mark.xdist_group("recipe")]
TASKS = ["ProbeTarget", "ProbeRecall"]


def dreamproof(*arguments: str) -> str:
    """Runs a verb in this process, which must succeed, and returns what it prints."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["dreamproof", *arguments])
        main()
    assert not ended.value.code, printed.getvalue()
    return printed.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policies of two levels for each of two tasks, trained in one study."""
    place = tmp_path_factory.mktemp("data")
    settings = tiny_pwm_settings({"behavior": {"warm_up_epochs": 1}})
    steps = 160  # more than the prefill, which takes no updates
    settings["train"] |= {"evaluate_every_agent_steps": steps, "keep_checkpoints": 2}
    declared = {
        "name": "experts",
        "question": "How far does every task come?",
        "metric": {"name": "return", "smallest_difference": 1},
        "tasks": TASKS,
        "trainer": "pwm",
        "settings": settings,
        "seeds": 1,
        "agent_steps": 2 * steps,
        "evaluation_episodes": 2,
    }
    (place / "experts.yaml").write_text(yaml.safe_dump(declared))
    printed = dreamproof("run", str(place / "experts.yaml"), "--no-check", "--plain")
    assert "train       2/2 proven" in printed and "different tasks" in printed
    assert "4 policies" in dreamproof("export", str(place / "experts.yaml"), str(place / "policies"), "--policies")
    return place


def test_an_export_with_checkpoints_acts_as_the_study(folder: Path, tmp_path: Path) -> None:
    place, cell = folder / "experts.yaml", f"{TASKS[0]}/0"
    for name, more in (("full", ["--checkpoints"]), ("bare", [])):
        dreamproof("export", str(place), str(tmp_path / name), *more)
    for source, name in ((place, "own.npz"), (tmp_path / "full", "exported.npz")):
        dreamproof("export", str(source), str(tmp_path / name), "--policy", cell)
    assert file_hash(tmp_path / "own.npz") == file_hash(tmp_path / "exported.npz")
    dreamproof("verify", str(tmp_path / "full"))
    with pytest.raises(BadInput, match="export STUDY TARGET --checkpoints"):
        load(tmp_path / "bare").policy(TASKS[0], 0)
    with pytest.raises(BadInput, match=f"trained on '{TASKS[0]}' alone, not on '{TASKS[1]}'"):
        load(tmp_path / "full").policy(TASKS[0], 0, task=TASKS[1])
    assert len(load(tmp_path / "full").write_policies(tmp_path / "policies")) == len(TASKS)


def recipe(**changes: object) -> Recipe:
    given = {"tasks": TASKS, "random_episodes": 4, "episodes": [2, 6], "chunks": 2, "seed": 3}
    return Recipe.model_validate(given | changes)


@pytest.fixture(scope="module")
def written(folder: Path) -> list[Path]:
    lines: list[str] = []
    made = make_data(recipe(), folder, folder / "set.pt", lines.append)
    assert [line.split(":")[0] for line in lines[1:]] == TASKS
    return made


def test_it_writes_chunks_and_a_card(written: list[Path]) -> None:
    assert [path.name for path in written] == ["set_0.pt", "set_1.pt", "set.json", "set.md"]
    for path in written[:2]:
        episodes = open_episodes(path)
        assert np.bincount(np.asarray(episodes.task[:, 0])).tolist() == [6, 6]


def test_the_card_says_what_was_recorded_by_what(written: list[Path], folder: Path) -> None:
    card = read_json(written[2])
    assert card is not None and card["files"] == {path.name: file_hash(path) for path in written[:2]}
    assert card["policies"].keys() == {path.name for path in (folder / "policies").glob("*.npz")}
    for task in TASKS:
        counts = [level["episodes"] for level in card["returns"][task].values()]
        assert counts == [4, 2, 6]
    assert card["share_of_the_last_level"] == 0.5
    page = written[3].read_text()
    assert "| ProbeTarget |" in page and "version 1" in page


def test_the_same_recipe_gives_the_same_files(written: list[Path], folder: Path) -> None:
    again = make_data(recipe(), folder, folder / "again.pt", lambda line: None)
    assert [file_hash(path) for path in again[:2]] == [file_hash(path) for path in written[:2]]
    first, second = (np.asarray(open_episodes(path).observation) for path in written[:2])
    assert not np.array_equal(first, second)


def test_one_call_plays_all_levels_of_all_chunks(folder: Path) -> None:
    plan = plan_task(recipe(random_episodes=8, episodes=[4, 12]), TASKS[0], folder / "policies")
    assert (plan.batch, plan.batches) == (2, [0, 0, 1, 2, 2, 2])
    (_, random_share), keys = inputs_of(plan, 0, seeds=[6, 7])
    assert random_share.tolist() == [1, 1, 0, 0, 0, 0] * 2
    assert [key.shape for key in keys] == [(12, 2), (12, 2), (12,)]
    assert all(len(np.unique(jax.random.key_data(key).reshape(-1, 2), axis=0)) == key.size for key in keys)


def test_a_share_of_the_actions_is_random(folder: Path) -> None:
    plan = plan_task(recipe(episodes=[4, 12], random_actions=[0.0, 0.25]), TASKS[0], folder / "policies")
    assert [(level.episodes, level.random_share) for level in plan.levels] == [
        (2, 1.0),
        (1, 0.0),
        (1, 0.25),
        (3, 0.0),
        (3, 0.25),
    ]
    assert plan.levels[-1].name.endswith(", 25% random")
    policy, count = plan.policy, 4000
    _, seen = policy.env.reset(jax.random.split(jax.random.key(0), count), policy.env.default_params())
    key, (state, _) = jax.random.key(1), plan.states[1]
    own, mixed, other = (policy.act((state, share), policy.memory(count), seen, key)[0] for share in (0.0, 0.25, 1.0))
    is_random = (mixed != own).any(-1)
    assert abs(is_random.mean() - 0.25) < 0.03
    np.testing.assert_array_equal(mixed[is_random], other[is_random])


def test_the_command_reads_a_recipe(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"tasks": TASKS, "random_episodes": 0, "episodes": [1, 1], "chunks": 1}))
    monkeypatch.setattr(sys, "argv", ["record", "--recipe", str(path), "--output", str(folder / "small.pt")])
    assert record_command.main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"{len(TASKS)} tasks, 2 episodes each; compiling")
    assert printed[-1].startswith("written: ") and (folder / "small_0.pt").is_file()


def test_a_chunk_of_other_tasks_than_its_reader_would_name_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = TaskInfo(("walker-stand", "walker-walk"), (24, 24), (6, 6))
    monkeypatch.setattr(recipe_module, "set_info", lambda rows: names)
    with pytest.raises(BadInput, match="holds all 2 tasks of its set, by their numbers") as refused:
        make_data(recipe(), folder, folder / "never.pt", lambda line: None)
    assert refused.value.hint == "write --output FILE.npz, which holds the names"


def test_episodes_that_diverged_are_refused_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe_module, "compiled", lambda plans, seeds: ((plan, None) for plan in plans))
    monkeypatch.setattr(recipe_module, "play_task", lambda *given: {"random": [1.0, float("nan")], "step 8": [2.0]})
    with pytest.raises(BrokenEvidence, match="ProbeTarget gave values that are not finite in 1 of random"):
        make_data(recipe(), folder, folder / "never.pt", lambda line: None)
    assert not list(folder.glob("never*"))


def test_what_does_not_fit_is_refused(folder: Path) -> None:
    for given, message in (
        (recipe(episodes=[2, 2, 2]), "2 policy files of the task 'ProbeTarget', the recipe has 3 levels"),
        (recipe(chunks=3), "cannot be split into 3 equal chunks"),
        (recipe(random_actions=[0.0, 0.5]), "2 equal parts of random_actions"),
        (recipe(policies="elsewhere"), "there is no such folder of policies"),
        (
            recipe(tasks=["ProbeTarget", "ProbeRecal"]),
            "no policy file of the task 'ProbeRecal'.*did you mean 'ProbeRecall'",
        ),
    ):
        with pytest.raises(BadInput, match=message):
            make_data(given, folder, folder / "never.pt", lambda line: None)


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_recorded(folder: Path) -> None:
    (folder / "taken.npz").mkdir()
    for name, message in (
        ("nowhere/x.npz", "nowhere: there is no such folder"),
        ("x.csv", "are written as .pt or .npz"),
        ("taken.npz", "is a folder"),
    ):
        with pytest.raises(BadInput, match=message):
            make_data(recipe(policies="elsewhere"), folder, folder / name, lambda line: None)


@pytest.mark.parametrize("name", ["set_0.pt", "set_1.pt", "set.json", "set.md"])
def test_what_was_recorded_before_is_not_replaced(name: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("before")
    with pytest.raises(BadInput, match=f"{name}: exists already"):
        make_data(recipe(policies="elsewhere"), folder, tmp_path / "set.pt", lambda line: None)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_policies_that_are_not_what_their_names_say_are_refused(folder: Path, tmp_path: Path) -> None:
    given = sorted((folder / "policies").glob("*.npz"))
    own, other = ([path for path in given if path.name.startswith(task)] for task in TASKS)

    def refused(message: str, *files: tuple[Path, str]) -> None:
        place = tmp_path / message.replace(" ", "_")
        place.mkdir()
        for path, name in files:
            shutil.copy(path, place / name)
        with pytest.raises(BadInput, match=message):
            open_levels(recipe(), TASKS[0], place)

    first, second = own[0].name, own[1].name
    refused("was trained on 'ProbeRecall', and its name says 'ProbeTarget'", (own[0], first), (other[1], second))
    refused("are both of 160 agent steps, so of one level", (own[0], first), (own[0], second))


def test_levels_of_other_networks_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(path: Path) -> Loaded:
        loaded = read_policy(path)
        if path.name.endswith("step320.npz"):
            settings = merge(loaded.run.settings, {"agent": {"behavior": {"actor_units": 9}}})
            return replace(loaded, run=loaded.run.model_copy(update={"settings": settings}))
        return loaded

    monkeypatch.setattr(recipe_module, "read_policy", reads)
    with pytest.raises(BadInput, match=r"step320.npz: was trained with other settings .*actor_units: .* → 9\)"):
        open_levels(recipe(), TASKS[0], folder / "policies")


def test_levels_of_several_seeds_are_refused_whatever_their_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(path: Path) -> Loaded:
        loaded = read_policy(path)
        return replace(loaded, run=loaded.run.model_copy(update={"seed": int(path.name.endswith("step320.npz"))}))

    monkeypatch.setattr(recipe_module, "read_policy", reads)
    with pytest.raises(BadInput, match="are of the seeds 0, 1, not of one"):
        open_levels(recipe(), TASKS[0], folder / "policies")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": [-2, 2]}, "greater than or equal to 0"),
        ({"random_episodes": 0, "episodes": [0, 0]}, "nothing would be recorded"),
        ({"tasks": [TASKS[0], TASKS[0]]}, "ProbeTarget is listed twice"),
    ],
)
def test_a_recipe_that_records_nothing_or_something_twice_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**changes)


def test_other_options_beside_a_recipe_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["record", "--recipe", "r.yaml", "--output", "x.npz", "--seed", "3"])
    assert record_command.main() == 2
    assert "--seed has no effect beside --recipe" in capsys.readouterr().err
