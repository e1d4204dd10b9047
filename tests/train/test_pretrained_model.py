"""Online cells that start from a pretrained world model: frozen or fine-tuned, resumed, and refused with a reason."""

import re
import shutil
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.tiny import PWM_TASK, StopAfter, merged, tiny_pwm_settings, tiny_settings

from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.base.files import read_json, write_json
from dreamproof.data.arrays import read_arrays
from dreamproof.data.recordings import write_recording
from dreamproof.evaluate.policy import load_policy
from dreamproof.record.episodes import record
from dreamproof.record.policies import find_policies
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_checkpoint
from dreamproof.runs.records import RunSettings
from dreamproof.settings.cell import PwmCell
from dreamproof.settings.pwm import PwmSettings
from dreamproof.train import loop, world_models
from dreamproof.train.pack import ReplicaInputs
from dreamproof.train.pretrained_pack import PretrainedPack
from dreamproof.train.saving import template
from dreamproof.train.world_models import WantedModel, read_world_model

pytestmark = pytest.mark.long(60)

AGENT_STEPS = 512
TRAIN = {"evaluate_every_agent_steps": 256, "validation_episodes": 2, "keep_checkpoints": 4}


def write_run(place: Path, settings: dict[str, Any], **changes: Any) -> RunFolder:
    """A run folder with these settings, as the supervisor would write it."""
    given = {"study": "tiny", "arm": "a", "seed": 0, "task": PWM_TASK, "trainer": "pwm", "agent_steps": AGENT_STEPS}
    run = RunFolder(place)
    place.mkdir(parents=True)
    write_json(run.settings, RunSettings(**given, settings=settings).model_copy(update=changes).model_dump(mode="json"))
    return run


def pretrained(source: Path | str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The `settings` of a cell that starts from a world model."""
    settings = tiny_pwm_settings(train=TRAIN) | {"data": {"world_model": str(source)}}
    return merged(settings, changes or {})


FINE_TUNE = {"train": {"fine_tune": True}}


@pytest.fixture(scope="module", autouse=True)
def signals_as_before() -> Iterator[None]:
    """The loop handles no signals here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "StopFlag", lambda: StopAfter(10**6))
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of trainer pwm with checkpoints in the middle and at the end."""
    run = write_run(tmp_path_factory.mktemp("source") / "online", tiny_pwm_settings(train=TRAIN))
    assert loop.train([run])
    return run


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of trainer pwm_offline on the same task."""
    place = tmp_path_factory.mktemp("recorded")
    episodes = record(find_policies([PWM_TASK], ["random"]), [PWM_TASK], 8, 0, lambda batches: batches)
    write_recording(place / "episodes.npz", episodes)
    size = episodes.observation.shape[-1]
    settings = {
        "agent": tiny_pwm_settings({"behavior": {"warm_up_epochs": 4}})["agent"],
        "data": {
            "files": [str(place / "episodes.npz")],
            "tasks": [PWM_TASK],
            "observation_size": size,
            "action_size": 1,
        },
        "train": {"batch": 8, "window": 5, "validation_episodes": 2},
    }
    run = write_run(place / "offline", settings, trainer="pwm_offline", agent_steps=4)
    assert loop.train([run])
    return run


@pytest.fixture(scope="module")
def packs(source: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, PretrainedPack]:
    """Packs with and without fine-tuning, whose compiled programs all tests here share."""
    made = {}
    for is_tuned, changes in ((False, {}), (True, FINE_TUNE)):
        run = write_run(tmp_path_factory.mktemp("packs") / "run", pretrained(source.root, changes))
        pack = loop.read_job([run]).pack
        assert isinstance(pack, PretrainedPack)
        made[is_tuned] = pack
    return made


