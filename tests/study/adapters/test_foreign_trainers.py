"""Folders of unchanged trainers: SafeDreamer, DreamerV3, stable-baselines3, TensorBoard, W&B, printed lines."""

import json
import os
import pickle
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import AttemptFolder, Cell, RunFolder
from dreamproof.runs.reader import NotSaved, TrainProof
from dreamproof.settings.strict import validate
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.adapters import ADAPTERS, find_adapter, guess_adapter, study_adapter
from dreamproof.study.adapters import tensorboard as tensorboard_module
from dreamproof.study.adapters.api import TrainerFormat
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.adapters.checkpoints import (
    Checkpoint,
    RunSpan,
    checkpoint_hash,
    find_checkpoints,
    named_steps,
    pickled_step,
    written_early,
)
from dreamproof.study.plan.commands import Target, check_commands, fill, train_commands

BEGAN = 1_771_727_440.0
HOUR = 3600.0


def put(path: Path, content: bytes | str, written: float) -> Path:
    """Writes a file as if at `written` Unix seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (written, written))
    return path


def rows_text(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def proof_of(found: TrainProof | str) -> TrainProof:
    assert isinstance(found, TrainProof), found
    return found


# SafeDreamer and DreamerV3


def dreamer_log(root: Path, steps: int = 4096, seconds: float = HOUR, began: float = BEGAN) -> Path:
    """A log folder as embodied writes it, without a checkpoint; replay chunks are named by the clock."""
    put(root / "config.yaml", "task: dummy_disc\nenv: {dummy: {repeat: 1}}\nrun: {save_every: 900}\n", began)
    for index in range(steps // 1024):
        written = began + seconds * (index + 1) * 1024 / steps
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(written))
        put(root / "replay" / f"{stamp}F000000-a{index}-b{index}-1024.npz", b"x", written)
    rows = [{"step": step, "train/model_loss": 1.0} for step in (1, steps // 2, steps)]
    put(root / "metrics.jsonl", rows_text(rows), began + seconds)
    return root


def dreamer_v3_checkpoint(folder: Path, step: int, weights: bytes, written: float) -> Path:
    put(folder / "step.pkl", pickle.dumps(step), written)
    put(folder / "agent.pkl", weights, written)
    put(folder / "replay.pkl", b"replay", written)
    put(folder / "done", b"", written)
    return folder


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


def study_of(**trainer: Any) -> Study:
    value = {
        "name": "foreign",
        "question": "?",
        "metric": {"smallest_difference": 1},
        "task": "CartPole-v1",
        "trainer": {"command": ["python", "train.py"], **trainer},
        "settings": {"risk": {"u": True}, "layers": [64, 64], "note": None},
        "arms": {"a": {}},
        "seeds": 1,
        "agent_steps": 1000,
    }
    return validate(Study, value, "study")


@pytest.mark.parametrize("given", ["{run_dir}", "{run_dir}/", "--logdir={run_dir}"])
@pytest.mark.parametrize("adapter", ["embodied", "auto"])
def test_a_trainer_that_appends_its_own_name_writes_into_the_run_folder(given: str, adapter: str) -> None:
    study = study_of(command=["train.py", given], adapter=adapter)
    [[_, logdir]] = train_commands(study, [Target(Cell("a", 0), RunFolder(Path("/runs/a-seed0")), 10)])
    assert logdir.removeprefix("--logdir=") == "/runs/a-seed0/"


def test_other_trainers_get_the_folder_as_it_is() -> None:
    study = study_of(command=["train.py", "{run_dir}"], adapter="jsonl")
    assert train_commands(study, [Target(Cell("a", 0), RunFolder(Path("/r")), 10)]) == [["train.py", "/r"]]


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


def test_the_hash_of_a_folder_is_what_sha256sum_gives(tmp_path: Path) -> None:
    dreamer_v3_checkpoint(tmp_path / "ckpt", 1, b"w", BEGAN)
    command = "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    printed = os.popen(f"cd {tmp_path}/ckpt && {command}").read().split()[0]
    assert checkpoint_hash(tmp_path / "ckpt") == printed


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


def test_seconds_between_checkpoints_are_read_from_the_config(tmp_path: Path) -> None:
    run = RunFolder(dreamer_log(tmp_path / "20260222-023040_a_b_0").parent)
    assert find_adapter("embodied").save_seconds(run) == 900


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


# stable-baselines3


def sb3_model(path: Path, steps: int, updates: int = 40, written: float = BEGAN + HOUR) -> Path:
    """An archive as `model.save` writes it: JSON in `data`, weights as pickles that nobody opens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"num_timesteps": steps, "_n_updates": updates, "gamma": 0.99}))
        archive.writestr("policy.pth", b"weights")
    os.utime(path, (written, written))
    return path


