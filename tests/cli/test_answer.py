"""A run ends with its answer; changed code is refused with a reason; one run is verified from its files alone."""

import json
import shutil
import sys
from pathlib import Path

from tests.cli.conftest import Verb

from dreamproof.base.errors import ExitCode
from dreamproof.testing.small_study import TRAINER, declare, small_study

QUICK = ("--no-check", "--plain")


def test_the_answer_and_the_place_of_the_report_come_last(tmp_path: Path, dreamproof: Verb) -> None:
    shown = dreamproof("run", declare(tmp_path, seeds=4), *QUICK)
    assert shown.code == ExitCode.OK
    ending = shown.output.split("question    ")[1]
    assert ending.startswith("Does the level help?\nanswer      Cannot decide whether any arm differs from low in ")
    assert "4 seeds" in ending and "**" not in ending and "`" not in ending
    assert str(tmp_path / "results" / "small" / "reports" / "decision.html") in ending


def test_without_a_report_no_earlier_one_is_shown(tmp_path: Path, dreamproof: Verb) -> None:
    file = declare(tmp_path)
    assert "decision.html" in dreamproof("run", file, *QUICK).output
    shown = dreamproof("run", file, "--no-report", *QUICK)
    assert shown.code == ExitCode.OK
    assert shown.output.endswith("report      not written (--no-report)\n")
    assert "decision.html" not in shown.output and "answer      " not in shown.output


def test_other_code_is_refused_once_and_may_be_accepted(tmp_path: Path, dreamproof: Verb) -> None:
    shutil.copy(TRAINER, tmp_path / "train.py")
    command = [sys.executable, "train.py", "{run_dir}", "--step-seconds", "0"]
    trainer = {"command": command, "evaluate": small_study()["trainer"]["evaluate"]}
    file = declare(tmp_path, trainer=trainer)
    assert dreamproof("run", file, "--no-report", *QUICK).code == ExitCode.OK
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text() + "\nCHANGED = 1\n")
    assert dreamproof("run", file, "--no-report", *QUICK).code == ExitCode.OK  # nothing is missing
    file.write_text(file.read_text().replace("seeds: 2", "seeds: 3"))
    refused = dreamproof("run", file, "--no-report", *QUICK)
    assert refused.code == ExitCode.BAD_INPUT
    assert "4 cells of this study were trained by other code" in refused.errors and "changed train.py" in refused.errors
    assert dreamproof("run", file, "--no-report", "--accept-changed-code", *QUICK).code == ExitCode.OK
    note = "changed code accepted (--accept-changed-code): changed train.py"
    assert f"note: {note}" in dreamproof("verify", file).output
    assert note in json.loads(dreamproof("status", file, "--json").output)["notices"]


def test_one_run_is_verified_from_its_files_alone(tmp_path: Path, dreamproof: Verb) -> None:
    file = declare(tmp_path / "study", conditions=[])
    assert dreamproof("run", file, "--no-report", *QUICK).code == ExitCode.OK
    alone = shutil.copytree(file.parent / "results" / "small" / "runs" / "low-seed0", tmp_path / "alone")
    whole = dreamproof("verify", alone)
    assert whole.code == ExitCode.OK and "settings " in whole.output
    resolved = json.loads((alone / "resolved.json").read_text())
    resolved["resolved"]["settings"]["level"] = 7
    (alone / "resolved.json").write_text(json.dumps(resolved))
    broken = dreamproof("verify", alone)
    assert broken.code == ExitCode.BROKEN_EVIDENCE and "does not match its own hash" in broken.errors
