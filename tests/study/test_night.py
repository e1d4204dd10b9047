"""The users' whole night in one command: import, train, evaluate, reports in two languages, ppt.md, end chain."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.study.test_supervisor import Stage
from tests.users_world import SPRINT_ARMS, sprint_box
from typer.testing import CliRunner

from dreamproof.base.errors import BadInput
from dreamproof.cli.main import app
from dreamproof.cli.report import write_declared
from dreamproof.settings.study_file import read_study
from dreamproof.study import session
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.preflight import gpu, local
from dreamproof.study.supervisor import Ending
from dreamproof.testing.small_study import declare

# Appends its own time stamp to --logdir as SafeDreamer does, and saves when it ends.
TRAIN = """
import argparse, datetime, json, pathlib
p = argparse.ArgumentParser()
p.add_argument("--logdir"); p.add_argument("--seed"); p.add_argument("--method")
p.add_argument("--run.steps", type=int)
a, _ = p.parse_known_args()
steps = vars(a)["run.steps"]
root = pathlib.Path(a.logdir + datetime.datetime.now().strftime("%Y%m%d-%H%M%S") + f"_{a.method}_task_{a.seed}")
(root / "replay").mkdir(parents=True)
(root / "config.yaml").write_text("task: safetygymcoor_X\\nenv: {safetygymcoor: {repeat: 5}}\\n")
for index in range(-(-steps // 1024)):
    (root / "replay" / f"20260101T00000{index % 10}F000000-a{index}-b-1024.npz").write_text("x")
(root / "metrics.jsonl").write_text(json.dumps({"step": 5 * steps, "train/loss": 1.0, "episode/score": 1.0}) + "\\n")
(root / "checkpoint.ckpt").write_text(f"weights {a.method} {a.seed}")
"""
EVALUATE = """
import json, pathlib, sys
run, condition, episodes, steps, hash, arm, seed = sys.argv[1:]
level = {"v2_baseline": 1.0, "v2_u_only": 1.2, "v2_cert_only": 1.1, "v2_full": 3.0}[arm] + 0.1 * int(seed)
kind = "in_distribution" if condition == "id" else "proxy"
values = {"score": [level] * int(episodes), "cost": [10.0] * int(episodes)}
made = {"agent_steps": int(steps), "gradient_steps": 1, "parameter_hash": hash, "episodes": values}
record = {"condition": condition, "kind": kind, "task": "SafetyPointGoal1-v0", "checkpoints": {"final": made}}
path = pathlib.Path(run, "evaluations", f"{condition}.json")
path.parent.mkdir(exist_ok=True)
path.write_text(json.dumps(record))
"""


def night_study(folder: Path, **changes: Any) -> Path:
    (folder / "train.py").write_text(TRAIN)
    (folder / "evaluate.py").write_text(EVALUATE)
    command = ["{python}", "train.py", "--logdir", "{run_dir}", "--seed", "{seed}", "--method", "{arm}"]
    evaluate = ["{python}", "evaluate.py", "{run_dir}", "{condition}", "{episodes}", "{agent_steps}"]
    switch_off = f"open({str(folder / 'switched-off')!r}, 'w').write('off')"
    study = {
        "name": "paper_sprint",
        "question": "v2_full 是否优于 v2_baseline？",
        "metric": {"name": "score", "smallest_difference": 1.0},
        "constraint": {"name": "cost", "at_most": 25},
        "task": "SafetyPointGoal1-v0",
        "trainer": {
            "command": [*command, "--run.steps", "{agent_steps}"],
            "evaluate": [*evaluate, "{checkpoint_hash}", "{arm}", "{seed}"],
            "adapter": "embodied",
            "code": ["train.py", "evaluate.py"],
        },
        "arms": {arm: {"method": arm} for arm in SPRINT_ARMS},
        "reference_arm": "v2_baseline",
        "seeds": 5,
        "agent_steps": 4096,
        "conditions": ["id", {"name": "ood", "kind": "proxy", "settings": {"hallu.level": 2}}],
        "evaluation_episodes": 3,
        "backend": {"slots": 4},
        "money": {"price_per_gpu_hour": 3.5, "currency": "CNY", "budget": 200},
        "report": {"languages": ["en", "zh-Hans"], "update": [{"file": "ppt.md", "mapping": "auto"}]},
        "at_end": {
            "action": "shutdown",
            "commands": [["/nowhere/shutdown"], [sys.executable, "-c", switch_off]],
            "grace_seconds": 0,
            "confirm_seconds": 0,
        },
    }
    file = folder / "paper_sprint.yaml"
    file.write_text(yaml.safe_dump({**study, **changes}, sort_keys=False, allow_unicode=True))
    return file


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other study of this machine refuses the shutdown."""
    monkeypatch.setattr("dreamproof.study.session.other_studies", lambda root: [])


def run_night(folder: Path, file: Path) -> Any:
    words = ["run", str(file), "--plain", "--no-check", "--import", str(folder / "runs")]
    return CliRunner().invoke(app, words)


def test_the_whole_night_in_one_command(tmp_path: Path) -> None:
    sprint_box(tmp_path, "late")
    file = night_study(tmp_path)
    done = run_night(tmp_path, file)
    assert done.exit_code == 0, done.output
    assert "17 of 20 cells proven, 0 unproven, 3 missing" in done.output
    state = open_study(file).state
    trained = [attempt for attempt in state.attempts.values() if attempt.work == "train"]
    assert sorted(text for one in trained for text in one.cells) == ["v2_cert_only/2", "v2_full/2", "v2_u_only/2"]
    assert all(map(state.evaluated, state.eval_cells.values()))
    reports = tmp_path / "results/paper_sprint/reports"
    assert (
        "v2_full" in (reports / "decision.md").read_text() and "结论" in (reports / "zh-Hans/decision.md").read_text()
    )
    assert "](../../figures/zh-Hans/" in (reports / "zh-Hans/decision.md").read_text()
    slides = (tmp_path / "ppt.md").read_text()
    assert "| v2_full | 3.200±" in slides and "1.918" not in slides and slides.startswith("# SafeDreamer v2 答辩")
    assert (tmp_path / "switched-off").read_text() == "off"
    assert state.shutdown is not None and state.shutdown.startswith("done")


def test_the_night_after_runs_that_saved_at_their_start(tmp_path: Path) -> None:
    sprint_box(tmp_path, "early")
    file = night_study(tmp_path)
    done = run_night(tmp_path, file)
    assert done.exit_code == 3, done.output
    assert "0 of 20 cells proven, 17 trained and not saved, 0 unproven, 3 missing" in done.output
    state = open_study(file).state
    assert sum(map(state.trained, state.cells.values())) == 3
    reports = tmp_path / "results/paper_sprint/reports"
    for name in ("decision.md", "money.md", "status.md", "record.md"):
        text = (reports / name).read_text()
        assert "**17 trained, not saved** (28.48 GPU hours, ¥99.66)" in text and "--retry-stopped" in text, name
        assert "**17 个已训练、未保存**" in (reports / "zh-Hans" / name).read_text(), name
    assert "`dreamproof run . --retry-stopped` works on the gap only" in (reports / "decision.md").read_text()
    assert (tmp_path / "switched-off").exists(), "stopped cells do not keep the machine on"


# Languages, documents, failures


def test_the_key_is_read_and_old_studies_keep_their_hash(tmp_path: Path) -> None:
    plain = read_study(declare(tmp_path / "plain"))
    said = read_study(declare(tmp_path / "said", report={"languages": ["en"]}, require={"gpu": False}))
    assert plain.hash() == said.hash()
    other = read_study(declare(tmp_path / "other", report={"languages": ["zh-Hans", "en"], "update": ["ppt.md"]}))
    assert other.hash() != plain.hash() and other.report.update[0].file == "ppt.md"
    with pytest.raises(BadInput, match="languages"):
        read_study(declare(tmp_path / "wrong", report={"languages": ["fr"]}))


def finished(folder: Path, **changes: Any) -> Stage:
    stage = Stage(folder, **changes)
    for cell in ("low/0", "low/1", "high/0", "high/1"):
        stage.train(cell)
    assert stage.supervisor.run() is Ending.COMPLETE
    return stage


def test_a_document_that_fails_is_recorded_and_keeps_nothing_else_from_happening(tmp_path: Path) -> None:
    end = {"action": "shutdown", "grace_seconds": 0, "confirm_seconds": 0}
    end |= {"command": [sys.executable, "-c", f"open({str(tmp_path / 'off')!r}, 'w')"]}
    stage = finished(tmp_path, report={"update": ["gone.md", "plain.md"]}, at_end=end)
    (tmp_path / "plain.md").write_text("no number of it is bound: 1.5\n")
    shown: list[str] = []
    session.finish(stage.opened, stage.supervisor, Ending.COMPLETE, shown.append, write_declared)
    [event] = stage.events("report_written")
    assert any(name.endswith("decision.md") for name in event["files"])
    assert [failure.split(":")[0] for failure in event["failures"]] == ["gone.md", "plain.md"]
    assert "no number is bound" in event["failures"][1] and "--suggest" in event["failures"][1]
    assert any(line.startswith("not written: gone.md") for line in shown)
    assert (tmp_path / "off").exists()
    status = CliRunner().invoke(app, ["status", str(stage.opened.file)]).output
    assert "note        not written: gone.md" in status


def test_reports_of_the_verb_are_those_of_the_study_and_languages_stay_apart(tmp_path: Path) -> None:
    stage = finished(tmp_path, report={"languages": ["zh-Hant", "en"]})
    written = json.loads(CliRunner().invoke(app, ["report", str(stage.opened.file), "--json"]).stdout)
    ends = [path.split("/reports/")[1] for path in written if path.endswith("decision.md")]
    assert ends == ["zh-Hant/decision.md", "decision.md"]


# require: {gpu: true}


H100: dict[str, Any] = {"gpu": {"devices": [{"name": "NVIDIA H100"}]}, "versions": {}, "environment": {}}
NO_GPU: dict[str, Any] = {"gpu": {"devices": [], "reason": "no driver"}, "versions": {}, "environment": {}}


def required(folder: Path, python: list[str], **more: Any) -> Any:
    trainer = {"command": [*python, "train.py"], "adapter": "jsonl"}
    return open_study(declare(folder, trainer=trainer, conditions=[], require={"gpu": True, **more}))


def answering(monkeypatch: pytest.MonkeyPatch, **libraries: bool) -> None:
    answers = [gpu.LibraryAnswer(name, "0.4.30", sees) for name, sees in libraries.items()]
    monkeypatch.setattr(gpu, "ask_libraries", lambda opened, trainer: (gpu.interpreter(trainer.command), answers))


def test_a_required_gpu_that_is_not_there_fails_the_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [fault] = gpu.gpu_faults(required(tmp_path, ["python"]), NO_GPU)[0]
    assert fault == "require.gpu: no NVIDIA GPU on this machine (no driver); check with nvidia-smi"
    monkeypatch.setattr(local.machine, "describe_gpus", lambda: NO_GPU["gpu"])
    monkeypatch.setattr(local, "_probe", lambda opened, arm, stop: local.ArmCheck(arm, True))
    result = local.check_arms(required(tmp_path, ["python"]))
    assert not result.passed and fault in result.faults


def test_a_library_that_cannot_see_the_gpu_fails_with_the_line_that_cures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = required(tmp_path, ["conda", "run", "-n", "safedreamer", "python"])
    answering(monkeypatch, jax=False)
    [fault] = gpu.gpu_faults(opened, H100)[0]
    cure = "conda run -n safedreamer python -m pip install --upgrade 'jax[cuda12]==0.4.30'"
    assert fault == f"require.gpu: jax 0.4.30 cannot see NVIDIA H100: {cure}"
    answering(monkeypatch, jax=False, torch=True)
    faults, [warning] = gpu.gpu_faults(opened, H100)
    assert faults == [] and warning.startswith("require.gpu: jax 0.4.30 cannot see NVIDIA H100")
    [fault] = gpu.gpu_faults(required(tmp_path, ["python"], library="jax"), H100)[0]
    assert "jax 0.4.30 cannot see NVIDIA H100" in fault
    answering(monkeypatch)
    [fault] = gpu.gpu_faults(opened, H100)[0]
    assert "has no jax, torch or tensorflow" in fault


def test_a_command_that_starts_no_python_is_not_asked(tmp_path: Path) -> None:
    faults, [warning] = gpu.gpu_faults(required(tmp_path, ["bash"]), H100)
    assert faults == [] and "which Python the trainer uses is not known" in warning
    assert gpu.interpreter(["env", "A=1", "/opt/x/bin/python3.11", "t.py"]) == ["env", "A=1", "/opt/x/bin/python3.11"]


def test_the_question_is_answered_by_the_trainers_own_python(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("__version__ = '9.9'\ndef devices():\n    return []\n")
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is missing')\n")
    opened = required(tmp_path, [sys.executable])
    trainer = opened.study.trainer.model_copy(update={"environment": {"PYTHONPATH": str(tmp_path)}})
    python, answers = gpu.ask_libraries(opened, trainer)
    found = {one.name: (one.version, one.sees_gpu, one.error) for one in answers}
    assert python == [sys.executable]
    assert found["jax"] == ("9.9", False, "") and found["torch"] == ("", False, "libcudart.so is missing")


def test_without_the_requirement_nothing_is_asked(tmp_path: Path) -> None:
    assert gpu.gpu_faults(open_study(declare(tmp_path)), NO_GPU) == ([], [])


def test_our_own_trainer_does_not_fall_back_to_the_cpu_unasked(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, trainer="dreamer", arms={"a": {}}, task="point_goal"))
    blind = H100 | {"versions": {"jax": "0.7"}}
    faults, _ = gpu.gpu_faults(opened, blind)
    assert all("pip install 'dreamproof[cuda]'" in fault and "JAX_PLATFORMS=cpu" in fault for fault in faults)
    assert gpu.gpu_faults(opened, blind | {"environment": {"JAX_PLATFORMS": "cpu"}}) == ([], [])
