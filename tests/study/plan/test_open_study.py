"""A study is found by its file or its folder, wherever both were moved together."""

from pathlib import Path

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import Cell
from dreamproof.study import session
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.events import TrainProven
from dreamproof.study.ledger.outside_events import Imported
from dreamproof.study.plan.open_study import OpenStudy, check_place, open_study
from dreamproof.testing.small_study import declare


def declared(folder: Path) -> OpenStudy:
    opened = open_study(declare(folder))
    session.declare(opened, Ledger(opened.folder.ledger))
    return opened


def test_results_lie_beside_the_file_or_where_it_says(tmp_path: Path) -> None:
    assert open_study(declare(tmp_path)).folder.root == tmp_path / "results" / "small"
    assert open_study(declare(tmp_path, folder="../elsewhere")).folder.root == tmp_path.parent / "elsewhere"


def test_the_folder_knows_its_file_and_keeps_the_files_own_text(tmp_path: Path) -> None:
    opened = declared(tmp_path)
    by_folder = open_study(opened.folder.root)
    assert by_folder.file == opened.file
    assert by_folder.study == opened.study
    assert opened.folder.declaration.read_bytes() == opened.file.read_bytes()


def test_file_and_folder_may_be_moved_together(tmp_path: Path) -> None:
    opened = declared(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    moved = open_study(tmp_path / "there" / "results" / "small")
    assert moved.file == tmp_path / "there" / opened.file.name
    check_place(moved)


def test_a_folder_that_lost_its_file_may_be_read_but_runs_nothing(tmp_path: Path) -> None:
    opened = declared(tmp_path)
    opened.file.unlink()
    alone = open_study(opened.folder.root)
    assert len(alone.state.cells) == 4
    with pytest.raises(BadInput, match="its study file is missing at"):
        check_place(alone)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_what_is_no_study_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput):
        open_study(tmp_path / name)


def test_a_run_made_outside_is_read_where_it_lies(tmp_path: Path) -> None:
    opened = declared(tmp_path)
    with session.open_ledger(opened) as ledger:
        proof = TrainProven("low/0", 20, 9, "a" * 64, "model.pt")
        session.record(opened, ledger, Imported("low/0", "../../old/run", "jsonl"), proof)
    assert opened.run(Cell("low", 0)).root == tmp_path / "old" / "run"
    assert opened.adapter(Cell("low", 0)).name == "jsonl"
    assert opened.run(Cell("low", 1)).root == opened.folder.runs / "low-seed1"
