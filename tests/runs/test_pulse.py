"""Heartbeats: the thread keeps them fresh, only the loop counts a beat."""

import time
from pathlib import Path

import pytest

from dreamproof.runs import pulse
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_heartbeat
from dreamproof.runs.records import Heartbeat
from dreamproof.runs.writer import RunWriter


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
        deadline = time.monotonic() + 10.0
        while seen(run).unix_seconds <= first.unix_seconds:
            assert time.monotonic() < deadline, "the heartbeat was never written anew"
            time.sleep(0.01)
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
        deadline = time.monotonic() + 60.0
        while seen(run).phase != "compile":
            assert time.monotonic() < deadline, "the compile was never shown"
            time.sleep(0.01)
        kept.set_compiling(False)
        kept.count_compile()
        while seen(run).compiles != 1:
            assert time.monotonic() < deadline, "the end of the compile was never shown"
            time.sleep(0.01)
        assert seen(run).phase == "evaluate"


def test_a_run_folder_that_was_moved_is_not_made_anew(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "before")
    writer = RunWriter(run)
    writer.beat(1, 1, "train")
    run.root.rename(tmp_path / "after")
    with pytest.raises(FileNotFoundError, match="moved or removed"):
        writer.beat(2, 2, "train")
    assert not run.root.exists()
