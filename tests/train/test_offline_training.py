"""Offline cells through the same loop as all others: one model of two recorded tasks, a policy for one of them."""

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.train.offline_cells import (
    MODEL_UPDATES,
    OWN_TASK,
    TASKS,
    UPDATES,
    offline_settings,
    programs_of,
    record_both,
    train_offline,
    write_cell,
)

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm.world_model import world_model_loss
from dreamproof.base.errors import BadInput
from dreamproof.base.files import file_hash, read_json, write_json
from dreamproof.base.lines import read_rows
from dreamproof.data.arrays import read_arrays
from dreamproof.data.recordings import write_recording
from dreamproof.envs import registry
from dreamproof.envs.probes import PROBES
from dreamproof.evaluate import __main__ as evaluate_command
from dreamproof.jaxcore import ahead
from dreamproof.jaxcore.checkpoints import fill
from dreamproof.jaxcore.types import TimeStep
from dreamproof.record.episodes import record
from dreamproof.record.policies import find_policies
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import prove_evaluation, prove_training, read_checkpoint, read_evaluation
from dreamproof.settings.added import without_added
from dreamproof.settings.cell import OFFLINE_BEHAVIOR, BehaviorDraws, PwmCell, PwmOfflineCell
from dreamproof.settings.pwm import PwmBehaviorSettings
from dreamproof.testing.small_agent import merged
from dreamproof.train import loop
from dreamproof.train.collapse import validation_curve
from dreamproof.train.offline import index_tasks, sample_windows
from dreamproof.train.offline_pack import OfflinePack
from dreamproof.train.probe import probe
from dreamproof.train.world_models import WantedModel, read_world_model

pytestmark = pytest.mark.long(100)

# One actor step and two passes of two minibatches.
STEPS_A_BEHAVIOR_UPDATE = 5


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random episodes of both tasks."""
    return record_both(tmp_path_factory.mktemp("recorded") / "both.npz")


@pytest.fixture(scope="module")
def pack(file: Path, tmp_path_factory: pytest.TempPathFactory) -> OfflinePack:
    """The pack of the tiny offline cell, whose compiled programs all tests here share."""
    run = write_cell(tmp_path_factory.mktemp("offline-pack"), offline_settings(file))
    made = loop.read_job([run]).pack
    assert isinstance(made, OfflinePack)
    return made


@pytest.fixture(scope="module")
def trained(pack: OfflinePack, file: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The cell trained in one go."""
    run = write_cell(tmp_path_factory.mktemp("offline") / "run", offline_settings(file))
    assert train_offline(run, pack)
    return run


