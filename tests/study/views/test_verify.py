"""`verify` names the first thing that is broken."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from dreamproof.base.errors import BrokenEvidence
from dreamproof.base.files import read_json, write_json
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import EvaluationRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study import session
from dreamproof.study.attempts.settle import prove_evaluations, prove_training
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.views.verify import verify
from dreamproof.testing.small_study import declare

CELL = Cell("low", 0)


@pytest.fixture
def proven(tmp_path: Path) -> OpenStudy:
    """A study with one trained and evaluated cell."""
    opened = open_study(declare(tmp_path))
    writer = RunWriter(opened.folder.run(CELL))
    facts = {"agent_steps": 20, "gradient_steps": 9, "parameter_hash": "d" * 64, "finite": True, "task": "counting"}
    writer.save(lambda folder: folder.joinpath("weights").write_bytes(b"1234") and None, facts)
    kept = {key: facts[key] for key in ("agent_steps", "gradient_steps", "parameter_hash")}
    final = {**kept, "episodes": {"return": [1.0, 2.0, 3.0]}}
    record = {"condition": "id", "kind": "proxy", "task": "counting", "checkpoints": {"final": final}}
    writer.write_evaluation(EvaluationRecord.model_validate(record))
    with session.open_ledger(opened) as ledger:
        session.declare(opened, ledger)
        trained = prove_training(opened, CELL, None, None)
        assert not isinstance(trained, str)
        session.record(opened, ledger, trained)
        session.record(opened, ledger, *prove_evaluations(opened, CELL, ["id"], None)[0])
    return open_study(opened.file)


def test_a_whole_study_has_no_fault(proven: OpenStudy) -> None:
    found = verify(proven)
    assert (found.events, found.train_proofs, found.eval_proofs, found.faults) == (3, 1, 1, [])


def test_cells_that_started_with_different_world_models_are_named(proven: OpenStudy) -> None:
    other = Cell("low", 1)
    shutil.copytree(proven.run(CELL).root, proven.run(other).root)
    for cell, source in ((CELL, "one"), (other, "two")):
        place = proven.run(cell).checkpoint(20).record
        write_json(place, read_json(place) | {"sources": {"runs/before": source}})
    proven.state.cells[other].proof = proven.state.cells[CELL].proof
    expected = "runs/before was not the same when low/0 and low/1 started with it (its hash differs)"
    assert expected in verify(proven, check_content=False).faults


def test_a_changed_weight_file_is_named(proven: OpenStudy) -> None:
    (proven.run(CELL).checkpoint(20).root / "weights").write_bytes(b"1235")
    [fault] = verify(proven).faults
    assert fault.startswith("low/0: checkpoint step-000000000020: file weights is not what was saved")
    assert verify(proven, check_content=False).faults == []


def test_a_checkpoint_with_other_parameters_is_named(proven: OpenStudy) -> None:
    record = proven.run(CELL).checkpoint(20).record
    record.write_text(record.read_text().replace("d" * 64, "e" * 64))
    assert "is not the proven one" in verify(proven).faults[0]


def test_a_checkpoint_that_is_gone_is_named(proven: OpenStudy) -> None:
    proven.run(CELL).checkpoints.rename(proven.folder.root / "away")
    assert verify(proven).faults[0] == "low/0: checkpoint step-000000000020 is gone"


def test_an_evaluation_with_fewer_episodes_is_named(proven: OpenStudy) -> None:
    path = proven.run(CELL).evaluation("id")
    value = json.loads(path.read_text())
    value["checkpoints"]["final"]["episodes"]["return"].pop()
    path.write_text(json.dumps(value))
    assert verify(proven).faults == ["low/0 under id: 2 of 3 episodes"]


def test_lines_taken_off_the_end_of_the_ledger_are_betrayed_by_the_attempts_on_disk(proven: OpenStudy) -> None:
    folder = proven.folder.attempt("a000001")
    folder.root.mkdir(parents=True)
    event = {"event": "attempt_started", "attempt": "a000001", "work": "train", "cells": ["low/1"], "conditions": []}
    event |= {"command": ["x"], "from_agent_steps": {"low/1": 0}}
    folder.order.write_text(json.dumps({"event": event}))
    assert "attempt a000001 is on disk but not in the ledger" in verify(proven).faults[0]


def test_a_ledger_that_was_edited_is_refused_before_anything_is_written(proven: OpenStudy) -> None:
    content = proven.folder.ledger.read_bytes()
    proven.folder.ledger.write_bytes(content.replace(b'"gradient_steps":9', b'"gradient_steps":8'))
    with pytest.raises(BrokenEvidence, match="line 2 does not match its own hash"):
        Ledger(proven.folder.ledger)


def test_a_ledger_cut_after_its_last_start_is_not_whole(proven: OpenStudy) -> None:
    """Bug 13: chain and files agree with a shorter ledger; only the head file shows that it was longer."""
    lines = proven.folder.ledger.read_bytes().splitlines(keepends=True)
    proven.folder.ledger.write_bytes(b"".join(lines[:-1]))
    [fault] = verify(open_study(proven.file)).faults
    assert fault.endswith("it ends after event 2, although 3 were recorded: its end was lost or cut off")


def test_a_missing_head_is_recorded_and_breaks_nothing(proven: OpenStudy) -> None:
    proven.folder.ledger_head.unlink()
    found = verify(open_study(proven.file))
    assert found.faults == [] and "ledger.head: is missing" in found.notes[0]


def test_an_unreadable_checkpoint_is_a_fault_with_its_reason(
    proven: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, real = proven.run(CELL).checkpoint(20).root / "weights", os.open

    def fail(path: object, *more: int, **others: int) -> int:
        if str(path) == str(bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", fail)
    assert "file weights cannot be read (Input/output error)" in verify(proven).faults[0]
