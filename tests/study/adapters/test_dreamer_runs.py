"""Logs and checkpoints of SafeDreamer and DreamerV3: progress, proof and hash."""

import os
import pickle
from pathlib import Path

import pytest
from tests.study.adapters.foreign_folders import (
    BEGAN,
    HOUR,
    dreamer_log,
    dreamer_v3_checkpoint,
    proof_of,
    put,
    rows_text,
)

from dreamproof.runs.layout import AttemptFolder, RunFolder
from dreamproof.runs.reader import NotSaved
from dreamproof.study.adapters import find_adapter


@pytest.mark.parametrize("inside", ["", "20260222-023040_v2_full_safetygymcoor_SafetyPointGoal1-v0_3"])
def test_a_dreamer_log_is_found_in_the_run_folder_or_in_a_folder_that_the_trainer_named(
    inside: str, tmp_path: Path
) -> None:
    root = dreamer_log(tmp_path / inside)
    put(root / "checkpoint.ckpt", b"weights", BEGAN + HOUR)
    run, adapter = RunFolder(tmp_path), find_adapter("embodied")
    assert adapter.read(run).agent_steps == 4096
    assert adapter.matches(run)
    assert proof_of(adapter.prove_training(run, 4096)).checkpoint == f"{inside}/checkpoint.ckpt".lstrip("/")
    assert adapter.results(run)["train/model_loss"][-1] == (4096, 1.0)


def order_attempt(folder: Path, ordered: float) -> Path:
    """The output file of an attempt that was ordered then."""
    attempt = AttemptFolder(folder)
    put(attempt.order, "{}", ordered)
    return put(attempt.output, "", ordered)


def test_progress_is_that_of_the_folder_which_this_attempt_created(tmp_path: Path) -> None:
    run, adapter = RunFolder(tmp_path / "run"), find_adapter("embodied")
    dreamer_log(run.root / "20260222-010000_arm_0", steps=4096)
    for path in (run.root / "20260222-010000_arm_0").iterdir():
        os.utime(path, (BEGAN + HOUR, BEGAN + HOUR))
    output = order_attempt(tmp_path / "a000002", BEGAN + 2 * HOUR)
    assert adapter.read(run, output).agent_steps == 0
    second = dreamer_log(run.root / "20260222-030000_arm_0", steps=1024, began=BEGAN + 2 * HOUR + 5, seconds=30)
    assert adapter.read(run, output).agent_steps == 1024
    put(second / "checkpoint.ckpt", b"early", BEGAN + 2 * HOUR + 6)
    assert "1,024 of 4,096" in str(adapter.prove_training(run, 4096, output))
    put(run.root / "20260222-010000_arm_0" / "checkpoint.ckpt", b"weights", BEGAN + HOUR)
    assert proof_of(adapter.prove_training(run, 4096, output)).checkpoint == "20260222-010000_arm_0/checkpoint.ckpt"


def test_the_hash_of_a_dreamer_v3_checkpoint_is_that_of_its_folder_not_of_its_counter(tmp_path: Path) -> None:
    hashes = []
    for seed in (0, 1):
        run = RunFolder(dreamer_log(tmp_path / str(seed)))
        dreamer_v3_checkpoint(run.root / "ckpt" / "20260222T033000F000000", 4096, b"w%d" % seed, BEGAN + HOUR)
        proof = proof_of(find_adapter("embodied").prove_training(run, 4096))
        assert proof.checkpoint == "ckpt/20260222T033000F000000"
        assert find_adapter("embodied").proof_fault(run, proof) is None
        hashes.append(proof.parameter_hash)
        put(run.root / proof.checkpoint / "agent.pkl", b"other", BEGAN + HOUR)
        assert "hash differs" in str(find_adapter("embodied").proof_fault(run, proof))
    assert len(set(hashes)) == 2


def test_the_step_in_a_checkpoint_counts_more_than_its_time(tmp_path: Path) -> None:
    run = RunFolder(dreamer_log(tmp_path))
    put(run.root / "checkpoint.ckpt", pickle.dumps({"step": 512, "agent": {"w": b"x"}}), BEGAN + HOUR)
    adapter = find_adapter("embodied")
    reason = adapter.prove_training(run, 4096)
    assert isinstance(reason, NotSaved)
    assert reason == "the last checkpoint, checkpoint.ckpt, is of step 512 of 4,096"
    assert adapter.kept_agent_steps(run) == 512


def test_half_a_short_run_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    put(tmp_path / "config.yaml", "task: dummy_disc\nenv: {dummy: {repeat: 1}}\n", BEGAN)
    put(tmp_path / "metrics.jsonl", rows_text([{"step": 0, "loss": 1.0}, {"step": 500, "loss": 1.0}]), BEGAN + HOUR)
    put(tmp_path / "checkpoint.ckpt", b"weights", BEGAN + HOUR)
    run = RunFolder(tmp_path)
    assert find_adapter("embodied").prove_training(run, 1000) == "replay and metrics show 500 of 1,000 agent steps"
    put(tmp_path / "checkpoint.ckpt", pickle.dumps({"step": 1000, "agent": b"w"}), BEGAN)
    assert proof_of(find_adapter("embodied").prove_training(run, 1000)).agent_steps == 1000


def test_seconds_between_checkpoints_are_read_from_the_config(tmp_path: Path) -> None:
    run = RunFolder(dreamer_log(tmp_path / "20260222-023040_a_b_0").parent)
    assert find_adapter("embodied").save_seconds(run) == 900
