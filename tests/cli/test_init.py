"""`init` writes a study that is valid, says what each key means, and asks only where somebody can answer."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dreamproof.cli.init import FORMS
from dreamproof.cli.main import app
from dreamproof.settings.study import CommandTrainer
from dreamproof.settings.study_file import read_study


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["init", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("kind", FORMS)
def test_every_kind_of_trainer_gives_a_valid_commented_study(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert f"next        dreamproof plan {file}" in call(str(file), "--trainer", kind)
    study = read_study(file)
    assert isinstance(study.trainer, CommandTrainer) and study.trainer.adapter == FORMS[kind].adapter
    assert list(study.arms) == ["baseline", "variant"] and study.seeds == [0, 1, 2, 3, 4]
    assert file.read_text().count("\n#") >= 8
    shown = CliRunner().invoke(app, ["plan", str(file)])
    assert shown.exit_code == 0 and "10 train cells" in shown.output


def test_flags_answer_every_question(tmp_path: Path) -> None:
    file = tmp_path / "paper.yaml"
    given = [
        "--trainer",
        "safedreamer",
        "--question",
        'Is "v2" better: really?',
        "--arms",
        "base, full",
        "--seeds",
        "3",
    ]
    given += ["--task", "SafetyPointGoal1-v0", "--metric", "score", "--smallest-difference", "0.5", "--gpu"]
    given += ["--agent-steps", "120000", "--price", "3.5", "--currency", "CNY", "--budget", "200", "--seeds", "3"]
    given += ["--language", "zh-Hans"]
    call(str(file), *given)
    study = read_study(file)
    assert study.question == 'Is "v2" better: really?' and list(study.arms) == ["base", "full"]
    assert (study.metric.name, study.metric.smallest_difference, study.agent_steps) == ("score", 0.5, 120_000)
    assert (study.money.price_per_gpu_hour, study.money.budget, study.require.gpu) == (3.5, 200.0, True)
    assert study.money.currency == "CNY"
    assert study.report.languages == ["zh-Hans"] and len(study.seeds) == 3


@pytest.mark.parametrize(("stem", "name"), [("我的 实验", "study"), ("2026-01-01", "2026-01-01"), ("12", "12")])
def test_any_file_name_gives_a_study(stem: str, name: str, tmp_path: Path) -> None:
    call(str(tmp_path / f"{stem}.yaml"))
    assert read_study(tmp_path / f"{stem}.yaml").name == name


def test_a_file_is_never_overwritten_and_a_wrong_answer_leaves_none(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    call(str(file))
    before = file.read_text()
    again = CliRunner().invoke(app, ["init", str(file)])
    assert "exists already" in str(again.exception) and file.read_text() == before
    other = tmp_path / "other.yaml"
    assert "is not one of auto," in str(CliRunner().invoke(app, ["init", str(other), "--trainer", "foo"]).exception)
    assert CliRunner().invoke(app, ["init", str(other), "--language", "fr"]).exit_code != 0
    assert not other.exists()


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
