"""Clocks that are set, slewed or stopped: what is marked, and what counts as time."""

import time
from pathlib import Path

import pytest

from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import (
    CLOCK_SET,
    SUSPENDED,
    Jump,
    Life,
    Moment,
    Timeline,
    jump_text,
    jumps_between,
    machine_seconds,
    moment_fields,
    moment_of,
    read_moment,
)
from dreamproof.study.ledger.events import StopRequested
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.process.processes import boot_id

BEFORE = Moment(1000.0, "b1", 50.0, 0.0)


def test_this_machine_says_its_boot_and_a_clock_that_only_grows() -> None:
    first, second = read_moment(), read_moment()
    assert first.boot == boot_id()[:8]
    assert first.monotonic_seconds is not None and second.monotonic_seconds is not None
    assert first.monotonic_seconds <= second.monotonic_seconds <= time.monotonic()


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Moment(1060.0, "b1", 110.0), []),
        (Moment(87_460.0, "b1", 110.0), [Jump(CLOCK_SET, 86_400.0)]),
        (Moment(-85_340.0, "b1", 110.0), [Jump(CLOCK_SET, -86_400.0)]),
        (Moment(1061.5, "b1", 110.0), []),  # too small to separate from a slewed clock
        (Moment(1000.0 + 3600 * 24.0 + 40, "b1", 50.0 + 3600 * 24.0), []),  # slewed by NTP for a day
        (Moment(8260.0, "b1", 110.0, 7200.0), [Jump(SUSPENDED, 7200.0)]),
        (Moment(8260.0 - 600, "b1", 110.0, 7200.0), [Jump(SUSPENDED, 7200.0), Jump(CLOCK_SET, -600.0)]),
        (Moment(500_000.0, "b2", 3.0), []),  # the machine may have been off for so long
        (Moment(900.0, "b2", 3.0), [Jump(CLOCK_SET, -100.0)]),
        (Moment(900.0), [Jump(CLOCK_SET, -100.0)]),
    ],
)
def test_what_happened_to_the_clocks_between_two_events(after: Moment, expected: list[Jump]) -> None:
    assert jumps_between(BEFORE, after) == expected


def test_a_jump_is_described() -> None:
    assert jump_text(SUSPENDED, 7200) == "the machine was suspended for 2 h 0 min"
    assert jump_text(CLOCK_SET, -86_400) == "the clock was set back by 1 d 0 h"


def test_other_machines_continue_while_this_one_is_suspended() -> None:
    assert machine_seconds(BEFORE, Moment(9e9, "b1", 60.0, 100.0)) == 110.0
    assert machine_seconds(BEFORE, Moment(1020.0, "b2", 1.0)) == 20.0
    assert machine_seconds(BEFORE, Moment(20.0, "b2", 1.0)) == 0.0


def test_a_moment_survives_the_ledger() -> None:
    for moment in (Moment(5.5), Moment(5.5, "b", 2.25), Moment(5.5, "b", 2.25, 7.0)):
        assert moment_of(moment_fields(moment)) == moment


def test_rows_of_an_older_program_and_of_this_one_share_the_line_of_their_boot() -> None:
    line = Timeline()
    line.take(Moment(1000.0, "b"))
    line.take(Moment(1010.0, "b", 60.0))
    assert line.seconds(Moment(1000.0, "b")) == 1000.0
    assert line.seconds(Moment(90_000.0, "b", 70.0)) == 1020.0
    assert line.reach("b", Moment(0.0, "other", 5.0)) == 1010.0
    assert line.reach("b", Moment(0.0, "b", 75.0)) == 1025.0


def test_a_files_time_shows_when_in_a_life_it_was_written() -> None:
    assert Life(1000.0, 1100.0, 100.0).seconds_at(1040.0) == [40.0]
    assert Life(1000.0, 1100.0, 100.0).seconds_at(999.0) == []
    forward = Life(1000.0, 1100.0 + 86_400, 100.0)
    assert forward.seconds_at(1040.0) == [40.0]
    assert forward.seconds_at(1040.0 + 86_400) == [40.0]
    assert forward.seconds_at(50_000.0) == []
    assert Life(1000.0, 1110.0, 100.0).seconds_at(1040.0) == [40.0, 30.0]


def test_the_ledger_marks_a_clock_that_was_set_before_the_next_event(tmp_path: Path) -> None:
    clock = iter([Moment(1000.0, "b", 50.0), Moment(1000.0 + 86_410, "b", 60.0), Moment(87_411.0, "b", 61.0)])
    ledger = Ledger(tmp_path / "ledger.jsonl", lambda: next(clock))
    for who in ("a", "b", "c"):
        assert ledger.append(StopRequested(who))["by"] == who
    rows = Ledger(tmp_path / "ledger.jsonl").rows
    assert [row["event"] for row in rows] == ["stop_requested", "clock_jumped", "stop_requested", "stop_requested"]
    assert (rows[1]["kind"], rows[1]["seconds"], rows[1]["boot"], rows[1]["m"]) == (CLOCK_SET, 86_400.0, "b", 60.0)
    [jump] = StudyState.replay(rows).clock_jumps
    assert (jump.kind, jump.seconds) == (CLOCK_SET, 86_400.0)


def test_a_clock_that_was_set_between_two_supervisors_is_marked_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path, lambda: Moment(1000.0, "b", 50.0)).append(StopRequested("a"))
    Ledger(path, lambda: Moment(5000.0, "c", 1.0)).append(StopRequested("a"))
    Ledger(path, lambda: Moment(100.0, "b", 70.0)).append(StopRequested("a"))
    assert [(row["kind"], row["seconds"]) for row in Ledger(path).rows if row["event"] == "clock_jumped"] == [
        (CLOCK_SET, -920.0)
    ]
