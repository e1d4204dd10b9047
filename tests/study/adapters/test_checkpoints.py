"""Checkpoints of any trainer: which files are some, of which step, how late they were written, and their hash."""

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.study.adapters.foreign_folders import BEGAN, HOUR, dreamer_v3_checkpoint, proof_of, put, sb3_model, sb3_run

from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import NotSaved, TrainProof
from dreamproof.study.adapters import find_adapter
from dreamproof.study.adapters.checkpoints import (
    Checkpoint,
    RunSpan,
    checkpoint_hash,
    find_checkpoints,
    named_steps,
    pickled_step,
    written_early,
)


def test_the_hash_of_a_folder_is_what_sha256sum_gives(tmp_path: Path) -> None:
    dreamer_v3_checkpoint(tmp_path / "ckpt", 1, b"w", BEGAN)
    command = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    printed = os.popen(f"cd {tmp_path}/ckpt && {command}").read().split()[0]
    assert checkpoint_hash(tmp_path / "ckpt") == printed


@pytest.mark.parametrize(
    ("seconds", "saved", "is_final"),
    [
        (0.8, 0.6, True),
        (0.8, 0.2, False),
        (6.0, 5.2, True),
        (6.0, 4.8, False),
        (300.0, 290.0, True),
        (300.0, 200.0, False),
    ],
)
def test_a_run_of_seconds_may_save_just_before_its_end(seconds: float, saved: float, is_final: bool) -> None:
    checkpoint = Checkpoint(Path("model.pkl"), BEGAN + saved)
    assert (written_early(checkpoint, RunSpan(BEGAN, BEGAN + seconds)) is None) == is_final


@pytest.mark.parametrize(
    ("value", "step"),
    [
        (5000, 5000),
        ({"step": 7, "agent": 1}, 7),
        ([5], None),
        ((12, "epoch and weights"), None),
        ({"agent": 1, "step": 7}, None),
        ("step", None),
    ],
)
def test_the_step_of_a_pickle_is_read_without_loading_it(value: Any, step: int | None, tmp_path: Path) -> None:
    for protocol in (2, 4, 5):
        assert pickled_step(put(tmp_path / "x.pkl", pickle.dumps(value, protocol), BEGAN)) == step


@pytest.mark.parametrize("head", [b"K\x60.", b"J\x26\x4f\xf5\x21", b"I96\n.", b"\x82\xa4step\x07"])
def test_bytes_that_are_no_pickle_name_no_step(head: bytes, tmp_path: Path) -> None:
    for name in ("model.pt", "params.msgpack", "model.safetensors"):
        assert pickled_step(put(tmp_path / name, head + b"weights", BEGAN)) is None


@pytest.mark.parametrize("name", ["auto", "sb3", "csv", "jsonl", "tensorboard", "wandb", "bracket_lines"])
@pytest.mark.parametrize("logged", [True, False])
def test_a_model_of_a_run_that_died_before_its_first_log_is_kept(name: str, logged: bool, tmp_path: Path) -> None:
    sb3_model(tmp_path / "checkpoints" / "rl_model_2000_steps.zip", 2000)
    if logged:
        put(tmp_path / "progress.csv", "", BEGAN)
    assert find_adapter(name).kept_agent_steps(RunFolder(tmp_path)) == 2000


def test_equal_file_times_prove_nothing_for_a_model_without_a_step(tmp_path: Path) -> None:
    run = sb3_run(tmp_path / "run")
    put(run.root / "policy.pt", b"weights", BEGAN + HOUR)
    assert isinstance(find_adapter("csv").prove_training(run, 20_480), TrainProof)
    copy = tmp_path / "copy"
    shutil.copytree(run.root, copy, copy_function=shutil.copyfile)
    assert "lost in copying" in str(find_adapter("csv").prove_training(RunFolder(copy), 20_480))
    shutil.copytree(run.root, tmp_path / "kept")
    assert isinstance(find_adapter("csv").prove_training(RunFolder(tmp_path / "kept"), 20_480), TrainProof)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("rl_model_5000_steps.zip", 5000),
        ("step=500.ckpt", 500),
        ("model_20k_steps.pt", 20_000),
        ("global_step1000", 1000),
        ("agent-env_steps_12.pth", 12),
        ("epoch=49-step=50000.ckpt", 50_000),
        ("epoch_49_step_50000.pt", 50_000),
        ("model_5000_steps_2.zip", 5000),
        ("model_100.pt", None),
        ("stepwise_3.pt", None),
    ],
)
def test_the_step_in_a_name_is_taken_only_with_the_word(name: str, steps: int | None) -> None:
    assert named_steps(name) == steps


