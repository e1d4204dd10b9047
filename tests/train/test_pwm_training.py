"""The PWM agent through the same loop as every agent: proof, resume, packs, pieces of batches, evaluation."""

import sys
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from tests.tiny import (
    PWM_AGENT_STEPS,
    PWM_CELLS,
    PWM_TASK,
    StopAfter,
    make_pwm_pack,
    merged,
    tiny_pwm_cell,
    tiny_pwm_settings,
    train_here,
    with_inputs,
    write_pwm_cells,
)

from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_json, write_json
from dreamproof.base.lines import read_rows
from dreamproof.data.arrays import read_arrays
from dreamproof.envs import registry
from dreamproof.evaluate import __main__ as evaluate_command
from dreamproof.jaxcore.checkpoints import named_arrays, parameter_hash
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import prove_evaluation, prove_training, read_evaluation, read_settings
from dreamproof.settings.cell import DreamerCell, PwmCell
from dreamproof.train import loop
from dreamproof.train.collapse import past_collapses, validation_curve
from dreamproof.train.log import MetricSums
from dreamproof.train.pack import Pack, PackState

pytestmark = pytest.mark.long(100)

Trained = dict[str, RunFolder]
EPOCH_AGENT_STEPS = 16
# One actor step, two passes of two minibatches, two model updates.
STEPS_AN_EPOCH = 7


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """The pack of the tiny PWM cells, whose compiled programs all tests here share."""
    return loop.read_job(list(write_pwm_cells(tmp_path_factory.mktemp("pwm-pack")).values())).pack


