"""A study with many conditions names few of them in a line, and counts the others."""

from pathlib import Path

import pytest
from tests.cli.conftest import Verb

from dreamproof.base.text import shown_conditions
from dreamproof.study import session
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.ledger.events import AttemptStarted
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.views.running import running_cells
from dreamproof.testing.small_study import declare

MANY = ["id", *(f"task{number}" for number in range(1, 30))]


def evaluating(place: Path, conditions: list[str], now: list[str]) -> Path:
    """A study of which one cell is being evaluated under some conditions."""
    file = declare(place, conditions=conditions)
    opened = open_study(file)
    ledger = Ledger(opened.folder.ledger)
    session.declare(opened, ledger)
    session.record(opened, ledger, AttemptStarted("a000001", "evaluate", ["low/0"], now, ["evaluate"], {}))
    ledger.close()
    return file


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (MANY[:3], "id, task1, task2"), (MANY[:4], "4 conditions")]
)
def test_up_to_three_conditions_are_named(names: list[str], text: str) -> None:
    assert ", ".join(shown_conditions(names)) == text


@pytest.mark.parametrize(("count", "phase"), [(2, "evaluate id,task1"), (30, "evaluate 30 conditions")])
def test_the_phase_of_an_evaluation_stays_short(tmp_path: Path, count: int, phase: str) -> None:
    opened = open_study(evaluating(tmp_path, MANY, MANY[:count]))
    assert [one.phase for one in running_cells(opened, read_moment(), True)] == [phase]


def test_why_groups_conditions_by_status(dreamproof: Verb, tmp_path: Path) -> None:
    shown = dreamproof("why", evaluating(tmp_path, MANY, MANY[:2]), "low/0").output
    lines = [line.removeprefix("evaluation  ") for line in shown.splitlines() if line.startswith("evaluation")]
    assert lines == ["id: running", "task1: running", "28 conditions: missing"]
