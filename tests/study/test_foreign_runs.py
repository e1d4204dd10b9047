"""What a study does with trainers that save nothing, begin again, or were run by their owners."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.study.test_supervisor import Stage
from typer.testing import CliRunner

from dreamproof.base.files import write_json
from dreamproof.cli.main import app
from dreamproof.runs.layout import AttemptFolder, Cell, RunFolder
from dreamproof.runs.reader import prove_evaluation
from dreamproof.study.ledger.status import train_status
from dreamproof.study.plan.commands import run_settings
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import declare
from dreamproof.testing.waiting import HANG_SECONDS

JSONL = {"trainer": {"command": [sys.executable, "train.py", "{run_dir}"], "adapter": "jsonl"}, "conditions": []}


def foreign_stage(folder: Path, **changes: Any) -> Stage:
    (folder / "train.py").write_text("")
    return Stage(folder, **{**JSONL, "arms": {"low": {}}, "seeds": 1, **changes})


def write_rows(run: RunFolder, *steps: int, seconds_ago: float = 0.0) -> None:
    run.root.mkdir(parents=True, exist_ok=True)
    rows = "".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in steps)
    run.metrics.write_text(rows)


def test_a_run_that_saved_nothing_is_stopped_at_once_and_not_trained_again(tmp_path: Path) -> None:
    stage = foreign_stage(tmp_path)

    def start(folder: AttemptFolder) -> None:
        write_rows(stage.opened.folder.run(Cell("low", 0)), 10, 20)
        stage.backend.end(folder.root.name)

    stage.backend.on_start = start
    stage.supervisor.run()
    assert stage.backend.started == ["a000001"]
    assert stage.causes() == ["not_saved"]
    [stopped] = stage.events("cell_stopped")
    assert stopped["reason"] == "trained to its end and not saved: low/0: no checkpoint file"
    assert stopped["cause"] == "not_saved"
    assert train_status(stage.opened.state, stage.opened.state.cells[Cell("low", 0)]) == "not_saved"
    shown = CliRunner().invoke(app, ["status", str(stage.opened.file)]).output
    assert "1 not saved" in shown and "low/0: trained to its end and not saved" in shown
    assert "let the trainer save when it ends" in shown
    why = CliRunner().invoke(app, ["why", str(stage.opened.file), "low/0"]).output
    assert "20 agent steps were trained" in why and "let the trainer save when it ends" in why
    money = CliRunner().invoke(app, ["money", str(stage.opened.file)]).output
    assert "not_saved" in money and "trained to the end and not saved: 1 cell" in money


def test_a_run_that_ends_with_nan_is_stopped_at_once_and_not_trained_again(tmp_path: Path) -> None:
    stage = foreign_stage(tmp_path)

    def start(folder: AttemptFolder) -> None:
        run = stage.opened.folder.run(Cell("low", 0))
        write_rows(run, 10, 20)
        run.metrics.write_text(run.metrics.read_text().replace("1.0", "NaN"))
        (run.root / "model.pt").write_bytes(b"weights")
        stage.backend.end(folder.root.name)

    stage.backend.on_start = start
    stage.supervisor.run()
    assert stage.backend.started == ["a000001"] and stage.causes() == ["nan"]
    [stopped] = stage.events("cell_stopped")
    assert stopped["reason"] == "trained to its end, and what it learned is not finite: low/0: loss is nan at the end"
    assert stopped["cause"] == "nan"


def test_a_saved_run_is_proven_when_it_is_tried_again(tmp_path: Path) -> None:
    test_a_run_that_saved_nothing_is_stopped_at_once_and_not_trained_again(tmp_path)
    opened = open_study(tmp_path / "small.yaml")
    run = opened.folder.run(Cell("low", 0))
    (run.root / "model_20_steps.pt").write_bytes(b"weights")
    from dreamproof.study.attempts.launch import ready_cell

    [proof] = ready_cell(opened, Cell("low", 0)).events
    assert proof.row()["checkpoint"] == "model_20_steps.pt"


def test_a_trainer_that_begins_again_is_noticed_and_its_lost_steps_are_wasted(tmp_path: Path) -> None:
    stage = foreign_stage(tmp_path, agent_steps=1000)
    run = stage.opened.folder.run(Cell("low", 0))
    write_rows(run, 100, 450)
    (run.root / "model_400_steps.pt").write_bytes(b"weights")
    waits = 0

    def wait() -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            write_rows(run, 20, 40)
        if waits == 6:
            write_rows(run, 20, 1000)
            (run.root / "model_1000_steps.pt").write_bytes(b"all")
            stage.backend.end("a000001")

    stage.backend.on_wait = wait
    stage.supervisor.run()
    [event] = stage.events("cell_restarted")
    assert (event["cell"], event["agent_steps"], event["kept_agent_steps"]) == ("low/0", 0, 400)
    attempt = stage.opened.state.attempts["a000001"]
    assert attempt.first_agent_steps("low/0") == 0
    assert attempt.from_agent_steps == {"low/0": 400}
    why = CliRunner().invoke(app, ["why", str(stage.opened.file), "low/0"]).output
    assert "restarted at 0: the trainer did not continue from its checkpoint of 400" in why
    assert "0 → 1,000 agent steps kept" in why


SB3_LOG = "time/total_timesteps,train/n_updates,train/loss\n{first},10,0.5\n{last},20,0.5\n"


@pytest.mark.parametrize(("first", "restarted"), [(2048, [0]), (4048, [])])
def test_a_restart_is_noticed_although_the_first_row_lies_beyond_the_checkpoint(
    tmp_path: Path, first: int, restarted: list[int]
) -> None:
    trainer = {"command": [sys.executable, "train.py", "{run_dir}"], "adapter": "auto"}
    stage = foreign_stage(tmp_path, trainer=trainer, agent_steps=first + 2048)
    run = stage.opened.folder.run(Cell("low", 0))
    run.root.mkdir(parents=True)
    (run.root / "progress.csv").write_text("")
    (run.root / "rl_model_2000_steps.zip").write_bytes(b"weights of an attempt that was killed")

    def start(folder: AttemptFolder) -> None:
        (run.root / "progress.csv").write_text(SB3_LOG.format(first=first, last=first + 2048))
        (run.root / f"rl_model_{first + 2048}_steps.zip").write_bytes(b"all")
        stage.backend.end(folder.root.name)

    stage.backend.on_start = start
    stage.supervisor.run()
    assert [event["agent_steps"] for event in stage.events("cell_restarted")] == restarted
    assert stage.opened.state.attempts["a000001"].from_agent_steps == {"low/0": 2000}


def test_a_trainer_that_continues_is_not_called_restarted(tmp_path: Path) -> None:
    stage = foreign_stage(tmp_path, agent_steps=1000)
    run = stage.opened.folder.run(Cell("low", 0))
    write_rows(run, 100)
    (run.root / "model_400_steps.pt").write_bytes(b"weights")

    def wait() -> None:
        write_rows(run, 100, 1000)
        (run.root / "model_1000_steps.pt").write_bytes(b"all")
        stage.backend.end("a000001")

    stage.backend.on_wait = wait
    stage.supervisor.run()
    assert stage.events("cell_restarted") == []
    assert stage.causes() == ["completed"]


# Conditions and their kinds


def test_a_condition_is_given_a_kind_that_an_evaluation_file_may_hold(tmp_path: Path) -> None:
    conditions = ["id", {"name": "wind", "settings": {"wind": 2}}, {"name": "mass", "kind": "genuine"}]
    study = open_study(declare(tmp_path, conditions=conditions)).study
    kinds = [condition["kind"] for condition in run_settings(study, Cell("low", 0)).conditions]
    assert kinds == ["in_distribution", "proxy", "genuine"]


def test_a_file_that_is_not_valid_is_distinguished_from_no_file(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert prove_evaluation(run, "id", 1, "h") == "no evaluation file"
    write_json(run.evaluation("id"), {"condition": "id", "kind": None, "task": "t", "checkpoints": {}})
    assert "is not valid: kind: " in str(prove_evaluation(run, "id", 1, "h"))


# The users' own folder of seventeen runs


CONFIG = "task: safetygymcoor_SafetyPointGoal1-v0\nenv: {safetygymcoor: {repeat: 5}}\nrun: {save_every: 10000}\n"
ARMS = ("v2_baseline", "v2_u_only", "v2_cert_only", "v2_full")
BEGAN = 1_771_549_200.0
STEPS = 4096
SECONDS = 6030.0


def put(path: Path, content: str, written: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (written, written))


def sprint_run(runs: Path, arm: str, seed: int, saved_at: float) -> None:
    root = runs / f"20260220-010000_{arm}_safetygymcoor_SafetyPointGoal1-v0_{seed}"
    put(root / "config.yaml", CONFIG, BEGAN)
    for index, name in enumerate(("20260220T011500", "20260220T014500", "20260220T021500", "20260220T024000")):
        put(root / "replay" / f"{name}F000001-a{index}-b-1024.npz", "x", BEGAN + SECONDS * (index + 1) / 4)
    rows = [{"step": 5 * step, "train/loss": 1.0, "episode/score": seed} for step in (601, STEPS)]
    put(root / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows), BEGAN + SECONDS)
    put(root / "checkpoint.ckpt", f"weights {arm} {seed}", BEGAN + saved_at)


def sprint(folder: Path, saved_at: float) -> Path:
    """The study file of twenty cells, and seventeen runs next to it."""
    for arm in ARMS:
        for seed in range(5):
            if seed != 2 or arm == "v2_baseline":
                sprint_run(folder / "runs", arm, seed, saved_at)
    study = {
        "name": "paper_sprint",
        "question": "Is v2_full better than v2_baseline?",
        "metric": {"name": "score", "smallest_difference": 1.0},
        "task": "SafetyPointGoal1-v0",
        "trainer": {
            "command": [sys.executable, "train.py", "{run_dir}"],
            "evaluate": [sys.executable, "evaluate.py", "{run_dir}"],
            "adapter": "embodied",
        },
        "arms": {arm: {"method": arm} for arm in ARMS},
        "seeds": 5,
        "agent_steps": STEPS,
        "conditions": ["id"],
        "money": {"price_per_gpu_hour": 3.5, "currency": "CNY", "budget": 200},
    }
    file = folder / "paper_sprint.yaml"
    file.write_text(yaml.safe_dump(study, sort_keys=False))
    return file


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_seventeen_runs_that_saved_at_their_start_are_one_truth_in_every_verb_and_document(tmp_path: Path) -> None:
    file = str(sprint(tmp_path, saved_at=52))
    imported = call("import", file, str(tmp_path / "runs"))
    assert "0 of 20 cells proven, 17 trained and not saved, 0 unproven, 3 missing" in imported
    assert "1 d 4 h, ¥99.66; let the trainer save when it ends" in imported
    status = call("status", file)
    assert "0/20 proven, 17 not saved, 3 missing" in status and "17 cells in all: 1 d 4 h, money ¥99.66" in status
    assert "not proven  train v2_full: seeds 2" in status
    assert "¥99.66" in call("money", file)
    assert "not saved   17 cells of it: trained once and not saved" in call("plan", file)
    assert json.loads(call("status", file, "--json"))["not_saved"].keys() >= {"v2_full/4"}
    table = (tmp_path / "results/paper_sprint/manifests/train_status.tsv").read_text()
    assert table.count("\tnot_saved\t") == 34, "status and last cause of 17 rows"
    call("report", file)
    for name in ("decision.md", "money.md", "status.md", "record.md"):
        document = (tmp_path / "results/paper_sprint/reports" / name).read_text()
        assert "**17 trained, not saved** (28.48 GPU hours, ¥99.66)" in document, name
        assert "--retry-stopped" in document, name
    call("report", file, "--language", "zh-Hans")
    assert "**17 个已训练、未保存**" in (tmp_path / "results/paper_sprint/reports/zh-Hans/money.md").read_text()
    assert "not saved" in (tmp_path / "results/paper_sprint/reports/money.md").read_text(), "English is still there"


def test_seventeen_runs_that_saved_at_their_end_are_proven(tmp_path: Path) -> None:
    file = str(sprint(tmp_path, saved_at=SECONDS - 1))
    assert "17 of 20 cells proven, 0 unproven, 3 missing" in call("import", file, str(tmp_path / "runs"))
    copy = tmp_path / "copied"
    shutil.copytree(tmp_path / "runs", copy, copy_function=shutil.copyfile)
    other = tmp_path / "other"
    other.mkdir()
    again = shutil.copy(file, other)
    assert "0 of 20 cells proven, 17 unproven, 3 missing" in call("import", str(again), str(copy))


SAFEDREAMER = """
import argparse, datetime, json, os, pathlib, sys
p = argparse.ArgumentParser()
p.add_argument("--logdir"); p.add_argument("--run.steps", dest="steps", type=int); p.add_argument("--save", default="")
a, _ = p.parse_known_args()
root = pathlib.Path(a.logdir + datetime.datetime.now().strftime("%Y%m%d-%H%M%S") + "_arm_task_0")
(root / "replay").mkdir(parents=True)
(root / "config.yaml").write_text("task: d_x\\nenv: {d: {repeat: 5}}\\n")
for index in range(-(-a.steps // 1024)):
    (root / "replay" / f"20260101T00000{index % 10}F000000-a{index}-b-1024.npz").write_text("x")
with open(root / "metrics.jsonl", "w") as file:
    file.write(json.dumps({"step": 5 * a.steps, "train/loss": 1.0}) + "\\n")
(root / "checkpoint.ckpt").write_text("weights")
"""


@pytest.mark.parametrize("logdir", ["{run_dir}", "{run_dir}/"])
def test_a_trainer_like_safedreamer_is_trained_to_its_proof(logdir: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAFEDREAMER)
    command = ["{python}", "train.py", "--logdir", logdir, "--run.steps", "{agent_steps}"]
    trainer = {"command": command, "adapter": "embodied"}
    file = declare(tmp_path, trainer=trainer, conditions=[], arms={"a": {}}, seeds=1, agent_steps=3000)
    made = subprocess.run(
        [sys.executable, "-m", "dreamproof.cli", "run", str(file), "--plain", "--no-report"],
        capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    known = open_study(file).state.cells[Cell("a", 0)]
    assert known.proof is not None and known.proof.checkpoint.endswith("_arm_task_0/checkpoint.ckpt")
    assert len(known.attempts) == 1