@pytest.fixture(scope="module")
def trained(pack: Pack, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Both cells trained in one go."""
    folders = write_pwm_cells(tmp_path_factory.mktemp("pwm-trained"))
    assert train_here(folders, pack)
    return folders


def final(run: RunFolder) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint, what resuming needs among them."""
    root = run.checkpoint_folders()[-1].root
    return read_arrays(root / "agent.npz") | {f"resume/{k}": v for k, v in read_arrays(root / "resume.npz").items()}


@pytest.mark.parametrize("name", list(PWM_CELLS))
def test_a_trained_cell_proves_itself(trained: Trained, name: str) -> None:
    proof = prove_training(trained[name], PWM_AGENT_STEPS)
    assert not isinstance(proof, str), proof
    epochs = (PWM_AGENT_STEPS - 64) // EPOCH_AGENT_STEPS
    assert (proof.agent_steps, proof.gradient_steps) == (PWM_AGENT_STEPS, epochs * STEPS_AN_EPOCH)


def test_the_probe_is_learnt_to_its_known_best(trained: Trained) -> None:
    assert validation_curve(trained["quick"], PWM_AGENT_STEPS)[PWM_AGENT_STEPS] == 10.0


def test_what_is_logged_names_all_parts_of_an_epoch(trained: Trained) -> None:
    row = [row for row in read_rows(trained["plain"].metrics) if "model/dynamics" in row][-1]
    assert {"actor/loss", "critics/loss", "model/reward", "model/termination", "imagined/return"} <= row.keys()
    assert row["model/latent_variance"] > 0 and row["model/unexplained_variance"] > 0
    assert all(np.isfinite(value) for value in row.values())


def test_the_summary_keeps_peak_final_and_area_apart(trained: Trained) -> None:
    run = trained["plain"]
    curve = validation_curve(run, PWM_AGENT_STEPS)
    summary = read_json(run.summary)
    assert summary["final_return"] == curve[PWM_AGENT_STEPS]
    assert summary["peak_return"] == max(curve.values())
    assert min(curve.values()) <= summary["area_return"] <= summary["peak_return"]
    assert summary["validations"] == len(curve) == 5


@pytest.mark.parametrize("looks", [3, 11])
def test_resuming_equals_not_stopping_bit_for_bit(
    trained: Trained, pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    folders = write_pwm_cells(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "StopFlag", lambda: StopAfter(looks))
        assert not train_here(folders, pack)
    assert folders["plain"].checkpoint_folders()[-1].agent_steps < PWM_AGENT_STEPS
    assert train_here(folders, pack)
    for name in PWM_CELLS:
        expected, got = final(trained[name]), final(folders[name])
        assert expected.keys() == got.keys()
        for key in expected:
            np.testing.assert_array_equal(expected[key], got[key], err_msg=f"{name} {key}")
        assert trained[name].selected.read_text() == folders[name].selected.read_text()


def test_every_env_is_evaluated_for_exactly_one_complete_episode_on_true_rewards(trained: Trained) -> None:
    run = trained["plain"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_command, "use_compilation_cache", lambda: None)
        patch.setattr(sys, "argv", ["evaluate", str(run.root), "--conditions", "id"])
        assert evaluate_command.main() == 0
    record, proof = read_evaluation(run, "id"), prove_training(run, PWM_AGENT_STEPS)
    assert record is not None and not isinstance(proof, str)
    episodes = record.checkpoints["final"].episodes
    assert len(episodes["return"]) == len(episodes["length"]) == 6
    # The reward is 1 per step and 0 in the step that ends it.
    for gained, length in zip(episodes["return"], episodes["length"], strict=True):
        assert gained == (length if length == 10 and gained == 10 else length - 1)
    assert not isinstance(prove_evaluation(run, "id", 6, proof.parameter_hash), str)


def test_a_replica_does_not_depend_on_who_is_in_its_pack(pack: Pack) -> None:
    found = []
    for names, place in ((("plain", "quick"), 1), (("quick", "plain"), 0)):
        seeds, changes = zip(*(PWM_CELLS[name] for name in names), strict=True)
        changed = with_inputs(pack, [tiny_pwm_cell(change) for change in changes], seeds)
        state, _ = changed.prefill(changed.init(), 16)
        state, _ = changed.chunk(state, 8)
        kept = eqx.filter((state.agent, state.replay.rows), eqx.is_array)
        found.append(jax.tree.map(lambda x, place=place: np.asarray(x[place]), kept))
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_micro_batches_are_for_agents_that_can_and_batches_that_divide() -> None:
    assert PwmCell().with_micro_batches(4).agent.world_model.micro_batches == 4
    with pytest.raises(BadInput, match="cannot be split into 3"):
        PwmCell().with_micro_batches(3)
    with pytest.raises(BadInput, match="does not support --micro-batches"):
        DreamerCell().with_micro_batches(2)
    assert DreamerCell().with_micro_batches(1) == DreamerCell()


def test_a_setting_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_pwm_cells(tmp_path)["plain"]
    given = read_settings(folder)
    assert given is not None
    for part, expected in (
        ({"agent": {"behavior": {"replayed_starts": 1000}}}, "× 1000, is more than the"),
        ({"train": {"prefill_agent_steps": 4}}, "too few for a window"),
        ({"agent": {"world_model": {"latent": 12}}}, "not a multiple of group"),
        ({"agent": {"world_model": {"observation_scale": 2.0}}}, "set decoder: true"),
    ):
        wrong = merged(tiny_pwm_settings(), part)
        write_json(folder.settings, given.model_copy(update={"settings": wrong}).model_dump(mode="json"))
        with pytest.raises(BadInput, match=expected):
            loop.read_job([folder])


def test_critics_learn_before_the_actor_follows_them() -> None:
    cell = tiny_pwm_cell({"behavior": {"warm_up_epochs": 2}})
    made = make_pwm_pack(registry.make(PWM_TASK), [cell], [0], PWM_AGENT_STEPS)
    state, _ = made.prefill(made.init(), 16)
    hashes = []
    for _ in range(4):
        hashes.append([parameter_hash(named_arrays(part)) for part in (state.agent.actor, state.agent.critics)])
        state, _ = made.chunk(state, EPOCH_AGENT_STEPS // made.envs)
    same = [[old == new for old, new in zip(*pair, strict=True)] for pair in pairwise(hashes)]
    assert same == [[True, False], [True, False], [False, False]]


def test_the_ring_forgets_the_oldest_rows() -> None:
    cell = tiny_pwm_cell(train={"replay_agent_steps": 40})
    made = make_pwm_pack(registry.make(PWM_TASK), [cell], [0], PWM_AGENT_STEPS)
    assert jax.eval_shape(made._init, made.inputs).replay.rows.shape[2] == 10


def with_returns(pack: Pack, values: list[float]) -> Pack:
    """A pack whose validations say these returns, one after the other, for the first cell; the other always 5."""
    other: Any = copy(pack)
    left = list(values)

    def evaluate(agent: Any, params: Any, split: Any, episodes: int) -> Any:
        found = pack.evaluate(agent, params, split, episodes)
        now = left.pop(0) if left else values[-1]
        return found._replace(returns=jnp.stack([jnp.full(episodes, now), jnp.full(episodes, 5.0)]))

    other.evaluate = evaluate
    return other


# Validations at 512, 1024, 1536, 2048 and 2560 agent steps.
GUARD = {"collapse": {"fraction": 0.5, "evaluations": 2, "rollbacks": 1}}


def test_a_collapse_is_recorded_and_rolled_back_for_its_replica_alone(
    trained: Trained, pack: Pack, tmp_path: Path
) -> None:
    folders = write_pwm_cells(tmp_path, GUARD)
    assert train_here(folders, with_returns(pack, [2.0, 10.0, 1.0, 1.0, 9.0]))
    (record,) = past_collapses(folders["plain"], PWM_AGENT_STEPS + 1)
    assert (record.agent_steps, record.best_agent_steps, record.rolled_back_to) == (2048, 1024, 1024)
    assert (record.validation_return, record.best_return) == (1.0, 10.0)
    good, after = (read_arrays(folders["plain"].checkpoint(step).root / "agent.npz") for step in (1024, 2048))
    for name in good:
        if name not in ("gradient_steps", "finite"):
            np.testing.assert_array_equal(good[name], after[name], err_msg=name)
    assert after["gradient_steps"] > good["gradient_steps"]
    assert not past_collapses(folders["quick"], PWM_AGENT_STEPS + 1)
    expected, got = (
        read_arrays(run["quick"].checkpoint_folders()[-1].root / "agent.npz") for run in (trained, folders)
    )
    for name in expected:
        np.testing.assert_array_equal(expected[name], got[name], err_msg=name)
    summary = read_json(folders["plain"].summary)
    assert (summary["collapses"], summary["rollbacks"], summary["final_return"]) == (1, 1, 9.0)


def test_after_the_last_rollback_collapses_are_recorded_and_left(pack: Pack, tmp_path: Path) -> None:
    none_left = {"collapse": {"fraction": 0.5, "evaluations": 1, "rollbacks": 1}}
    folders = write_pwm_cells(tmp_path, none_left)
    assert train_here(folders, with_returns(pack, [10.0, 1.0, 1.0, 10.0, 2.0]))
    records = past_collapses(folders["plain"], PWM_AGENT_STEPS + 1)
    assert [(record.agent_steps, record.rolled_back_to) for record in records] == [
        (1024, 512),
        (1536, None),
        (2560, None),
    ]
    assert "rollbacks are used" in records[1].reason
    assert "training is over" in records[2].reason


def test_host_memory_does_not_grow_with_epochs(pack: Pack) -> None:
    state, _ = pack.prefill(pack.init(), 16)
    sums, process = MetricSums(len(PWM_CELLS)), psutil.Process()

    def growth(state: PackState) -> tuple[PackState, float]:
        """Megabytes in a thousand epochs: ten a sample, between the middles of two groups of samples."""
        megabytes = []
        for _ in range(130):
            state, metrics = pack.chunk(state, 40)
            sums.add(jax.device_get(metrics))
            sums.take()
            megabytes.append(process.memory_info().rss / 2**20)
        return state, float(np.median(megabytes[-20:]) - np.median(megabytes[10:30]))

    state, first = growth(state)
    # What earlier tests freed may be taken again once; what grows with epochs does so again.
    second = growth(state)[1] if first >= 1.0 else first
    assert min(first, second) < 1.0, f"{first:.2f} and {second:.2f} MB in 1,000 epochs each"