PROGRESS_HEADER = (
    "time/fps,time/time_elapsed,time/iterations,time/total_timesteps,rollout/ep_rew_mean,train/loss,train/n_updates"
)


def sb3_run(root: Path, form: str = "csv", steps: int = 20_480) -> RunFolder:
    """PPO of `steps` time steps in one hour."""
    counts = range(2048, steps + 1, 2048)
    keys = PROGRESS_HEADER.split(",")
    table = [
        (500, int(HOUR * done / steps), done // 2048, done, done / 100, "" if done == 2048 else 0.5, done // 200)
        for done in counts
    ]
    if form == "csv":
        lines = [PROGRESS_HEADER, *(",".join(map(str, line)) for line in table)]
        put(root / "progress.csv", "\n".join(lines) + "\n", BEGAN + HOUR)
    if form == "json":
        rows = [{key: value for key, value in zip(keys, line, strict=True) if value != ""} for line in table]
        put(root / "progress.json", rows_text(rows), BEGAN + HOUR)
    if form == "monitor":
        episodes = "\n".join(f"{index}.0,{2048},{HOUR * done / steps}" for index, done in enumerate(counts))
        text = f'#{{"t_start": {BEGAN}, "env_id": "CartPole-v1"}}\nr,l,t\n{episodes}\n'
        put(root / "monitor.csv", text, BEGAN + HOUR)
    if form == "evaluations":
        root.mkdir(parents=True, exist_ok=True)
        count = len(counts)
        np.savez(
            root / "evaluations.npz",
            timesteps=np.array(counts),
            results=np.arange(5.0 * count).reshape(count, 5),
            ep_lengths=np.full((count, 5), 200),
        )
        os.utime(root / "evaluations.npz", (BEGAN + HOUR, BEGAN + HOUR))
    put(root / "args.txt", "ppo", BEGAN)
    return RunFolder(root)


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


@pytest.mark.parametrize("name", ["auto", "sb3", "csv", "jsonl", "tensorboard", "wandb", "bracket_lines"])
@pytest.mark.parametrize("logged", [True, False])
def test_a_model_of_a_run_that_died_before_its_first_log_is_kept(name: str, logged: bool, tmp_path: Path) -> None:
    sb3_model(tmp_path / "checkpoints" / "rl_model_2000_steps.zip", 2000)
    if logged:
        put(tmp_path / "progress.csv", "", BEGAN)
    assert find_adapter(name).kept_agent_steps(RunFolder(tmp_path)) == 2000


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


def test_equal_file_times_prove_nothing_for_a_model_without_a_step(tmp_path: Path) -> None:
    run = sb3_run(tmp_path / "run")
    put(run.root / "policy.pt", b"weights", BEGAN + HOUR)
    assert isinstance(find_adapter("csv").prove_training(run, 20_480), TrainProof)
    copy = tmp_path / "copy"
    shutil.copytree(run.root, copy, copy_function=shutil.copyfile)
    assert "lost in copying" in str(find_adapter("csv").prove_training(RunFolder(copy), 20_480))
    shutil.copytree(run.root, tmp_path / "kept")
    assert isinstance(find_adapter("csv").prove_training(RunFolder(tmp_path / "kept"), 20_480), TrainProof)


def test_a_run_of_stable_baselines3_without_a_model_was_trained_and_not_saved(tmp_path: Path) -> None:
    reason = find_adapter("sb3").prove_training(sb3_run(tmp_path), 20_000)
    assert isinstance(reason, NotSaved) and reason == "no checkpoint file"


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


@pytest.mark.parametrize(
    ("file", "header", "line"),
    [
        ("log.csv", "\ufeffepoch;total steps;loss\r\n", "{n};{step};0,{n}\r\n"),
        ("progress.txt", "Epoch\tTotalEnvInteracts\tLossPi\n", "{n}\t{step}\t0.{n}\n"),
        ("result.csv", "iteration,timesteps_total,loss\n", "{n},{step},0.{n}\n"),
        ("log.tsv", "epoch\tglobal step\tloss\n", "{n}\t{step}\t0.{n}\n"),
    ],
)
def test_tables_with_other_delimiters_are_read(file: str, header: str, line: str, tmp_path: Path) -> None:
    text = header + "".join(line.format(n=n, step=1000 * n) for n in range(1, 2001))
    put(tmp_path / file, text, BEGAN + HOUR)
    put(tmp_path / "args.txt", "ppo", BEGAN)
    put(tmp_path / "model.pt", b"weights", BEGAN + HOUR)
    run, adapter = RunFolder(tmp_path), find_adapter("auto")
    assert adapter.read(run).agent_steps == 2_000_000
    assert 0.2 in (value for _, value in list(adapter.results(run).values())[-1])
    assert proof_of(adapter.prove_training(run, 2_000_000)).agent_steps == 2_000_000


def test_rows_in_mappings_are_read(tmp_path: Path) -> None:
    put(tmp_path / "log.jsonl", rows_text([{"info": {"count": 5, "loss": 1.0}, "eval": {"return": 2}}]), BEGAN)
    for key in ("info/count", "info.count"):
        adapter = find_adapter("jsonl", TrainerFormat(step_key=key))
        assert adapter.read(RunFolder(tmp_path)).agent_steps == 5
        assert adapter.latest(RunFolder(tmp_path))["eval/return"] == 2


# TensorBoard


def write_events(folder: Path, steps: list[int], began: float = BEGAN, tag: str = "train/loss") -> Path:
    """One event file with a scalar per step, one a minute, as a SummaryWriter of PyTorch writes it."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    for index, step in enumerate(steps):
        value = Summary.Value(tag=tag, simple_value=1.0 / (1 + step))
        summary = Summary(value=[value])
        writer.add_event(Event(wall_time=began + 60 * index, step=step, summary=summary))
    writer.close()
    [path] = [path for path in folder.iterdir() if ".tfevents." in path.name and not path.name.startswith("moved")]
    name = path.with_name(f"events.out.tfevents.{int(began)}.host.1.0")
    path.rename(name)
    os.utime(name, (began + 60 * (len(steps) - 1),) * 2)
    return name


def test_event_files_show_progress_and_prove_with_a_checkpoint(tmp_path: Path) -> None:
    run, adapter = RunFolder(tmp_path), find_adapter("tensorboard")
    write_events(tmp_path / "tb" / "PPO_1", list(range(0, 6001, 1000)))
    assert adapter.matches(run)
    assert adapter.read(run).agent_steps == 6000
    assert isinstance(adapter.prove_training(run, 6000), NotSaved)
    put(tmp_path / "policy.pt", b"weights", BEGAN + 360)
    proof = proof_of(adapter.prove_training(run, 6000))
    assert (proof.agent_steps, proof.gradient_steps, proof.checkpoint) == (6000, 7, "policy.pt")
    assert adapter.results(run)["train/loss"][-1][0] == 6000
    assert adapter.prove_training(run, 7000) == "its event files end at 6,000 of 7,000 agent steps"


def test_a_checkpoint_from_before_the_last_events_is_not_the_final_one(tmp_path: Path) -> None:
    run, adapter = RunFolder(tmp_path), find_adapter("tensorboard")
    write_events(tmp_path, list(range(0, 6001, 1000)))
    put(tmp_path / "policy.pt", b"weights", BEGAN + 60)
    assert "was written at 17% of the run" in str(adapter.prove_training(run, 6000))
    assert adapter.kept_agent_steps(run) == 1000


def test_a_restarted_run_counts_from_its_own_event_file(tmp_path: Path) -> None:
    write_events(tmp_path / "a", [0, 4000])
    write_events(tmp_path / "b", [0, 500], began=BEGAN + HOUR)
    assert find_adapter("tensorboard").read(RunFolder(tmp_path)).agent_steps == 500


def test_an_event_file_shows_where_its_attempt_began(tmp_path: Path) -> None:
    attempt, adapter = AttemptFolder(tmp_path / "attempts" / "a000002"), find_adapter("tensorboard")
    attempt.root.mkdir(parents=True)
    put(attempt.order, b"{}", BEGAN - 1)
    write_events(tmp_path / "run" / "a", [2048, 4096], began=BEGAN - HOUR)
    assert adapter.began_agent_steps(RunFolder(tmp_path / "run"), attempt.output) is None, "an earlier attempt's"
    write_events(tmp_path / "run" / "b", [2048, 4096])
    assert adapter.began_agent_steps(RunFolder(tmp_path / "run"), attempt.output) == 0
    write_events(tmp_path / "run" / "c", [6144, 8192], began=BEGAN + HOUR)
    assert adapter.began_agent_steps(RunFolder(tmp_path / "run"), attempt.output) == 4096


def test_one_tag_can_be_declared_to_count_the_steps(tmp_path: Path) -> None:
    write_events(tmp_path / "a", [0, 4000])
    write_events(tmp_path / "b", [90_000], began=BEGAN + HOUR, tag="video/frames")
    adapter = find_adapter("tensorboard", TrainerFormat(step_key="video/frames", steps_per_count=0.25))
    assert adapter.read(RunFolder(tmp_path)).agent_steps == 22_500


def test_a_broken_event_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_events(tmp_path, [0, 1000, 2000])
    content = path.read_bytes()
    put(path, content[:-20], BEGAN)
    assert find_adapter("tensorboard").read(RunFolder(tmp_path)).agent_steps == 1000


def test_without_tensorboard_the_install_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_events(tmp_path, [0, 1000])
    monkeypatch.setattr(tensorboard_module, "is_installed", lambda: False)
    with pytest.raises(BadInput, match="not installed") as error:
        find_adapter("tensorboard").read(RunFolder(tmp_path))
    assert error.value.hint == "pip install 'dreamproof[tensorboard]'"
    with pytest.raises(BadInput, match="not installed"):
        check_commands(study_of(adapter="tensorboard"), tmp_path)


# W&B


def wandb_run(root: Path, summary: dict[str, Any] | None, printed: str = "") -> RunFolder:
    folder = root / "wandb" / "offline-run-20260222_023040-abcd1234"
    put(folder / "run-abcd1234.wandb", b"records", BEGAN + HOUR)
    put(folder / "files" / "output.log", printed, BEGAN + HOUR)
    if summary is not None:
        put(folder / "files" / "wandb-summary.json", json.dumps(summary), BEGAN + HOUR)
    put(root / "model.pt", b"weights", BEGAN + HOUR)
    put(root / "args.json", b"{}", BEGAN)
    return RunFolder(root)


def test_an_offline_run_of_wandb_is_proven_by_its_summary(tmp_path: Path) -> None:
    summary = {"_step": 10, "_runtime": HOUR, "_timestamp": BEGAN + HOUR, "global_step": 5000, "losses/loss": 0.5}
    run, adapter = wandb_run(tmp_path, summary), find_adapter("wandb")
    assert adapter.read(run).agent_steps == 5000
    proof = proof_of(adapter.prove_training(run, 5000))
    assert (proof.agent_steps, proof.gradient_steps, proof.checkpoint) == (5000, 1, "model.pt")
    assert adapter.results(run) == {"losses/loss": [(5000, 0.5)]}


def test_calls_of_log_are_steps_only_where_that_is_declared(tmp_path: Path) -> None:
    run = wandb_run(tmp_path, {"_step": 5000, "loss": 0.5})
    assert "declare trainer.step_key, e.g. _step" in str(find_adapter("wandb").prove_training(run, 5000))
    declared = find_adapter("wandb", TrainerFormat(step_key="_step"))
    assert isinstance(declared.prove_training(run, 5000), TrainProof)


def test_a_living_run_of_wandb_shows_its_printed_lines(tmp_path: Path) -> None:
    run, adapter = wandb_run(tmp_path, None, "[300/5000] R:1.0\n"), find_adapter("wandb")
    assert adapter.read(run).agent_steps == 300
    assert "did not call wandb.finish" in str(adapter.prove_training(run, 5000))


# Rows with a declared key, printed lines with a declared expression


def test_a_declared_key_counts_whatever_it_is_called(tmp_path: Path) -> None:
    put(tmp_path / "log.csv", "Interactions,policy_loss\n100,0.5\n200,0.4\n", BEGAN + HOUR)
    put(tmp_path / "w.pt", b"w", BEGAN + HOUR)
    put(tmp_path / "args", b"", BEGAN)
    run = RunFolder(tmp_path)
    assert find_adapter("csv").read(run).agent_steps == 0
    assert "declare trainer.step_key" in str(find_adapter("csv").prove_training(run, 200))
    adapter = find_adapter("csv", TrainerFormat(step_key="Interactions", steps_per_count=10))
    assert adapter.read(run).agent_steps == 2000
    assert proof_of(adapter.prove_training(run, 2000)).agent_steps == 2000


def test_a_long_csv_is_read_from_its_end_with_the_header_of_its_start(tmp_path: Path) -> None:
    lines = "".join(f"{step},0.5\n" for step in range(20_000))
    put(tmp_path / "log.csv", f"step,loss\n{lines}199", BEGAN)
    assert find_adapter("csv").read(RunFolder(tmp_path)).agent_steps == 19_999


def test_a_usual_key_is_found_behind_a_group(tmp_path: Path) -> None:
    put(tmp_path / "x.jsonl", '{"charts/Global_Step": 40, "loss": 1.0}\n', BEGAN)
    assert find_adapter("jsonl").read(RunFolder(tmp_path)).agent_steps == 40


PATTERN = r"update (?P<step>[0-9,]+)(?: of (?P<total>\d+))? \| return (?P<score>\S+)"


def test_printed_lines_are_read_by_the_expression_of_the_study(tmp_path: Path) -> None:
    output = put(tmp_path / "train.log", "start\nupdate 900 | return 3.5\nupdate 1,000 | return 4.5\n", BEGAN + HOUR)
    put(tmp_path / "w.pt", b"w", BEGAN + HOUR)
    put(tmp_path / "args", b"", BEGAN)
    study = study_of(adapter="line_pattern", line_pattern=PATTERN, steps_per_count=4)
    adapter, run = study_adapter(study), RunFolder(tmp_path)
    assert adapter.read(run, output).agent_steps == 4000
    assert adapter.results(run)["score"] == [(3600, 3.5), (4000, 4.5)]
    assert proof_of(adapter.prove_training(run, 4000)).agent_steps == 4000
    assert "which is 4,000 of 5,000 agent steps" in str(adapter.prove_training(run, 5000))


@pytest.mark.parametrize(
    ("trainer", "text"),
    [
        ({"line_pattern": "step ([0-9]+)"}, "no group named step"),
        ({"line_pattern": "(?P<step>"}, "is not a regular expression"),
        ({"adapter": "line_pattern"}, "needs 'line_pattern'"),
        ({"adapter": "tensorbord"}, "adapter"),
    ],
)
def test_a_format_that_cannot_work_is_refused_when_the_study_is_read(trainer: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        study_of(**trainer)


def test_the_length_of_a_run_is_that_of_its_lines(tmp_path: Path) -> None:
    put(tmp_path / "train.log", "[14999/15000] R:3.0\n[15000/15000] R:3.0\n", BEGAN + HOUR)
    put(tmp_path / "w.pt", b"w", BEGAN + HOUR)
    put(tmp_path / "args", b"", BEGAN)
    run = RunFolder(tmp_path)
    reason = find_adapter("bracket_lines").prove_training(run, 20_000)
    assert str(reason).startswith("its output ends at [15000/15000], which is 15,000 of 20,000 agent steps")
    assert proof_of(find_adapter("bracket_lines").prove_training(run, 14_000)).agent_steps == 15_000


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ("loss nan", "its last line holds nan: 'step 10 loss nan'"),
        ("(loss=-inf)", "its last line holds -inf: 'step 10 (loss=-inf)'"),
        ("info: nano/inf/x inf_norm 2", None),
    ],
)
def test_a_value_that_the_expression_does_not_name_must_be_finite_too(
    values: str, fault: str | None, tmp_path: Path
) -> None:
    put(tmp_path / "train.log", f"step 9 loss nan\nstep 10 {values}\n", BEGAN + HOUR)
    put(tmp_path / "w.pt", b"w", BEGAN + HOUR)
    put(tmp_path / "args", b"", BEGAN)
    found = find_adapter("line_pattern", TrainerFormat(line_pattern="step (?P<step>[0-9]+)")).prove_training(
        RunFolder(tmp_path), 10
    )
    assert found == fault if fault is not None else isinstance(found, TrainProof)


def test_a_value_before_the_brackets_must_be_finite_too(tmp_path: Path) -> None:
    put(tmp_path / "train.log", "loss nan [9/10]\nloss nan [10/10]\n", BEGAN + HOUR)
    found = find_adapter("bracket_lines").prove_training(RunFolder(tmp_path), 10)
    assert found == "its last line holds nan: 'loss nan [10/10]'"


def test_it_is_said_which_values_an_expression_lets_one_check() -> None:
    named = find_adapter("line_pattern", TrainerFormat(line_pattern=PATTERN)).proves
    assert named.endswith("; finite values: score")
    unnamed = find_adapter("line_pattern", TrainerFormat(line_pattern="step (?P<step>[0-9]+)")).proves
    assert unnamed.endswith("; finite values: not checked, the pattern names none")


# auto


def make_folder(kind: str, root: Path) -> None:
    if kind == "embodied":
        dreamer_log(root / "20260222-023040_a_b_0")
    elif kind == "sb3":
        sb3_run(root, "monitor")
    elif kind == "tensorboard":
        write_events(root / "tb", [0, 100])
    elif kind == "wandb":
        wandb_run(root, None)
    elif kind == "jsonl":
        put(root / "log.jsonl", '{"step": 5, "loss": 1}\n', BEGAN)
    elif kind == "csv":
        put(root / "log.csv", "step,loss\n5,1\n", BEGAN)
    elif kind == "line_pattern":
        put(root / "train.log", "update 5 | return 1\n", BEGAN)
    elif kind == "bracket_lines":
        put(root / "train.log", "[5/10] R:1\n", BEGAN)
    else:
        put(root / "heartbeat.json", '{"agent_steps": 5}', BEGAN)


@pytest.mark.parametrize("kind", [name for name in ADAPTERS if name != "auto"])
def test_auto_chooses_the_adapter_whose_files_are_there(kind: str, tmp_path: Path) -> None:
    adapter = find_adapter("auto", TrainerFormat(line_pattern=PATTERN))
    assert isinstance(adapter, AutoAdapter)
    run = RunFolder(tmp_path)
    assert not adapter.matches(run)
    make_folder(kind, tmp_path)
    assert adapter.chosen(run).name == kind
    assert guess_adapter(run, TrainerFormat(line_pattern=PATTERN)).name == kind
    assert adapter.read(run).counters == adapter.chosen(run).read(run).counters


def test_a_folder_of_checkpoints_alone_is_not_taken_for_the_native_form(tmp_path: Path) -> None:
    sb3_model(tmp_path / "checkpoints" / "rl_model_100_steps.zip", 100)
    sb3_run(tmp_path)
    assert guess_adapter(RunFolder(tmp_path)).name == "sb3"


def test_every_adapter_says_what_it_looks_for_and_what_it_can_prove() -> None:
    for adapter in ADAPTERS.values():
        assert len(adapter.looks_for) > 15 and len(adapter.proves) > 15
    declared = CommandTrainer.model_fields["adapter"].annotation
    assert set(ADAPTERS) == set(declared.__args__)  # type: ignore[union-attr]


def test_settings_reach_hydra_as_overrides() -> None:
    study = study_of(command=["train.py", "{overrides}", "seed={seed}"])
    filled = fill(study.trainer.command, study, Target(Cell("a", 3), RunFolder(Path("/r")), 10))  # type: ignore[union-attr]
    assert filled == ["train.py", "risk.u=true", "layers=[64,64]", "note=null", "seed=3"]


def test_an_evaluation_is_given_the_proven_checkpoint() -> None:
    study = study_of(command=["eval.py", "{checkpoint}", "{checkpoint_hash}"])
    target = Target(Cell("a", 0), RunFolder(Path("/r")), 10, "id", 1, Path("/r/m.zip"), "abc")
    assert fill(study.trainer.command, study, target) == ["eval.py", "/r/m.zip", "abc"]  # type: ignore[union-attr]


# Recorded folders of stable-baselines3


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
