"""`run` with real processes while the clock is set: nothing is billed for it, and checkpoints have their time."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Verb

from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.testing.small_study import QUICK, declare

DAY = 86_400.0
PRICE = {"price_per_gpu_hour": 3600.0, "budget": 4000.0}


def rows_of(file: Path, event: str) -> list[dict[str, Any]]:
    ledger = StudyFolder(file.parent / "results" / file.stem).ledger
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [row for row in rows if row["event"] == event]


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_is_set_during_a_run_is_marked_and_not_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dreamproof: Verb, jump: float
) -> None:
    file = declare(tmp_path, conditions=[], money=PRICE)
    real, began = time.time, time.monotonic()
    beats = tmp_path / "results" / "small" / "runs"
    monkeypatch.setattr(time, "time", lambda: real() + (jump if any(beats.glob("*/heartbeat.json")) else 0.0))
    assert dreamproof("run", file, *QUICK, "--seeds", "0").code == 0
    assert dreamproof("run", file, *QUICK).code == 0  # the money for the rest is still there
    [marked] = rows_of(file, "clock_jumped")
    assert marked["seconds"] == pytest.approx(jump, abs=0.5)
    costs = json.loads(dreamproof("cost", file, "--json").output)
    assert costs["total_ms"] <= 4 * 1000 * (time.monotonic() - began)
    assert costs["total_ms"] == costs["useful_ms"] + costs["wasted_ms"] + costs["idle_ms"]
    assert "not billed" in dreamproof("cost", file).output
    assert "not billed" in dreamproof("status", file).output
    assert dreamproof("report", file).code == 0
    reports = StudyFolder(tmp_path / "results" / "small").reports
    assert "the clock was changed 1 times" in (reports / "money.md").read_text()
    assert "clock jump, not billed" in (reports / "record.md").read_text()


def test_time_after_the_last_checkpoint_is_wasted_by_the_clock_and_not_by_steps(
    tmp_path: Path, dreamproof: Verb
) -> None:
    file = declare(tmp_path, arms={"low": {}}, seeds=1, conditions=[], money=PRICE)
    run = StudyFolder(tmp_path / "results" / "small").run(Cell("low", 0)).root
    run.mkdir(parents=True)
    run.joinpath("fault.json").write_text(json.dumps({"at": 12, "kind": "exception"}))
    assert dreamproof("run", file, *QUICK).code == 0
    first = rows_of(file, "attempt_ended")[0]
    kept = first["kept_wall_seconds"]["low/0"]
    assert (first["kept_agent_steps"], first["reached_agent_steps"]) == ({"low/0": 10}, {"low/0": 12})
    written = run.joinpath("checkpoints", "step-000000000010", "record.json").stat().st_mtime
    assert kept == pytest.approx(written - first["exit"]["started_unix_seconds"], abs=0.002)
    costs = json.loads(dreamproof("cost", file, "--json").output)
    assert costs["wasted_ms"] == pytest.approx(1000 * (first["wall_seconds"] - kept), abs=2)
