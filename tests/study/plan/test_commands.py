"""Commands with their placeholders filled."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.files import read_json
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.settings.study import Study
from dreamproof.study.plan import commands
from dreamproof.study.plan.commands import (
    Target,
    can_micro_batch,
    environment,
    evaluate_commands,
    fill,
    flag_arguments,
    train_commands,
    working_folder,
    write_settings,
)
from dreamproof.testing.small_study import small_study


def study(**changes: Any) -> Study:
    return Study.model_validate(small_study(**changes))


def target(seed: int = 1, **more: Any) -> Target:
    return Target(Cell("high", seed), RunFolder(Path(f"/runs/high-seed{seed}")), 20, **more)


def test_every_placeholder_is_filled() -> None:
    arguments = [
        "{run_dir}/x",
        "--seed={seed}",
        "{arm}",
        "{agent_steps}",
        "{episodes}",
        "{settings.level}",
        "{micro_batches}",
    ]
    filled = fill(arguments, study(), target(micro_batches=4))
    assert filled == ["/runs/high-seed1/x", "--seed=1", "high", "20", "3", "2", "4"]


def test_flags_name_every_merged_setting() -> None:
    declared = study(settings={"world": {"size": 8, "deep": True}, "level": 0, "sizes": [1, 2]})
    arguments = fill(["python", "{flags}"], declared, target())
    assert arguments == ["python", "--world.size", "8", "--world.deep", "true", "--level", "2", "--sizes", "1,2"]
    assert flag_arguments({}) == []


def test_braces_that_are_no_placeholders_stay() -> None:
    arguments = ["${HOME}/x", '{"a": 1}', "awk '{print $1}'"]
    assert fill(arguments, study(), target()) == arguments


def test_doubled_braces_are_left_to_the_trainer() -> None:
    arguments = ["{run_dir}/{{timestamp}}", "{{seed}}-{seed}"]
    assert fill(arguments, study(), target()) == ["/runs/high-seed1/{timestamp}", "{seed}-1"]


def test_a_command_evaluates_one_condition_at_a_time() -> None:
    commands = evaluate_commands(study(), [target()], ["id", "far"])
    assert [command[command.index("--evaluate") + 1] for command in commands] == ["id", "far"]


def test_a_native_trainer_takes_a_whole_pack() -> None:
    native = study(trainer="pwm", pack_cells=2)
    arguments = train_commands(native, [target(0, micro_batches=2), target(1, micro_batches=2)])
    run_dirs = ["/runs/high-seed0", "/runs/high-seed1"]
    assert arguments == [[sys.executable, "-m", "dreamproof.train", *run_dirs, "--micro-batches", "2"]]
    [evaluate] = evaluate_commands(native, [target(0), target(1)], ["id", "far"])
    assert evaluate[1:] == ["-m", "dreamproof.evaluate", *run_dirs, "--conditions", "id,far"]


def test_only_commands_that_ask_for_micro_batches_get_them() -> None:
    assert not can_micro_batch(study())
    assert can_micro_batch(study(trainer={"command": ["x", "{micro_batches}"]}, conditions=[]))
    assert can_micro_batch(study(trainer="pwm"))
    assert not can_micro_batch(study(trainer="dreamer")), "it learns from whole batches"


def test_the_working_folder_is_beside_the_study_file_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert working_folder(study(), tmp_path) == tmp_path
    there = study(trainer={"command": ["x"], "working_folder": "code"}, conditions=[])
    assert working_folder(there, tmp_path) == (tmp_path / "code").resolve()


def test_a_study_may_set_variables() -> None:
    declared = study(trainer={"command": ["x"], "environment": {"MUJOCO_GL": "egl"}}, conditions=[])
    variables = environment(declared, [target()])
    assert variables["MUJOCO_GL"] == "egl"
    assert variables["DREAMPROOF_RUN_DIR"] == "/runs/high-seed1"
    assert variables["PYTHONUNBUFFERED"] == "1"


def test_modules_beside_the_caller_are_found_from_the_folder_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"src{os.pathsep}/elsewhere")
    assert environment(study(), [target()])["PYTHONPATH"] == f"{Path.cwd() / 'src'}{os.pathsep}/elsewhere"
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in environment(study(), [target()])


def test_attempts_side_by_side_share_the_memory_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    share = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    monkeypatch.delenv(share, raising=False)
    assert environment(study(backend={"slots": 4}, trainer="pwm"), [target()])[share] == "0.225"
    assert share not in environment(study(backend={"slots": 1}, trainer="pwm"), [target()])
    assert share not in environment(study(backend={"slots": 4}, trainer={"command": ["x"]}, conditions=[]), [target()])
    monkeypatch.setenv(share, "0.5")
    assert share not in environment(study(backend={"slots": 4}, trainer="pwm"), [target()])


def test_quick_compiles_are_for_our_own_trainers_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    monkeypatch.setattr(commands, "gpus_here", list)
    quick = study(backend={"quick_compiles": True}, trainer="pwm")
    assert environment(quick, [target()])["XLA_FLAGS"].startswith("--xla_dump_to=/x --xla_backend_optimization_level=1")
    assert "XLA_FLAGS" not in environment(study(trainer="pwm"), [target()])
    foreign = study(backend={"quick_compiles": True}, trainer={"command": ["x"]}, conditions=[])
    assert "XLA_FLAGS" not in environment(foreign, [target()])
    monkeypatch.setattr(commands, "gpus_here", lambda: ["0"])
    assert "XLA_FLAGS" not in environment(quick, [target()])


def test_settings_are_written_once_and_again_when_they_change(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_settings(study(), Cell("high", 1), run)
    first = run.settings.stat().st_mtime_ns
    write_settings(study(), Cell("high", 1), run)
    assert run.settings.stat().st_mtime_ns == first
    write_settings(study(evaluation_episodes=9), Cell("high", 1), run)
    value = read_json(run.settings)
    assert (value["evaluation_episodes"], value["settings"], value["trainer"]) == (9, {"level": 2}, "command")
