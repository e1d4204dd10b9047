"""A followed study shows what happens on its disk, not only in its ledger."""

from pathlib import Path

import pytest

from dreamproof.testing.fuzz import record_study
from dreamproof.web import followed
from dreamproof.web.followed import FollowedStudy
from dreamproof.web.payloads import overview_of


def test_files_that_vanish_or_cannot_be_read_are_shown_without_a_new_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "DISK_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(followed, "DISK_LOOK_SHARE", 1.0)
    root = record_study(tmp_path)
    study = FollowedStudy(root, "study")
    before = overview_of(study)
    evaluation = root / "runs" / "low-seed0" / "evaluations" / "id.json"
    content = evaluation.read_bytes()
    evaluation.unlink()
    assert study.refresh()
    assert overview_of(study).evaluate["proven"] == before.evaluate["proven"] - 1
    evaluation.mkdir()
    assert study.refresh()
    assert overview_of(study).quarantined["low/0"].startswith("runs/low-seed0/evaluations/id.json is a folder")
    evaluation.rmdir()
    evaluation.write_bytes(content)
    assert study.refresh()
    after = overview_of(study)
    assert (after.evaluate, after.train, after.quarantined) == (before.evaluate, before.train, {})