def train(run: RunFolder, packs: dict[bool, PretrainedPack], looks: int = 10**6) -> bool:
    """Trains a run folder with the compiled programs of `packs`, for so many chunks at most."""

    def compiled(agent: Any, env: Any, settings: Any, seeds: list[int], scalars: Any, steps: int) -> PretrainedPack:
        del agent, env, steps
        other = copy(packs[settings.fine_tune])
        other.inputs, other.sources = ReplicaInputs(jnp.asarray(seeds, jnp.uint32), scalars), {}
        return other

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PretrainedPack", compiled)
        patch.setattr(loop, "StopFlag", lambda: StopAfter(looks))
        return loop.train([run])


def arrays(run: RunFolder, agent_steps: int = AGENT_STEPS) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, what resuming needs among them."""
    root = run.checkpoint(agent_steps).root
    return read_arrays(root / "agent.npz") | {f"resume/{k}": v for k, v in read_arrays(root / "resume.npz").items()}


def world_model(run: RunFolder, agent_steps: int = AGENT_STEPS) -> dict[str, np.ndarray]:
    """The arrays that a world model consists of."""
    found = arrays(run, agent_steps)
    return {name: value for name, value in found.items() if name.startswith(("model/", "rewards/"))}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(scope="module")
def frozen(source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A cell trained to its end in the frozen model of the source."""
    run = write_run(tmp_path_factory.mktemp("frozen") / "run", pretrained(source.root))
    assert train(run, packs)
    return run


def test_a_frozen_model_stays_as_it_is_while_the_behaviour_learns(source: RunFolder, frozen: RunFolder) -> None:
    assert_same(world_model(frozen), world_model(source))
    first, last = arrays(frozen, 256), arrays(frozen)
    assert any((first[name] != last[name]).any() for name in first if name.startswith("actor/"))


def test_only_updates_of_actor_and_critics_count_with_a_frozen_model(frozen: RunFolder) -> None:
    record = read_checkpoint(frozen.checkpoint(AGENT_STEPS))
    # Of each epoch of 16 agent steps after the 64 of the prefill: one actor step, two passes of two minibatches.
    assert record is not None and record.gradient_steps == (AGENT_STEPS - 64) // 16 * 5


