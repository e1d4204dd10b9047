"""How long an attempt lived whose shim left no exit record, while the clock was set: never longer than time passed."""

import os
import time
from pathlib import Path

import pytest

from dreamproof.base.files import write_json
from dreamproof.base.lines import append_rows
from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.runs.writer import RunWriter
from dreamproof.study import session
from dreamproof.study.attempts import settle
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.ledger.events import AttemptEnded, AttemptStarted
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.testing.small_study import declare

DAY = 86_400.0
LOST = Sighting(Presence.LOST)


def begun(folder: Path, seconds_ago: float, boot: str | None = None) -> tuple[OpenStudy, AttemptFolder]:
    """A study with one attempt that began so long ago, before the clock was touched."""
    opened = open_study(declare(folder, conditions=[]))
    now = read_moment()
    assert now.monotonic_seconds is not None
    past = now._replace(
        unix_seconds=now.unix_seconds - seconds_ago, monotonic_seconds=now.monotonic_seconds - seconds_ago
    )
    ledger = Ledger(opened.folder.ledger, lambda: past._replace(boot=boot or past.boot))
    session.declare(opened, ledger)
    session.record(opened, ledger, AttemptStarted("a000001", "train", ["low/0"], [], ["x"], {"low/0": 0}))
    attempt = opened.folder.attempt("a000001")
    write_json(attempt.order, {})
    attempt.output.write_text("step 1\n")
    return opened, attempt


def end_of(opened: OpenStudy) -> AttemptEnded:
    [ended] = [
        event
        for event in settle.settle(opened, opened.state.attempts["a000001"], LOST)
        if event.name == "attempt_ended"
    ]
    assert isinstance(ended, AttemptEnded)
    return ended


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_file_written_after_the_clock_was_set_is_dated_by_the_time_that_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    opened, attempt = begun(tmp_path, 100.0)
    written = time.time() - 30.0 + jump
    os.utime(attempt.output, (written, written))
    set_clock(monkeypatch, jump)
    assert end_of(opened).wall_seconds == pytest.approx(70.0, abs=1.0)


def test_a_file_written_before_the_clock_was_set_keeps_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, attempt = begun(tmp_path, 100.0)
    written = time.time() - 60.0
    os.utime(attempt.output, (written, written))
    set_clock(monkeypatch, DAY)
    assert end_of(opened).wall_seconds == pytest.approx(40.0, abs=1.0)


def test_after_a_reboot_the_samples_of_the_shim_bound_what_files_say(tmp_path: Path) -> None:
    opened, attempt = begun(tmp_path, 2 * DAY, boot="another")
    append_rows(attempt.memory, [{"seconds": 50.0, "bytes": 1}, {"seconds": 60.0, "bytes": 1}, {"bytes": 2}])
    late, soon = time.time(), time.time() - 2 * DAY + 65.0
    os.utime(attempt.memory, (soon, soon))
    os.utime(attempt.output, (late, late))  # written after the clock was set forward by two days
    assert end_of(opened).wall_seconds == pytest.approx(65.0, abs=1.0)


def test_the_checkpoint_of_an_attempt_without_exit_record_is_dated_too(tmp_path: Path) -> None:
    opened, _ = begun(tmp_path, 100.0)
    run = opened.folder.run(Cell("low", 0))
    facts = {"agent_steps": 5, "gradient_steps": 5, "parameter_hash": "0" * 64, "finite": True, "task": "counting"}
    RunWriter(run).save(lambda place: place.joinpath("w").write_text("x") and None, facts)
    [folder] = run.checkpoint_folders()
    written = time.time() - 45.0
    os.utime(folder.record, (written, written))
    ended = end_of(opened)
    assert ended.kept_agent_steps == {"low/0": 5}
    assert ended.kept_wall_seconds is not None and ended.kept_wall_seconds["low/0"] == pytest.approx(55.0, abs=1.0)
