"""What `run` and `why` say of attempts without a recorded end, and which command they propose next."""

from pathlib import Path

import pytest
import typer
from tests.cli.conftest import Verb

from dreamproof.base.errors import ExitCode
from dreamproof.base.files import write_json
from dreamproof.cli.run import _print_end
from dreamproof.runs.layout import Cell
from dreamproof.runs.writer import RunWriter
from dreamproof.study import session
from dreamproof.study.ledger.events import AttemptStarted, CellStopped
from dreamproof.study.ledger.lease import Lease
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.supervisor import Ending
from dreamproof.testing.small_study import QUICK, declare

STARTED = AttemptStarted("a000001", "train", ["low/0"], [], ["train"], {"low/0": 0})


def test_why_proposes_no_second_supervisor(dreamproof: Verb, tmp_path: Path) -> None:
    file = declare(tmp_path)
    with session.open_ledger(opened := open_study(file)) as ledger:
        session.declare(opened, ledger)
        session.record(opened, ledger, CellStopped("high/0", "it cannot start", "bad_settings"))
        assert dreamproof("why", file, "low/0").output.endswith(f"next        dreamproof watch {file}\n")
        later = f"dreamproof watch {file}; when it has ended: dreamproof run {file} --retry-stopped\n"
        assert dreamproof("why", file, "high/0").output.endswith(later)
    assert dreamproof("why", file, "low/0").output.endswith(f"next        dreamproof run {file}\n")


def test_a_run_that_leaves_does_not_call_itself_the_supervisor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = declare(tmp_path)
    with session.open_ledger(opened := open_study(file)) as ledger:
        session.declare(opened, ledger)
        session.record(opened, ledger, STARTED)
    assert Lease(opened.folder.lease).path.read_text(), "the lease names the machine on which the attempt runs"
    with pytest.raises(typer.Exit):
        _print_end(opened, Ending.LEFT, file, reports=True)
    shown = capsys.readouterr().out
    assert "supervisor  none\n" in shown and shown.endswith(f"next        dreamproof run {file}\n")


def test_why_counts_what_a_killed_run_reached(dreamproof: Verb, tmp_path: Path) -> None:
    file = declare(tmp_path, agent_steps=60_000)
    with session.open_ledger(opened := open_study(file)) as ledger:
        session.declare(opened, ledger)
        session.record(opened, ledger, STARTED)
    opened.folder.lease.unlink()
    write_json(opened.folder.attempt("a000001").shim, {"shim": None, "child": None})
    RunWriter(opened.folder.run(Cell("low", 0))).beat(38_000, 9, "train")
    shown = dreamproof("why", file, "low/0").output
    assert shown.startswith("low/0: dead, 38,000 of 60,000 agent steps\n")


def test_plan_sends_to_why_where_all_that_is_missing_was_stopped(dreamproof: Verb, tmp_path: Path) -> None:
    file = declare(tmp_path, arms={"low": {"level": 1}}, seeds=1)
    with session.open_ledger(opened := open_study(file)) as ledger:
        session.declare(opened, ledger)
        session.record(opened, ledger, CellStopped("low/0", "it cannot start", "bad_settings"))
    assert dreamproof("plan", file).output.endswith(f"next        dreamproof why {file} low/0\n")


def test_a_complete_study_with_planned_seeds_left_says_how_to_add_them(dreamproof: Verb, tmp_path: Path) -> None:
    file = declare(tmp_path, seeds=3, maximum_seeds=6)
    dreamproof("run", file, *QUICK)
    more = f"dreamproof report {file}; where it is not decided: dreamproof run {file} --until-decided\n"
    for verb in ("plan", "status"):
        assert dreamproof(verb, file).output.endswith(f"next        {more}")


def test_a_reached_budget_is_explained_and_no_run_is_proposed_before_it_is_raised(
    dreamproof: Verb, tmp_path: Path
) -> None:
    file = declare(tmp_path, money={"price_per_gpu_hour": 3600.0, "currency": "CNY", "budget": 2.0})
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.BUDGET_REACHED
    assert "¥1.20 kept back for saving and reports" in shown.output
    proposed = f"next        raise money.budget in the study file, then dreamproof run {file}\n"
    assert proposed in shown.output and dreamproof("status", file).output.endswith(proposed)
    plan = dreamproof("plan", file).output
    assert "forbids     nothing can start: " in plan and plan.endswith(proposed)
    file.write_text(file.read_text().replace("budget: 2.0", "budget: 500.0"))
    again = dreamproof("plan", file).output
    assert "nothing can start" not in again and again.endswith(f"next        dreamproof run {file}\n")
    assert dreamproof("status", file).output.endswith(f"next        dreamproof run {file}\n")
