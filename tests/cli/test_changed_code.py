"""Code that changed after a study was finished: nothing is added to the study, or made again, before it is accepted."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_until_decided import seeds_on_record

from dreamproof.base.errors import ExitCode
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import QUICK, TRAINER, declare


def own_trainer(place: Path) -> tuple[Path, dict[str, Any]]:
    """A script to change, and the `trainer` of a study that uses it."""
    script = place / "train.py"
    shutil.copy(TRAINER, script)
    command = [sys.executable, str(script), "{run_dir}", "--step-seconds", "0.02"]
    return script, {"command": command, "evaluate": [*command, "--evaluate", "{condition}"], "code": ["train.py"]}


def test_seeds_are_not_added_where_another_code_would_train_them(tmp_path: Path, dreamproof: Any) -> None:
    script, trainer = own_trainer(tmp_path)
    file = declare(tmp_path, seeds=3, maximum_seeds=6, trainer=trainer)
    assert dreamproof("run", file, *QUICK).code == 0
    script.write_text(script.read_text() + "\nCHANGED = True\n")
    refused = dreamproof("run", file, "--no-check", "--plain", "--until-decided")
    assert refused.code == ExitCode.BAD_INPUT and "reports:" in refused.output
    assert "no seeds added" in refused.errors and "changed train.py" in refused.errors
    assert f"dreamproof run {file} --accept-changed-code --until-decided" in refused.errors
    assert seeds_on_record(file) == [[0, 1, 2]]  # the finished study stays finished
    accepted = dreamproof("run", file, *QUICK, "--accept-changed-code", "--until-decided")
    assert accepted.code == 0 and "accepted: changed train.py" in accepted.output
    assert seeds_on_record(file) == [[0, 1, 2], [0, 1, 2, 3, 4, 5]]
    state = open_study(file).state
    assert len({cell.code_hash for cell in state.cells.values()}) == 2


def test_code_is_accepted_in_the_call_that_finds_the_loss(tmp_path: Path, dreamproof: Any) -> None:
    script, trainer = own_trainer(tmp_path)
    file = declare(tmp_path, trainer=trainer)
    assert dreamproof("run", file, *QUICK).code == 0
    shutil.rmtree(tmp_path / "results/small/runs/low-seed1/checkpoints")
    script.write_text(script.read_text() + "\nCHANGED = True\n")
    assert dreamproof("run", file, *QUICK, "--retrain-lost", "--accept-changed-code").code == 0
    state = open_study(file).state
    codes = {str(name): cell.code_hash for name, cell in state.cells.items()}
    assert codes["low/1"] != codes["low/0"] and [row["what"] for row in state.accepted] == ["code"]


@pytest.mark.parametrize("lost", ["checkpoints", "evaluations"])
def test_what_was_lost_is_not_made_again_by_another_code(tmp_path: Path, dreamproof: Any, lost: str) -> None:
    script, trainer = own_trainer(tmp_path)
    file = declare(tmp_path, trainer=trainer)
    assert dreamproof("run", file, *QUICK).code == 0
    shutil.rmtree(tmp_path / "results/small/runs/low-seed1" / lost)
    script.write_text(script.read_text() + "\nCHANGED = True\n")
    refused = dreamproof("run", file, *QUICK, "--retrain-lost")
    assert refused.code == ExitCode.GAP_REMAINS and "changed train.py" in refused.output
    assert " started: " not in refused.output and "nothing more was started" in refused.output
    accepted = dreamproof("run", file, *QUICK, "--accept-changed-code")
    assert accepted.code == 0 and accepted.output.count(" started: ") == 1
    codes = {str(name): cell.code_hash for name, cell in open_study(file).state.cells.items()}
    assert (codes["low/1"] != codes["low/0"]) is (lost == "checkpoints")