def arrays(run: RunFolder, agent_steps: int = UPDATES) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, what resuming needs among them."""
    root = run.checkpoint(agent_steps).root
    return read_arrays(root / "agent.npz") | {f"resume/{k}": v for k, v in read_arrays(root / "resume.npz").items()}


def test_updates_are_the_steps_that_a_trained_cell_proves(trained: RunFolder) -> None:
    proof = prove_training(trained, UPDATES)
    assert not isinstance(proof, str), proof
    behaved = UPDATES - MODEL_UPDATES
    assert (proof.agent_steps, proof.gradient_steps) == (UPDATES, MODEL_UPDATES + behaved * STEPS_A_BEHAVIOR_UPDATE)


def test_the_policy_extracted_for_one_task_is_far_better_than_random(trained: RunFolder) -> None:
    known = PROBES[OWN_TASK]().known()
    curve = validation_curve(trained, UPDATES)
    assert curve[UPDATES] > known.random_return + 0.8 * (known.best_return - known.random_return)
    assert curve[MODEL_UPDATES] < 0.5 * known.best_return


def test_the_model_learns_both_tasks_and_their_embedding(trained: RunFolder, pack: OfflinePack) -> None:
    fresh = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, pack.init().agent)
    learned = {name.removeprefix("model/"): value for name, value in arrays(trained).items()}
    model = jax.tree.map(jnp.asarray, fill(fresh.model, learned, "the trained model"))
    scales = jax.tree.map(lambda x: x[0], pack.inputs.scalars["world_model"])
    episodes = pack.inputs.recorded.episodes

    @eqx.filter_jit
    def losses(model: Any, windows: Windows) -> dict[str, jax.Array]:
        return world_model_loss(model, windows, jax.random.key(0), scales)[1]

    for task in range(len(TASKS)):
        own = index_tasks(np.asarray(episodes.task), np.asarray(episodes.rows), 5, [task])
        windows = sample_windows(episodes, own.windows, jax.random.key(1), (5, 64))
        scaled = windows._replace(scale=jnp.asarray(float(np.sqrt(np.square(windows.reward[1:]).mean()))))
        before, after = losses(fresh.model, scaled), losses(model, scaled)
        assert float(after["model/reward"]) < 0.8 * float(before["model/reward"]), TASKS[task]
    assert float(jnp.abs(model.tasks - fresh.model.tasks).max()) > 0.01


def test_the_model_stays_as_it_is_while_the_behaviour_learns(trained: RunFolder) -> None:
    then, now = arrays(trained, MODEL_UPDATES), arrays(trained)
    for name in now:
        if name.startswith(("model/", "rewards/")):
            np.testing.assert_array_equal(then[name], now[name], err_msg=name)
    assert any((then[name] != now[name]).any() for name in now if name.startswith("actor/"))


def test_a_model_that_is_fine_tuned_learns_beside_the_behaviour(pack: OfflinePack, file: Path) -> None:
    given = PwmOfflineCell.model_validate(offline_settings(file, {"train": {"fine_tune": True}}))
    tuning = OfflinePack(pack.agent, pack.env, given, pack.inputs, UPDATES)
    for made, expected in ((pack, False), (tuning, True)):
        state = eqx.filter_eval_shape(made._init, made.inputs)
        _, metrics = eqx.filter_eval_shape(made._behavior_update, made.inputs, state)
        assert ("model/dynamics" in metrics) == expected
        assert "actor/loss" in metrics


def test_what_is_logged_is_that_of_the_stage(trained: RunFolder) -> None:
    rows = {row["agent_steps"]: row for row in read_rows(trained.metrics) if "validation/return" not in row}
    assert "model/dynamics" in rows[50] and "actor/loss" not in rows[50]
    assert "actor/loss" in rows[UPDATES] and "model/dynamics" not in rows[UPDATES]
    assert all(np.isfinite(value) for row in rows.values() for value in row.values())


@pytest.mark.parametrize("looks", [2, 7])
def test_resuming_in_either_stage_equals_not_stopping_bit_for_bit(
    trained: RunFolder, pack: OfflinePack, file: Path, tmp_path: Path, looks: int
) -> None:
    run = write_cell(tmp_path, offline_settings(file))
    assert not train_offline(run, pack, looks)
    stopped = run.checkpoint_folders()[-1].agent_steps
    assert stopped == 50 * looks and (stopped < MODEL_UPDATES) == (looks == 2)
    assert train_offline(run, pack)
    expected, got = arrays(trained), arrays(run)
    assert expected.keys() == got.keys()
    for name in expected:
        np.testing.assert_array_equal(expected[name], got[name], err_msg=name)
    assert trained.selected.read_text() == run.selected.read_text()


def test_actions_that_only_fill_up_are_exactly_zero(pack: OfflinePack) -> None:
    state = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, pack.init().agent)
    zero, no = jnp.zeros(16), jnp.zeros(16, bool)
    shown = TimeStep(jax.random.normal(jax.random.key(0), (16, 2)), zero, zero, zero, zero, no, no, no)

    @eqx.filter_jit
    def act(state: Any, key: jax.Array) -> Any:
        return pack.agent.act(state, pack.agent.init_memory(16), shown, key, {}, explore=True).action

    action = np.asarray(act(state, jax.random.key(1)))
    assert action.shape == (16, 2)
    assert not action[:, 1].any() and action[:, 0].all()


def test_the_true_task_is_evaluated_by_the_usual_command(trained: RunFolder) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_command, "use_compilation_cache", lambda: None)
        patch.setattr(sys, "argv", ["evaluate", str(trained.root), "--conditions", "id"])
        assert evaluate_command.main() == 0
    record, proof = read_evaluation(trained, "id"), prove_training(trained, UPDATES)
    assert record is not None and not isinstance(proof, str)
    assert not isinstance(prove_evaluation(trained, "id", 6, proof.parameter_hash), str)
    gained = record.checkpoints["final"].episodes["return"]
    assert min(gained) > 0.8 * PROBES[OWN_TASK]().known().best_return
    assert record.floors["random"]["return"] < 5.0


def test_a_trained_run_can_play_the_episodes_that_are_recorded(trained: RunFolder) -> None:
    (policy,) = find_policies([OWN_TASK], [str(trained.root)])
    made = record([policy], [OWN_TASK], 8, 0, lambda batches: batches)
    assert made.observation.shape == (8, 21, 1) and made.action.shape == (8, 21, 1)
    # With the noise of training it is worse than without, and far better than random.
    assert made.reward.sum(1).mean() > 0.6 * PROBES[OWN_TASK]().known().best_return
    with pytest.raises(BadInput, match="none of the runs was trained on the task 'TestTwoHands'"):
        find_policies(list(TASKS), [str(trained.root)])
    with pytest.raises(BadInput, match="was trained on 'ProbeCostLine', which is not one of --tasks"):
        find_policies(["TestTwoHands"], [str(trained.root), "random"])


def test_a_single_recorded_task_needs_no_embedding(tmp_path: Path) -> None:
    made = record(find_policies([OWN_TASK], ["random"]), [OWN_TASK], 4, 0, lambda batches: batches)
    write_recording(tmp_path / "line.npz", made)
    alone = {"agent": {"world_model": {"tasks": 0}}, "data": {"tasks": [OWN_TASK], "observation_size": 1}}
    run = write_cell(tmp_path, offline_settings(tmp_path / "line.npz", merged(alone, {"data": {"action_size": 1}})))
    single = loop.read_job([run]).pack
    assert isinstance(single, OfflinePack)
    state = eqx.filter_eval_shape(single._init, single.inputs)
    assert state.agent.model.tasks is None
    for update in (single._model_update, single._behavior_update):
        eqx.filter_eval_shape(update, single.inputs, state)


def test_a_record_names_the_episodes_by_their_hash(trained: RunFolder, file: Path) -> None:
    record = read_checkpoint(trained.checkpoint(UPDATES))
    assert record is not None
    assert record.sources == {str(file): file_hash(file)}


def test_a_run_does_not_continue_with_other_episodes(
    trained: RunFolder, pack: OfflinePack, file: Path, tmp_path: Path
) -> None:
    run = write_cell(tmp_path, offline_settings(file))
    assert not train_offline(run, pack, 1)
    place = run.checkpoint_folders()[-1].record
    write_json(place, read_json(place) | {"sources": {str(file): "another"}})
    with pytest.raises(BadInput, match="is not the file that this run started with"):
        train_offline(run, pack)


def test_a_world_model_can_be_taken_over_from_another_run(
    trained: RunFolder, pack: OfflinePack, file: Path, tmp_path: Path
) -> None:
    run = write_cell(tmp_path, offline_settings(file, {"data": {"world_model": str(trained.root)}}))
    assert not train_offline(run, pack, 0)
    there, here = arrays(trained), arrays(run, 0)
    for name in here:
        if name.startswith(("model/", "rewards/")):
            np.testing.assert_array_equal(here[name], there[name], err_msg=name)
    assert any((here[name] != there[name]).any() for name in here if name.startswith("actor/"))
    record, source = read_checkpoint(run.checkpoint(0)), read_checkpoint(trained.checkpoint(UPDATES))
    assert record is not None and source is not None
    assert record.sources[str(trained.root)] == source.parameter_hash


def test_a_world_model_of_other_tasks_or_sizes_is_refused(
    trained: RunFolder, pack: OfflinePack, file: Path, tmp_path: Path
) -> None:
    turned = {"data": {"world_model": str(trained.root), "tasks": list(reversed(TASKS))}}
    run = write_cell(tmp_path / "turned", offline_settings(file, turned))
    with pytest.raises(BadInput, match="knows the tasks TestTwoHands, ProbeCostLine, not ProbeCostLine, TestTwoHands"):
        train_offline(run, pack)
    run = write_cell(tmp_path / "none", offline_settings(file, {"data": {"world_model": str(tmp_path / "nothing")}}))
    with pytest.raises(BadInput, match="no complete checkpoint with a world model"):
        train_offline(run, pack)
    with pytest.raises(BadInput, match=r"'model/tasks' is float32\(2, 4\), not float32\(3, 4\)"):
        wanted = [WantedModel(pack.data.tasks, pack.learner.settings)]
        read_world_model(trained.root, {"model": {"tasks": jnp.zeros((3, 4))}}, wanted)


def test_a_run_does_not_continue_with_another_world_model(
    trained: RunFolder, pack: OfflinePack, file: Path, tmp_path: Path
) -> None:
    run = write_cell(tmp_path, offline_settings(file, {"data": {"world_model": str(trained.root)}}))
    assert not train_offline(run, pack, 1)
    place = run.checkpoint_folders()[-1].record
    record = read_json(place)
    write_json(place, record | {"sources": record["sources"] | {str(trained.root): "another"}})
    with pytest.raises(BadInput, match="is not the world model that this run started with"):
        train_offline(run, pack)


def test_a_preflight_tries_both_stages(pack: OfflinePack, file: Path, tmp_path: Path) -> None:
    run = write_cell(tmp_path, offline_settings(file))
    assert pack.later_stages == (MODEL_UPDATES,)
    with programs_of(pack):
        found = probe(run)
    (saved,) = run.checkpoint_folders()
    # Two chunks of each stage, the second stage from its own first update on.
    assert saved.agent_steps == MODEL_UPDATES + 100
    assert read_arrays(saved.root / "agent.npz")["gradient_steps"] == 100 + 100 * STEPS_A_BEHAVIOR_UPDATE
    assert found["agent_steps_per_second"] > 0


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another number of tasks": ({"agent": {"world_model": {"tasks": 3}}}, "tasks is 3, but data.tasks names 2"),
    "a task without a name": ({"data": {"tasks": ["TestTwoHands", "Other"]}}, "does not name the task 'ProbeCostLine'"),
    "episodes of a strange task": (
        {"data": {"tasks": ["Other", "ProbeCostLine"]}},
        "holds episodes of the task TestTwoHands, which data.tasks does not name",
    ),
    "another single task": (
        {"agent": {"world_model": {"tasks": 0}}, "data": {"tasks": ["Other"]}},
        "does not name the task 'ProbeCostLine'",
    ),
    "a task twice": ({"data": {"tasks": ["ProbeCostLine", "ProbeCostLine"]}}, "duplicate task 'ProbeCostLine'"),
    "narrow observations": ({"data": {"observation_size": 1}}, "observation size 2 and action size 2 exceed"),
    "no file": ({"data": {"files": ["nowhere.npz"]}}, "no such file of recorded episodes"),
    "no starts": ({"agent": {"behavior": {"replayed_starts": 0}}}, "replayed_starts is 0"),
    "starts in cloned episodes that are all": (
        {"agent": {"behavior": {"starts": "copied"}}},
        "behavior.starts: copied has no effect: it needs data.cloning_share below 1",
    ),
    "cloned states without cloning": ({"agent": {"behavior": {"cloned_states": 8}}}, "cloned_states has no effect"),
    "a warm-up in which nothing is learned": (
        {"agent": {"behavior": {"critic_warm_up": 0.2}}},
        "critic_warm_up has no effect: it needs objective: imagined_return and a cloning_scale above 0",
    ),
    "recorded values for clones": (
        {"agent": {"behavior": {"objective": "cloning", "recorded_value_scale": 1.0}}},
        "recorded_value_scale has no effect: it needs objective: imagined_return",
    ),
    "a key of other trainers": ({"train": {"envs": 4}}, "unknown key 'train.envs'"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_invalid_settings_are_refused_with_a_reason(file: Path, tmp_path: Path, case: str) -> None:
    changes, expected = REFUSED[case]
    run = write_cell(tmp_path, offline_settings(file, changes))
    with pytest.raises(BadInput, match=expected):
        loop.read_job([run])


def test_a_task_wider_than_the_recorded_ones_is_refused(file: Path, tmp_path: Path) -> None:
    run = write_cell(tmp_path, offline_settings(file, {"data": {"action_size": 1}}), task="TestTwoHands")
    with pytest.raises(BadInput, match="action size of the task 'TestTwoHands', 2, exceeds the 1"):
        loop.read_job([run])


def test_several_tasks_are_for_recorded_episodes_alone() -> None:
    with pytest.raises(ValueError, match="trainer: pwm_offline"):
        PwmCell.model_validate({"agent": {"world_model": {"tasks": 2}}})


@pytest.mark.parametrize("behavior", [{"objective": "cloning"}, {"cloning_scale": 0.5}])
def test_recorded_actions_are_cloned_offline_alone(behavior: dict) -> None:
    with pytest.raises(ValueError, match="recorded actions are cloned offline: set trainer: pwm_offline"):
        PwmCell.model_validate({"agent": {"behavior": behavior}})


@pytest.mark.parametrize(
    "behavior",
    [{"cloned_states": 8}, {"starts": "copied"}, {"critic_warm_up": 0.1}, {"recorded_value_scale": 1.0}],
)
def test_settings_of_recorded_steps_are_for_offline_cells_alone(behavior: dict) -> None:
    (name,) = behavior
    with pytest.raises(ValueError, match=f"behavior.{name} has an effect offline alone"):
        PwmCell.model_validate({"agent": {"behavior": behavior}})


def test_recorded_values_and_an_entropy_bonus_are_refused_together() -> None:
    with pytest.raises(ValueError, match="recorded_value_scale needs entropy_coef: 0"):
        PwmBehaviorSettings(recorded_value_scale=1.0, entropy_coef=0.1)


def test_settings_of_recorded_steps_do_not_change_the_hashes_of_older_studies(file: Path) -> None:
    cell = PwmOfflineCell.model_validate(offline_settings(file))
    kept = without_added(PwmOfflineCell, cell.model_dump(mode="json"))
    assert not set(OFFLINE_BEHAVIOR) & set(kept["agent"]["behavior"])


def test_what_an_update_draws_follows_the_settings(file: Path) -> None:
    plain = PwmOfflineCell.model_validate(offline_settings(file))
    assert plain.draws == BehaviorDraws(32, copied_starts=False, cloned=None, windows=0)
    behavior = {"cloning_scale": 1.0, "cloned_states": 64, "starts": "copied", "recorded_value_scale": 0.5}
    changes = {"agent": {"behavior": behavior}, "data": {"cloning_share": 0.5}}
    changed = PwmOfflineCell.model_validate(offline_settings(file, changes))
    assert changed.draws == BehaviorDraws(32, copied_starts=True, cloned=64, windows=32)


def test_the_number_of_a_task_reaches_the_agent(file: Path) -> None:
    cell = PwmOfflineCell.model_validate(offline_settings(file))
    spec = registry.make_for(OWN_TASK, cell).spec
    assert (spec.task, spec.usable_actions, spec.action_size, spec.observation_size) == (1, 1, 2, 2)


@pytest.mark.parametrize("changes", [{"policies": list(TASKS)}, {"cloning_share": 0.5}], ids=["policies", "cloned"])
def test_what_a_stream_holds_later_is_not_compiled_ahead(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """The behaviour learns from other shards than the model, which are on the device in its own stage alone."""
    data = {"device_episodes": 320, "refresh_updates": 40, **changes}
    task = "both" if "policies" in changes else OWN_TASK
    job = loop.read_job([write_cell(tmp_path / "run", offline_settings(file, {"data": data}), task)])
    begun: list[str] = []

    def begin(program: Any, pool: Any, *args: Any) -> None:
        begun.append(program.function.__closure__[0].cell_contents.__name__)
        eqx.filter_eval_shape(program.function, *args)

    monkeypatch.setattr(ahead, "usable_cores", lambda: 8)
    monkeypatch.setattr(ahead.Program, "compile_ahead", begin)
    monkeypatch.setattr(job.pack, "has_env", False)
    loop.compile_ahead(job, 0)
    assert begun == ["_model_update"]
    loop.compile_ahead(job, MODEL_UPDATES)
    assert begun == ["_model_update", "_behavior_update"]
