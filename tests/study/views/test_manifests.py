"""The two tables beside the ledger, and how often they are rewritten."""

from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.files import write_json
from dreamproof.cli.status import overview_text
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.events import AttemptStarted, CellStopped, EvalProven, TrainProven
from dreamproof.study.ledger.outside_events import Unproven
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.views import manifests, running
from dreamproof.study.views.manifests import ManifestWriter, eval_rows, train_rows
from dreamproof.study.views.overview import ENDED_ALONE, make_overview, seeds_text
from dreamproof.testing.small_study import declare

HASH = "c" * 64


def opened_with(folder: Path, *events: Any) -> OpenStudy:
    opened = open_study(declare(folder, seeds=3, money={"price_per_gpu_hour": 10.0}))
    for number, event in enumerate(events):
        opened.state.apply({"n": number, "t": 100.0, **event.row()})
    return opened


EVENTS = (
    TrainProven("low/0", 20, 11, HASH, "step-000000000020"),
    EvalProven("low/0", "id", 3, HASH),
    AttemptStarted("a000001", "train", ["low/1"], [], ["x"], {"low/1": 0}),
    CellStopped("low/2", "failed 2 times with the same cause: bug", "bug"),
    Unproven("high/0", "../old", "no checkpoint file"),
)


def test_every_declared_cell_has_a_row_with_one_status(tmp_path: Path) -> None:
    opened = opened_with(tmp_path, *EVENTS)
    arguments = {f"{row['arm']}/{row['seed']}": row["status"] for row in train_rows(opened.state, opened.study)}
    assert arguments == {
        "low/0": "proven",
        "low/1": "running",
        "low/2": "stopped",
        "high/0": "unproven",
        "high/1": "missing",
        "high/2": "missing",
    }
    assert [row["status"] for row in eval_rows(opened.state)] == ["proven"] + ["missing"] * 5


def test_the_tables_are_written_with_a_header_and_dashes_for_what_is_not_known(tmp_path: Path) -> None:
    opened = opened_with(tmp_path, *EVENTS)
    ManifestWriter(opened).write(opened.state)
    header, first, second, *_ = opened.folder.train_status.read_text().splitlines()
    assert header.split("\t")[:5] == ["arm", "seed", "status", "agent_steps", "gradient_steps"]
    assert first.split("\t") == [
        "low", "0", "proven", "20", "11", "0", "-", "runs/low-seed0", HASH, "0.0", "0.0", "0.0", "20", "0",
        "0", "-",
    ]  # fmt: skip
    assert second.split("\t")[:6] == ["low", "1", "running", "0", "-", "1"]


def test_they_are_not_rewritten_for_every_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(manifests.time, "monotonic", lambda: now[0])
    opened = opened_with(tmp_path)
    writer = ManifestWriter(opened)
    writer.write(opened.state)
    opened.folder.train_status.unlink()
    writer.dirty = True
    now[0] += 1.0
    writer.write(opened.state)
    assert not opened.folder.train_status.exists()
    now[0] += 1.5
    writer.write(opened.state)
    assert opened.folder.train_status.exists()


def test_nothing_is_written_while_nothing_changed(tmp_path: Path) -> None:
    opened = opened_with(tmp_path)
    writer = ManifestWriter(opened)
    writer.write(opened.state)
    opened.folder.train_status.unlink()
    writer.write(opened.state)
    assert not opened.folder.train_status.exists()
    writer.write(opened.state, force=True)
    assert opened.folder.train_status.exists()


def test_a_full_disk_only_delays_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    opened = opened_with(tmp_path)
    writer = ManifestWriter(opened)
    with monkeypatch.context() as patched:
        patched.setattr(manifests, "write_text", full)
        writer.write(opened.state)
    assert writer.dirty
    writer.write(opened.state, force=True)
    assert opened.folder.train_status.exists()


def test_the_overview_names_what_runs_how_fast_and_what_it_costs(tmp_path: Path) -> None:
    opened = opened_with(tmp_path, *EVENTS)
    run = opened.folder.run(Cell("low", 1))
    run.root.mkdir(parents=True)
    run.heartbeat.write_text('{"agent_steps": 5, "gradient_steps": 2, "phase": "train"}')
    found = make_overview(opened, now=Moment(110.0))
    [running] = found.running
    assert (running.cell, running.agent_steps, running.agent_steps_per_second) == ("low/1", 5, 0.5)
    assert running.seconds_left == 30.0
    assert running.money == pytest.approx(10.0 * 10 / 3600)
    assert found.missing_train == {"low": [1, 2], "high": [0, 1, 2]}
    assert found.stopped == {"low/2": "failed 2 times with the same cause: bug"}
    assert found.unproven == {"high/0": "no checkpoint file"}
    assert "attempts run without a supervisor; `run` adopts them" in found.notices


def test_what_nobody_watches_and_is_gone_counts_as_dead_and_not_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opened_with(tmp_path, *EVENTS)
    alive = make_overview(opened, now=Moment(110.0))
    monkeypatch.setattr(running, "is_gone", lambda attempt: True)
    dead = make_overview(opened, now=Moment(110.0))
    assert (alive.train["running"], dead.train["dead"]) == (1, 1)
    assert alive.train["dead"] == 0
    assert dead.train["running"] == 0
    assert [(cell.agent_steps_per_second, cell.seconds_left) for cell in dead.running] == [(None, None)]
    rows = {line.split()[0]: line.split()[1:] for line in overview_text(opened, dead, "s.yaml").splitlines() if line}
    assert rows["low"][1] == "x"


@pytest.mark.parametrize(
    ("record", "liveness", "status"),
    [
        ({"exit_code": 0}, "finished", "waiting"),
        ({"exit_code": 0, "asked_to_stop": "stop"}, "dead", "dead"),
        ({"exit_code": 1}, "dead", "dead"),
        ({"signal": 9}, "dead", "dead"),
    ],
)
def test_what_finished_while_nobody_supervised_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], liveness: str, status: str
) -> None:
    opened = opened_with(tmp_path, *EVENTS)
    monkeypatch.setattr(running, "is_gone", lambda attempt: True)
    write_json(opened.folder.attempt("a000001").exit, {"wall_seconds": 3.0, **record})
    found = make_overview(opened, now=Moment(110.0))
    assert [one.liveness for one in found.running] == [liveness]
    assert (found.train[status], found.train["running"]) == (1, 0)
    assert ENDED_ALONE in found.notices


@pytest.mark.parametrize(("seeds", "text"), [([0, 1, 2, 5], "0-2,5"), ([7], "7"), ([3, 1, 2], "1-3"), ([0, 2], "0,2")])
def test_seeds_are_written_as_ranges(seeds: list[int], text: str) -> None:
    assert seeds_text(seeds) == text


def test_the_list_of_the_status_does_not_call_running_cells_missing(tmp_path: Path) -> None:
    opened = opened_with(tmp_path, *EVENTS)
    text = overview_text(opened, make_overview(opened, now=Moment(110.0)), "s.yaml")
    assert "1/6 proven, 1 running, 1 stopped, 1 unproven, 2 missing" in text
    assert "not proven  train low: seeds 1-2\n" in text and "\nmissing " not in text