def test_a_fine_tuned_model_starts_as_it_was_and_learns_on(
    source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", pretrained(source.root, FINE_TUNE))
    assert not train(run, packs, 0)
    began = run.checkpoint_folders()[-1].agent_steps
    assert_same(world_model(run, began), world_model(source))
    assert train(run, packs)
    after, before = world_model(run), world_model(source)
    assert any((after[name] != before[name]).any() for name in after if name.startswith("model/dynamics"))


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("is_tuned", [False, True])
def test_resuming_equals_not_stopping_bit_for_bit(
    source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path, is_tuned: bool, looks: int
) -> None:
    whole, stopped = (
        write_run(tmp_path / name, pretrained(source.root, FINE_TUNE if is_tuned else {})) for name in ("one", "two")
    )
    assert train(whole, packs)
    assert not train(stopped, packs, looks)
    assert stopped.checkpoint_folders()[-1].agent_steps < AGENT_STEPS
    assert train(stopped, packs)
    assert_same(arrays(stopped), arrays(whole))
    assert stopped.selected.read_text() == whole.selected.read_text()


def test_every_checkpoint_names_the_source_by_its_parameter_hash(source: RunFolder, frozen: RunFolder) -> None:
    expected = read_checkpoint(source.checkpoint(AGENT_STEPS))
    assert expected is not None
    for folder in frozen.checkpoint_folders():
        record = read_checkpoint(folder)
        assert record is not None and record.sources == {str(source.root): expected.parameter_hash}


def test_one_checkpoint_can_be_named(source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path) -> None:
    place = source.checkpoint(256).root
    run = write_run(tmp_path / "run", pretrained(place))
    assert not train(run, packs, 0)
    assert_same(world_model(run, run.checkpoint_folders()[-1].agent_steps), world_model(source, 256))


def test_a_model_that_learned_offline_is_taken_over(
    offline: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", pretrained(offline.root))
    assert not train(run, packs, 0)
    assert_same(world_model(run, run.checkpoint_folders()[-1].agent_steps), world_model(offline, 4))


def test_a_run_that_trained_its_model_alone_gives_no_policy(offline: RunFolder) -> None:
    with pytest.raises(BadInput, match="no policy has learned in 4 updates") as error:
        load_policy(offline)
    assert "data.world_model" in error.value.hint


def test_a_run_does_not_continue_after_its_source_changed(
    source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path
) -> None:
    moving = RunFolder(tmp_path / "moving")
    newest = source.checkpoint(AGENT_STEPS).root
    shutil.copytree(source.root, moving.root, ignore=lambda _, names: {newest.name} & set(names))
    run = write_run(tmp_path / "run", pretrained(moving.root))
    assert not train(run, packs, 1)
    shutil.copytree(newest, moving.checkpoint(AGENT_STEPS).root)
    with pytest.raises(BadInput, match="is not the world model that this run started with") as error:
        train(run, packs)
    assert error.value.hint.startswith(f"ls -R {moving.root}; then restore it, name the checkpoint")
    shutil.rmtree(moving.root)
    with pytest.raises(BadInput, match="no complete checkpoint with a world model"):
        train(run, packs)


def test_another_seed_of_the_arm_does_not_start_after_the_source_changed(
    source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path
) -> None:
    moving = RunFolder(tmp_path / "moving")
    newest = source.checkpoint(AGENT_STEPS).root
    shutil.copytree(source.root, moving.root, ignore=lambda _, names: {newest.name} & set(names))
    first = write_run(tmp_path / "runs" / "a-seed0", pretrained(moving.root))
    assert not train(first, packs, 1)
    shutil.copytree(newest, moving.checkpoint(AGENT_STEPS).root)
    second = write_run(tmp_path / "runs" / "a-seed1", pretrained(moving.root), seed=1)
    with pytest.raises(BadInput, match=rf"{moving.root}: is not what a/0 of this study started with") as error:
        train(second, packs)
    assert "name the checkpoint that the others started with" in error.value.hint
    assert not second.checkpoint_folders()
    named = write_run(tmp_path / "runs" / "a-seed2", pretrained(moving.checkpoint(256).root), seed=2)
    assert not train(named, packs, 1)


def test_of_two_seeds_that_start_at_once_from_a_changing_source_one_is_saved(
    source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path
) -> None:
    old, new = (
        write_run(tmp_path / "runs" / f"a-seed{seed}", pretrained(source.checkpoint(steps).root), seed=seed)
        for seed, steps in ((0, 256), (1, AGENT_STEPS))
    )
    start = loop.start

    def start_other(job: loop.TrainingJob) -> Any:
        state = start(job)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "start", start)
            assert not train(old, packs, 1)
        return state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "start", start_other)
        with pytest.raises(BadInput, match="is not what a/0 of this study started with"):
            train(new, packs)
    assert old.checkpoint_folders() and not new.checkpoint_folders()


