"""Tables, rows of JSON and printed lines, with the keys and expressions that a study declares."""

from pathlib import Path
from typing import Any

import pytest
from tests.study.adapters.foreign_folders import BEGAN, HOUR, PATTERN, proof_of, put, rows_text, study_of

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters import find_adapter, study_adapter
from dreamproof.study.adapters.api import TrainerFormat


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
