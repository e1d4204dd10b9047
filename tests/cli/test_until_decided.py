"""`run --until-decided` adds seeds in planned batches, stops at the declared maximum, and the added seeds stay."""

import json
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.report import next_seeds
from dreamproof.report.analysis import analyse
from dreamproof.report.loading import load
from dreamproof.stats.sequential import NextBatch
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import QUICK, declare


def seeds_on_record(file: Path) -> list[list[int]]:
    lines = (file.parent / "results" / file.stem / "ledger.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["declaration"]["seeds"] for row in rows if "declaration" in row]


def test_seeds_are_added_up_to_the_declared_maximum(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)
    shown = dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert shown.code == 0, shown.errors
    assert seeds_on_record(file) == [[0, 1, 2], [0, 1, 2, 3, 4, 5]]
    assert "not decided: continuing with 6 seeds per arm" in shown.output
    assert "no seeds added: maximum_seeds is reached" in shown.output


def test_added_seeds_belong_to_the_study_from_then_on(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)
    dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    before = seeds_on_record(file)
    assert open_study(file).study.seeds == before[-1]
    dreamproof("run", file, "--no-check", "--no-report", "--plain")
    assert seeds_on_record(file) == before


def test_without_a_maximum_no_seed_is_added(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=2)
    shown = dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert shown.code == 0, shown.errors
    assert seeds_on_record(file) == [[0, 1]]


def test_a_plan_that_can_never_decide_adds_no_seed(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=2, maximum_seeds=3)
    shown = dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert shown.code == 0 and "no seeds added: a lint blocks all verdicts" in shown.output
    assert seeds_on_record(file) == [[0, 1]]


@pytest.mark.parametrize("part", ["--arms", "--seeds"])
def test_a_part_of_the_study_cannot_be_run_until_decided(tmp_path: Path, dreamproof: Any, part: str) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)
    shown = dreamproof("run", file, "--until-decided", part, "low" if part == "--arms" else "0", "--plain")
    assert shown.code == ExitCode.BAD_INPUT and "cannot go with it" in shown.errors
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("edited", ["maximum_seeds: 4", "maximum_seeds: null"])
def test_a_maximum_that_is_lowered_later_drops_no_seed(tmp_path: Path, dreamproof: Any, edited: str) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)
    dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert len(open_study(file).study.seeds) == 6
    file.write_text(file.read_text().replace("maximum_seeds: 6", edited))
    dreamproof("run", file, "--no-check", "--no-report", "--plain")
    assert len(open_study(file).study.seeds) == 6 and "12/12 proven" in dreamproof("status", file).output


def test_the_price_of_a_batch_is_named_before_it_is_trained(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6, money={"price_per_gpu_hour": 3600.0, "currency": "CNY"})
    shown = dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert "continuing with 6 seeds per arm, 6 more cells in all arms, about ¥" in shown.output


def test_a_batch_that_the_budget_does_not_pay_for_is_refused_with_the_amounts(
    tmp_path: Path, dreamproof: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    money = {"price_per_gpu_hour": 3600.0, "currency": "CNY", "budget": 4000.0}
    file = declare(tmp_path, seeds=3, maximum_seeds=6, money=money)
    answer = NextBatch(False, 3, "budget", 700.0042, 700.0041)
    monkeypatch.setattr("dreamproof.report.next_seeds", lambda root: answer)
    shown = dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert shown.code == 0 and seeds_on_record(file) == [[0, 1, 2]]
    assert "the next batch takes about ¥700.0042; of the budget ¥700.0041 are left for it" in shown.output
    assert "¥328.00 are kept back for saving and reports" in shown.output
    assert f"Raise money.budget, then dreamproof run {file} --until-decided" in shown.output


def test_a_file_that_was_edited_during_a_run_is_not_copied_as_what_was_declared(
    tmp_path: Path, dreamproof: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)

    def edit_and_ask(root: Path) -> Any:
        file.write_text(file.read_text().replace("smallest_difference: 0.5", "smallest_difference: 7.0"))
        return next_seeds(root)

    monkeypatch.setattr("dreamproof.report.next_seeds", edit_and_ask)
    dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert len(seeds_on_record(file)) == 2
    assert dreamproof("verify", tmp_path / "results" / "small").code == 0


def test_batches_with_different_settings_in_one_arm_give_no_verdict(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)
    dreamproof("run", file, *QUICK)
    file.write_text(file.read_text().replace("level: 2", "level: 3"))
    shown = dreamproof("run", file, *QUICK, "--until-decided", "--accept-changes")
    assert shown.code == 0 and "continuing with 6 seeds" in shown.output
    analysis = analyse(load(tmp_path / "results" / "small"))
    assert "different_settings" in analysis.verdicts["high"].blocked_by
