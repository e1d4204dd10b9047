"""The studies that come with the program can be listed, copied and planned."""

from pathlib import Path

import pytest
from tests.cli.conftest import Verb

from dreamproof.base.errors import ExitCode
from dreamproof.cli.examples import folder_of


def test_every_study_and_every_script_is_listed_in_one_line(dreamproof: Verb) -> None:
    lines = dreamproof("examples").output.splitlines()
    studies, scripts = "\n".join(lines).split("\n\n")
    listed = [[line.split()[0] for line in part.splitlines()[1:]] for part in (studies, scripts)]
    assert listed[0] == sorted(path.stem for path in folder_of("studies").glob("*.yaml"))
    assert listed[1] == sorted(path.name for path in folder_of("examples").glob("*.py"))
    assert all(len(line) <= 120 for line in lines)


def test_a_script_is_copied_by_its_name(dreamproof: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dreamproof("examples", "client_loop.py").code == 0
    assert (tmp_path / "client_loop.py").read_text() == (folder_of("examples") / "client_loop.py").read_text()
    assert "exists already" in dreamproof("examples", "client_loop.py").errors


def test_a_copy_runs_without_the_repository(dreamproof: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = dreamproof("examples", "example")
    assert result.code == 0 and "next: dreamproof run example.yaml" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["example.yaml", "line_trainer.py"]
    assert dreamproof("plan", "example.yaml").code == 0
    assert dreamproof("check", "example.yaml").code == 0


def test_nothing_is_overwritten_and_an_unknown_name_is_answered_with_those_there_are(
    dreamproof: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line_trainer.py").write_text("mine")
    result = dreamproof("examples", "example")
    assert result.code == ExitCode.BAD_INPUT and "line_trainer.py exists already" in result.errors
    assert [path.name for path in tmp_path.iterdir()] == ["line_trainer.py"]
    assert "there are demo, example" in dreamproof("examples", "nothing").errors
