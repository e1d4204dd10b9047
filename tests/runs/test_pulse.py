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
