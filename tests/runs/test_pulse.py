"""Heartbeats: the thread keeps them fresh, only the loop counts a beat."""

from pathlib import Path

import pytest

from dreamproof.runs import pulse
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_heartbeat
from dreamproof.runs.records import Heartbeat
from dreamproof.runs.writer import RunWriter
from dreamproof.testing.waiting import wait_for


def seen(run: RunFolder) -> Heartbeat:
    """The heartbeat, which is there."""
    found = read_heartbeat(run)
    assert found is not None
    return found


def test_a_loop_that_hangs_has_a_fresh_heartbeat_that_does_not_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "BEAT_SECONDS", 0.02)
    run = RunFolder(tmp_path)
    with pulse.Pulse([RunWriter(run)]) as kept:
        kept.set("evaluate", 10, 5)
        first = seen(run)
        wait_for(lambda: seen(run).unix_seconds > first.unix_seconds)
        assert seen(run).beat == first.beat
        kept.set("evaluate", 10, 5)
        assert seen(run).beat == first.beat + 1


def test_a_compile_shows_as_a_phase_of_its_own_and_counts_as_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "BEAT_SECONDS", 0.02)
    run = RunFolder(tmp_path)
    with pulse.Pulse([RunWriter(run)]) as kept:
        kept.set("evaluate", 10, 5)
        kept.set_compiling(True)
        wait_for(lambda: seen(run).phase == "compile")
        kept.set_compiling(False)
        kept.count_compile()
        wait_for(lambda: seen(run).compiles == 1)
        assert seen(run).phase == "evaluate"


def test_a_run_folder_that_was_moved_is_not_made_anew(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "before")
    writer = RunWriter(run)
    writer.beat(1, 1, "train")
    run.root.rename(tmp_path / "after")
    with pytest.raises(FileNotFoundError, match="moved or removed"):
        writer.beat(2, 2, "train")
    assert not run.root.exists()