def test_a_number_without_the_word_can_confirm_a_step_and_not_deny_it(tmp_path: Path) -> None:
    run = sb3_run(tmp_path)
    put(run.root / "model_100.pt", b"iteration 100", BEGAN + HOUR)
    assert isinstance(find_adapter("csv").prove_training(run, 20_480), TrainProof)
    put(run.root / "model_100.pt", b"iteration 100", BEGAN)
    assert isinstance(find_adapter("csv").prove_training(run, 20_480), NotSaved)
    put(run.root / "model_20480.pt", b"w", BEGAN)
    assert proof_of(find_adapter("csv").prove_training(run, 20_480)).checkpoint == "model_20480.pt"


def test_buffers_and_normalisers_are_no_checkpoints(tmp_path: Path) -> None:
    for name in ("vecnormalize.pkl", "replay_buffer.pkl", "evaluations.npz", "videos/a.zip"):
        put(tmp_path / name, b"x", BEGAN)
    assert find_checkpoints(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    ["config.pkl", "args.pkl", "dataset.npz", "optimizer.pt", "optimizer_state.pt",
     "rl_model_replay_buffer_9_steps.pkl", "rl_model_vecnormalize_9_steps.pkl",
     "9.orbax-checkpoint-tmp-1/_METADATA", "model.pt.tmp/x.pt"],
)  # fmt: skip
def test_what_holds_no_weights_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    put(tmp_path / name, b"x", BEGAN)
    assert find_checkpoints(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "name", "number"),
    [
        (["checkpoints/100/default/_METADATA", "checkpoints/100/default/d/ab", "checkpoints/100/_CHECKPOINT_METADATA"],
         "checkpoints/100", 100),
        (["final/_CHECKPOINT_METADATA", "final/_METADATA", "final/d/ab"], "final", None),
        (["checkpoint_000100/policies/p/policy_state.pkl", "checkpoint_000100/algorithm_state.pkl"],
         "checkpoint_000100", 100),
        (["ckpt/100/weights.bin", "ckpt/100/meta.json"], "ckpt/100", 100),
        (["model.ckpt-100.data-00000-of-00001", "model.ckpt-100.index"], "model.ckpt-100.data-00000-of-00001", 100),
        (["checkpoint_100"], "checkpoint_100", 100),
        (["checkpoint.pth.tar"], "checkpoint.pth.tar", None),
        (["model_and_optimizer.pt"], "model_and_optimizer.pt", None),
    ],
)  # fmt: skip
def test_checkpoints_of_other_libraries_are_found_whole(
    files: list[str], name: str, number: int | None, tmp_path: Path
) -> None:
    for file in files:
        put(tmp_path / file, b"x", BEGAN)
    [found] = find_checkpoints(tmp_path)
    assert (found.path.relative_to(tmp_path).as_posix(), found.number) == (name, number)


def test_a_late_critic_does_not_prove_an_early_actor(tmp_path: Path) -> None:
    run = sb3_run(tmp_path)
    put(run.root / "actor.pt", b"w", BEGAN + 60)
    put(run.root / "critic.pt", b"w", BEGAN + HOUR)
    assert "actor.pt was written at 2% of the run" in str(find_adapter("csv").prove_training(run, 20_480))
    put(run.root / "actor.pt", b"w", BEGAN + HOUR - 1)
    assert proof_of(find_adapter("csv").prove_training(run, 20_480)).checkpoint == "actor.pt"


def test_the_number_in_a_name_is_what_was_kept_where_its_time_fits(tmp_path: Path) -> None:
    run = sb3_run(tmp_path)
    put(run.root / "model_10000.pt", b"w", BEGAN + 0.5 * HOUR)
    assert find_adapter("csv").kept_agent_steps(run) == 10_000
