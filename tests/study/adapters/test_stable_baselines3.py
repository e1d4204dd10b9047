"""Runs of stable-baselines3: every log it writes, its models, and recorded folders of it."""

import shutil
import zipfile
from pathlib import Path

import pytest
from tests.study.adapters.foreign_folders import BEGAN, HOUR, proof_of, sb3_model, sb3_run

from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import NotSaved
from dreamproof.study.adapters import find_adapter
from dreamproof.study.adapters.automatic import AutoAdapter


@pytest.mark.parametrize("form", ["csv", "json", "monitor", "evaluations"])
def test_every_log_of_stable_baselines3_shows_progress_and_proves_with_the_model(form: str, tmp_path: Path) -> None:
    run, adapter = sb3_run(tmp_path, form), find_adapter("sb3")
    reading = adapter.read(run)
    assert (reading.agent_steps, reading.phase) == (20_480, "train")
    sb3_model(run.root / "final_model.zip", 20_480, 100)
    proof = proof_of(adapter.prove_training(run, 20_000))
    assert (proof.agent_steps, proof.checkpoint) == (20_480, "final_model.zip")
    assert proof.gradient_steps == (102 if form in ("csv", "json") else 100)
    assert adapter.results(run)


def test_the_results_of_stable_baselines3_are_its_logger_its_episodes_and_its_evaluations(tmp_path: Path) -> None:
    for form in ("csv", "monitor", "evaluations"):
        run = sb3_run(tmp_path, form)
    series = find_adapter("sb3").results(run)
    assert series["rollout/ep_rew_mean"][-1] == (20_480, 204.8)
    assert series["eval/mean_reward"][0] == (2048, 2.0)
    assert series["episode/return"][-1] == (20_480, 9.0)


def test_evaluations_that_claim_more_than_memory_are_left_out(tmp_path: Path) -> None:
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }".ljust(117) + "\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    with zipfile.ZipFile(tmp_path / "evaluations.npz", "w") as archive:
        for name in ("timesteps", "results", "ep_lengths"):
            archive.writestr(f"{name}.npy", array)
    assert find_adapter("sb3").read(RunFolder(tmp_path)).agent_steps == 0


def test_a_copy_without_its_times_whose_last_models_were_deleted_proves_nothing(tmp_path: Path) -> None:
    run = sb3_run(tmp_path / "run")
    for steps in range(5000, 20_001, 5000):
        sb3_model(run.root / "models" / f"rl_model_{steps}_steps.zip", steps, written=BEGAN + HOUR * steps / 20_480)
    sb3_model(run.root / "models" / "final.zip", 20_480)
    assert proof_of(find_adapter("sb3").prove_training(run, 20_480)).checkpoint == "models/final.zip"
    copy = tmp_path / "copy"
    shutil.copytree(run.root, copy, copy_function=shutil.copyfile)
    for path in (copy / "models").iterdir():
        if path.name != "rl_model_5000_steps.zip":
            path.unlink()
    reason = find_adapter("sb3").prove_training(RunFolder(copy), 20_480)
    assert reason == "the last checkpoint, rl_model_5000_steps.zip, is of step 5,000 of 20,480"
    assert find_adapter("sb3").kept_agent_steps(RunFolder(copy)) == 5000


def test_a_run_of_stable_baselines3_without_a_model_was_trained_and_not_saved(tmp_path: Path) -> None:
    reason = find_adapter("sb3").prove_training(sb3_run(tmp_path), 20_000)
    assert isinstance(reason, NotSaved) and reason == "no checkpoint file"


RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize(("name", "adapter"), [("sb3", "sb3"), ("tensorboard", "tensorboard")])
def test_a_recorded_folder_of_stable_baselines3_is_proven_in_a_copy_without_its_times(
    name: str, adapter: str, tmp_path: Path
) -> None:
    shutil.copytree(RECORDED / name, tmp_path / "run", copy_function=shutil.copyfile)
    run = RunFolder(tmp_path / "run")
    chosen = find_adapter("auto")
    assert isinstance(chosen, AutoAdapter) and chosen.chosen(run).name == adapter
    proof = proof_of(chosen.prove_training(run, 1000))
    assert (proof.agent_steps, proof.checkpoint) == (1024, "final_model.zip")
    assert proof.gradient_steps > 0
    assert chosen.results(run)["rollout/ep_rew_mean"][-1][0] == 1024
    assert "1,024 of 2,000" in str(chosen.prove_training(run, 2000))


def test_every_log_of_the_recorded_folder_agrees(tmp_path: Path) -> None:
    found = {}
    for kept in ("progress.csv", "progress.json", "monitor.monitor.csv", "evaluations.npz"):
        root = tmp_path / kept
        root.mkdir()
        shutil.copy(RECORDED / "sb3" / kept, root)
        found[kept] = find_adapter("sb3").read(RunFolder(root)).agent_steps
    assert found["progress.csv"] == found["progress.json"] == 1024
    assert 950 < found["monitor.monitor.csv"] <= 1024
    assert found["evaluations.npz"] == 1000


def test_the_recorded_model_of_step_500_is_no_proof_of_the_end(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "sb3", tmp_path / "run")
    (tmp_path / "run" / "final_model.zip").unlink()
    reason = find_adapter("sb3").prove_training(RunFolder(tmp_path / "run"), 1000)
    assert reason == "the last checkpoint, rl_model_500_steps.zip, is of step 500 of 1,000"