def test_a_run_continues_under_another_name_of_its_source(
    source: RunFolder, packs: dict[bool, PretrainedPack], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", pretrained(source.root))
    assert not train(run, packs, 1)
    write_json(run.settings, read_json(run.settings) | {"settings": pretrained(source.checkpoint(AGENT_STEPS).root)})
    assert train(run, packs)


def refusal(settings: dict[str, Any], place: Path) -> DreamproofError:
    """Why a cell cannot start."""
    job = loop.read_job([write_run(place, settings)])
    with pytest.raises(DreamproofError) as error:
        job.pack.prepare(template(job.pack))
    return error.value


MISFITS: dict[str, tuple[dict[str, Any], str, str]] = {
    "other sizes": (
        {"world_model": {"units": [24, 24]}},
        r"'model/dynamics/network/hidden/0/.*' is float32\(\d+, 16\), not float32\(\d+, 24\)",
        "use the agent settings and sizes of that run: cat ",
    ),
    "fewer layers": (
        {"world_model": {"units": [16]}},
        "'model/dynamics/network/hidden/1/.*' has no place in the model of these settings: it has other layers",
        "use the agent settings and sizes of that run: cat ",
    ),
    "another group": ({"world_model": {"group": 4}}, "trained with agent.world_model.group: 8, not 4", "cat "),
    "other rewards": (
        {"world_model": {"reward_normalisation": "standardise"}},
        "trained with agent.world_model.reward_normalisation: scale, not standardise",
        "set agent.world_model.reward_normalisation as in that run: cat ",
    ),
    "another floor of the reward's scale": (
        {"world_model": {"min_reward_scale": 0.1}},
        "trained with agent.world_model.min_reward_scale: 1.0, not 0.1",
        "cat ",
    ),
    "other dynamics": ({"dynamics": {"kind": "flow"}}, "trained with agent.dynamics.kind: mlp, not flow", "cat "),
}


@pytest.mark.parametrize("case", list(MISFITS))
def test_a_model_of_other_settings_is_refused(source: RunFolder, tmp_path: Path, case: str) -> None:
    agent, seen, hint = MISFITS[case]
    error = refusal(pretrained(source.root, {"agent": agent}), tmp_path / "run")
    assert isinstance(error, BadInput)
    assert re.search(seen, error.seen) and hint in error.hint
    assert str(source.settings) in error.hint


@pytest.mark.parametrize(("name", "value"), [("integrator", "euler"), ("substeps", 4), ("predicts", "end")])
def test_a_flow_that_is_integrated_otherwise_is_refused(
    source: RunFolder, tmp_path: Path, name: str, value: str | int
) -> None:
    flow = {"kind": "flow", "integrator": "heun", "substeps": 2}
    settings = merged(tiny_pwm_settings(train=TRAIN), {"agent": {"dynamics": flow}})
    other = copied(source, tmp_path / "other", {"settings": settings})
    error = refusal(pretrained(other.root, {"agent": {"dynamics": flow | {name: value}}}), tmp_path / "run")
    assert isinstance(error, BadInput)
    trained = (flow | {"predicts": "velocity"})[name]
    assert f"was trained with agent.dynamics.{name}: {trained}, not {value}" in error.seen


def test_a_model_of_another_environment_is_refused(source: RunFolder, tmp_path: Path) -> None:
    error = refusal(pretrained(source.root, {"env": {"ghost_slots": 1}}), tmp_path / "run")
    assert f"{source.root}: was trained with env.ghost_slots: 2, not 1" in error.seen


def test_a_frozen_model_that_never_learned_when_episodes_end_is_refused(source: RunFolder, tmp_path: Path) -> None:
    never = {"agent": {"world_model": {"termination_scale": 0.0}}}
    other = copied(source, tmp_path / "other", {"settings": merged(tiny_pwm_settings(train=TRAIN), never)})
    error = refusal(pretrained(other.root), tmp_path / "run")
    assert "does not predict when episodes of this task end" in error.seen
    for place, changes in (("tuned", FINE_TUNE), ("endless", never)):
        job = loop.read_job([write_run(tmp_path / place, pretrained(other.root, changes))])
        assert isinstance(job.pack, PretrainedPack) and not job.pack.wanted[0].terminates


def test_every_arm_of_a_pack_must_fit_the_model(source: RunFolder, tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path / f"{scale}", pretrained(source.root, {"agent": {"world_model": {"min_reward_scale": scale}}})
        )
        for scale in (1.0, 0.5)
    ]
    job = loop.read_job(runs)
    with pytest.raises(BadInput, match=r"min_reward_scale: 1\.0, not 0\.5"):
        job.pack.prepare(template(job.pack))


