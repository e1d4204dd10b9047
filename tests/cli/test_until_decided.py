"""`run --until-decided` adds seeds in planned batches, stops at the declared maximum, and the added seeds stay."""

import json
from pathlib import Path
from typing import Any

from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import declare


def seeds_on_record(file: Path) -> list[list[int]]:
    lines = (file.parent / "results" / file.stem / "ledger.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["declaration"]["seeds"] for row in rows if "declaration" in row]


def test_seeds_are_added_up_to_the_declared_maximum(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=2, maximum_seeds=4)
    shown = dreamproof("run", file, "--until-decided", "--no-check", "--no-report", "--plain")
    assert shown.code == 0, shown.errors
    assert seeds_on_record(file) == [[0, 1], [0, 1, 2, 3]]
    assert "not decided: continuing with 4 seeds per arm" in shown.output
    assert "no seeds added: maximum_seeds is reached" in shown.output


def test_added_seeds_belong_to_the_study_from_then_on(tmp_path: Path, dreamproof: Any) -> None:
    file = declare(tmp_path, seeds=2, maximum_seeds=4)
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
