"""A received study folder cannot lead us elsewhere, print what a terminal obeys, or take secrets along."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import write_json
from dreamproof.cli.live import View
from dreamproof.cli.printing import print_json, print_text
from dreamproof.runs.layout import CheckpointFolder, StudyFolder
from dreamproof.runs.reader import checkpoint_fault
from dreamproof.settings.backend import Slurm
from dreamproof.study.attempts.launch import orphaned_events
from dreamproof.study.backends.slurm.commands import SlurmCommands
from dreamproof.study.backends.slurm.script import Submission, script_text
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.open_study import check_links, open_study
from dreamproof.testing.waiting import HANG_SECONDS

SECRET = "s3cr3t-0123456789abcdef"
TRAINER = """\
import os, pathlib, sys
pathlib.Path(sys.argv[1], "seen.txt").write_text(str(len(os.environ.get("LAB_API_KEY", ""))))
print("\\x1b]0;owned\\x07\\x1b[2Jlast words")
sys.exit(3)
"""
STUDY = """\
name: tiny
question: Does it end?
metric: {name: return, smallest_difference: 1.0}
task: line
trainer:
  command: ["{python}", train.py, "{run_dir}"]
  from_env: [LAB_API_KEY]
arms: {a: {}}
seeds: 1
agent_steps: 10
retries: {same_deterministic_at_most: 1, first_wait_seconds: 0}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return tmp_path / "tiny.yaml"


def dreamproof(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "LAB_API_KEY"}
    command = [sys.executable, "-m", "dreamproof.cli.main", *map(str, arguments)]
    return subprocess.run(
        command, env={**kept, **variables}, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def test_a_secret_reaches_the_trainer_and_is_written_nowhere(file: Path) -> None:
    folder = file.parent / "results" / "tiny"
    done = dreamproof("run", file, "--no-check", "--plain", LAB_API_KEY=SECRET)
    assert (folder / "runs" / "a-seed0" / "seen.txt").read_text() == str(len(SECRET)), done.stdout + done.stderr
    assert dreamproof("export", file, file.parent / "out", LAB_API_KEY=SECRET).returncode == 0
    places = [path for root in (folder, file.parent / "out") for path in root.rglob("*") if path.is_file()]
    assert folder / "attempts" / "a000001" / "order.json" in places
    assert [path for path in places if SECRET.encode() in path.read_bytes()] == []
    given = dreamproof("why", file, "a/0")
    assert "last line: last words" in given.stdout
    assert "\x1b" not in given.stdout and "\x07" not in given.stdout


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_missing_secret_is_named_before_anything_is_started(file: Path, verb: str) -> None:
    done = dreamproof(verb, file)
    assert done.returncode == 2
    assert "LAB_API_KEY, which is not set" in done.stderr and "export LAB_API_KEY=" in done.stderr
    assert not (file.parent / "results" / "tiny" / "attempts").exists()


@pytest.mark.parametrize("name", ["../../../elsewhere", "/etc", "a/../../b", "", "..", "a000001\n", ".hidden"])
def test_an_attempt_in_a_ledger_is_no_path(name: str) -> None:
    row: dict[str, Any] = {"attempt": name, "work": "train", "cells": [], "conditions": [], "command": []}
    with pytest.raises(BrokenEvidence, match="not a plain name"):
        StudyState().apply({"n": 1, "t": 1.0, "event": "attempt_started", **row, "from_agent_steps": {}})


def test_an_order_that_names_another_attempt_is_not_believed(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    row = {"event": "attempt_started", "work": "train", "cells": [], "conditions": [], "command": []}
    write_json(folder.attempt("a000001").order, {"event": {**row, "attempt": "../../x", "from_agent_steps": {}}})
    write_json(folder.attempts / ".DS_Store" / "order.json", {"event": {**row, "attempt": ".DS_Store"}})
    assert orphaned_events(StudyState(), folder) == []


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", ".", "x\ny"])
def test_the_record_of_a_checkpoint_names_only_its_own_files(tmp_path: Path, name: str) -> None:
    facts = {"agent_steps": 1, "gradient_steps": 1, "parameter_hash": "h", "finite": True, "task": "line"}
    folder = CheckpointFolder(tmp_path)
    write_json(folder.record, {**facts, "files": {name: "0" * 64}})
    assert "is not the name of a file inside the folder" in str(checkpoint_fault(folder))


def test_scratch_folders_that_are_links_are_not_emptied(file: Path, tmp_path: Path) -> None:
    (tmp_path / "precious" / "a").mkdir(parents=True)
    opened = open_study(file)
    opened.folder.root.mkdir(parents=True)
    opened.folder.probes.symlink_to(tmp_path / "precious")
    with pytest.raises(BadInput, match=r"is a symbolic link to .*precious"):
        check_links(opened)
    assert dreamproof("check", file, LAB_API_KEY=SECRET).returncode == 2
    assert (tmp_path / "precious" / "a").is_dir()


@pytest.mark.parametrize("job", ["--user=root", "--name=other", "", "12 --me", "12\n"])
def test_a_job_number_is_never_an_option(job: str) -> None:
    commands = SlurmCommands()
    for act in (
        lambda: commands.cancel("x", [job]),
        lambda: commands.signal("x", [job]),
        lambda: commands.requeue(job),
    ):
        with pytest.raises(BadInput, match="is not the number of a Slurm job"):
            act()


def test_a_folder_with_a_line_break_does_not_end_up_in_a_script(tmp_path: Path) -> None:
    place = tmp_path / "x\n#SBATCH --uid=0"
    submission = Submission("s", "job", place, place / "attempts", ["a000001"], 1 << 20, "00:10:00")
    with pytest.raises(BadInput, match="holds a line break"):
        script_text(Slurm(), submission)


def test_the_error_for_a_hostile_key_prints_no_escape(file: Path) -> None:
    file.write_text(STUDY + '"x\\e[2J\\a": 1\n')
    done = dreamproof("plan", file)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr and "unknown key" in done.stderr


def test_what_a_ledger_holds_is_printed_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x9b31m\u202eabc\x1b[2J"
    print_json({"evidence": evil})
    print_text(f"    | {evil}\n")
    View(plain=True).show(evil)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable() and printed.count("abc") == 3