def test_a_damaged_newest_checkpoint_is_not_replaced_by_an_older_one(source: RunFolder, tmp_path: Path) -> None:
    other = copied(source, tmp_path / "other", {})
    (other.checkpoint(AGENT_STEPS).root / "agent.npz").write_bytes(b"torn")
    error = refusal(pretrained(other.root), tmp_path / "run")
    assert f"step-{AGENT_STEPS:012d}: file agent.npz is not what was saved" in error.seen
    assert error.hint == f"ls {other.checkpoints}; then name another checkpoint"


@pytest.mark.parametrize(
    ("theirs", "same"), [("mine.py:Task", True), ("old/mine.py:Task", True), ("Task", True), ("other.py:Task", False)]
)
def test_a_task_is_known_by_its_name_and_its_file(theirs: str, same: bool) -> None:
    assert world_models._same_task(theirs, "mine.py:Task") is same


def copied(source: RunFolder, place: Path, changes: dict[str, Any]) -> RunFolder:
    """The source with other settings in its run folder."""
    shutil.copytree(source.root, place)
    run = RunFolder(place)
    write_json(run.settings, read_json(run.settings) | changes)
    return run


def test_a_model_of_another_task_is_refused(source: RunFolder, tmp_path: Path) -> None:
    other = copied(source, tmp_path / "other", {"task": "ProbeCredit"})
    error = refusal(pretrained(other.root), tmp_path / "run")
    assert "knows the tasks ProbeCredit, not ProbeSurvive" in error.seen
    assert "name a run of the same tasks" in error.hint


def test_a_run_of_another_agent_is_refused(source: RunFolder, tmp_path: Path) -> None:
    other = copied(source, tmp_path / "other", {"trainer": "dreamer", "settings": tiny_settings()})
    error = refusal(pretrained(other.root), tmp_path / "run")
    assert "is a run of trainer dreamer" in error.seen and "trainer: pwm or pwm_offline" in error.hint


def test_a_model_that_was_never_trained_is_refused(source: RunFolder, tmp_path: Path) -> None:
    other = copied(source, tmp_path / "other", {})
    for folder in other.checkpoint_folders():
        write_json(folder.record, read_json(folder.record) | {"gradient_steps": 0})
    error = refusal(pretrained(other.root), tmp_path / "run")
    assert "was never trained" in error.seen and "dreamproof run STUDY" in error.hint


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    error = refusal(pretrained(tmp_path / "nothing"), tmp_path / "run")
    assert "no complete checkpoint with a world model" in error.seen and f"ls {tmp_path / 'nothing'}" in error.hint


def test_the_tasks_of_an_offline_model_may_be_named_by_their_set(source: RunFolder, tmp_path: Path) -> None:
    data = {"files": ["a.npz"], "tasks": "mt8"}
    settings = {"data": data, "agent": tiny_pwm_settings({"world_model": {"tasks": 8}})["agent"]}
    other = copied(source, tmp_path / "other", {"trainer": "pwm_offline", "settings": settings})
    wanted = [WantedModel(("ProbeSurvive",), PwmSettings())]
    with pytest.raises(BadInput, match=r"knows the tasks [a-z]+-[a-z]+, "):
        read_world_model(other.root, {}, wanted)


def test_an_offline_model_with_an_embedding_of_its_one_task_is_refused(source: RunFolder, tmp_path: Path) -> None:
    data = {"files": ["a.npz"], "tasks": ["ProbeSurvive"], "observation_size": 1, "action_size": 1}
    settings = {"data": data, "agent": tiny_pwm_settings({"world_model": {"tasks": 1}})["agent"]}
    other = copied(source, tmp_path / "other", {"trainer": "pwm_offline", "settings": settings})
    error = refusal(pretrained(other.root), tmp_path / "run")
    assert "was trained with agent.world_model.tasks: 1 (task embeddings), not 0" in error.seen
    assert error.hint.startswith("train the model without agent.world_model.tasks")


def test_fine_tuning_without_a_pretrained_model_is_refused() -> None:
    with pytest.raises(ValueError, match="no effect without a pretrained model"):
        PwmCell.model_validate(tiny_pwm_settings(train={"fine_tune": True}))
