"""Files of a finished study that are gone or cannot be read: every verb says so, and what can be made again is."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.runs.layout import Cell
from dreamproof.study.plan.on_disk import DiskFaults, disk_faults
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import QUICK, declare_printing

CELL, RUN = "low/0", "runs/low-seed0"


pytestmark = pytest.mark.usefixtures("no_patience")


def results(file: Path) -> Path:
    return file.parent / "results" / "small"


def status(dreamproof: Callable[..., Any], file: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(dreamproof("status", file, "--json").output)
    return shown


def as_folder(path: Path) -> None:
    path.mkdir()


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_loop(path: Path) -> None:
    path.symlink_to(path.name)


def as_dead_link(path: Path) -> None:
    path.symlink_to("/mnt/not_mounted/file")


def test_an_evaluation_that_is_gone_is_missing_and_made_again(finished: Path, dreamproof: Callable[..., Any]) -> None:
    lost = results(finished) / RUN / "evaluations" / "id.json"
    before = lost.read_bytes()
    lost.unlink()
    seen = status(dreamproof, finished)
    assert (seen["train"]["proven"], seen["evaluate"]["proven"]) == (4, 3)
    assert (seen["missing_evaluate"], seen["complete"]) == ({"id": {"low": [0]}}, False)
    assert "nothing is left to do" not in dreamproof("money", finished).output
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.OK
    assert f"{CELL}: proof lost: {lost} is gone" in shown.output
    made, old = json.loads(lost.read_bytes()), json.loads(before)
    assert made["checkpoints"]["final"]["episodes"] == old["checkpoints"]["final"]["episodes"]
    assert status(dreamproof, finished)["complete"]


@pytest.mark.parametrize("name", ["record.json", ""])
def test_a_lost_proof_is_not_counted_and_retrained_only_if_asked(
    finished: Path, dreamproof: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    checkpoint = max((results(finished) / RUN / "checkpoints").iterdir())
    (checkpoint / name).rename(tmp_path / "away")
    place = f"{RUN}/checkpoints/{checkpoint.name}" + (f"/{name}" if name else "")
    seen = status(dreamproof, finished)
    assert (seen["train"]["proven"], seen["train"]["quarantined"], seen["complete"]) == (3, 1, False)
    assert seen["quarantined"] == {CELL: f"{place} is gone"}
    assert "3 of 4 cells trained" in dreamproof("money", finished).output
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.BROKEN_EVIDENCE
    assert "everything is proven" not in shown.output and f"{place} is gone" in shown.output
    assert "--retrain-lost" in shown.errors
    shown = dreamproof("run", finished, *QUICK, "--retrain-lost")
    assert shown.code == ExitCode.OK, shown.output + shown.errors
    assert status(dreamproof, finished)["complete"] and dreamproof("verify", finished).code == ExitCode.OK


@pytest.mark.parametrize("content", [b"{}", b"", b"\x00\xff" * 40])
def test_an_evaluation_that_is_not_the_proven_one_is_made_again(
    finished: Path, dreamproof: Callable[..., Any], content: bytes
) -> None:
    changed = results(finished) / RUN / "evaluations" / "id.json"
    changed.write_bytes(content)
    assert status(dreamproof, finished)["missing_evaluate"] == {"id": {"low": [0]}}
    assert json.loads(dreamproof("plan", finished, "--json").output)["gap_eval_cells"] == 1
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert "checkpoints" in json.loads(changed.read_bytes())
    assert dreamproof("verify", finished).code == ExitCode.OK and status(dreamproof, finished)["complete"]


def test_other_results_are_put_aside_and_do_not_become_a_proof(finished: Path, dreamproof: Callable[..., Any]) -> None:
    path = results(finished) / RUN / "evaluations" / "id.json"
    true = json.loads(path.read_bytes())
    false = json.loads(path.read_bytes())
    false["checkpoints"]["final"]["episodes"]["return"] = [1000.5, 1000.5, 1000.5]
    path.write_text(json.dumps(false))
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.OK and "moved to id.json.changed" in shown.output
    made = json.loads(path.read_bytes())
    assert made["checkpoints"]["final"]["episodes"] == true["checkpoints"]["final"]["episodes"]
    assert json.loads(path.with_name("id.json.changed").read_bytes()) == false
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_an_evaluation_of_a_ledger_without_sizes_is_missed_too(finished: Path, dreamproof: Callable[..., Any]) -> None:
    opened = open_study(finished)
    proofs = {key: replace(known.proof, file_bytes=None) for key, known in opened.state.eval_cells.items()}
    for key, proof in proofs.items():
        opened.state.eval_cells[key].proof = proof
    assert disk_faults(opened) == DiskFaults()
    (results(finished) / RUN / "evaluations" / "id.json").unlink()
    assert list(disk_faults(opened).evals) == [(Cell("low", 0), "id")]


def test_a_mark_of_an_export_switches_nothing_off(finished: Path, dreamproof: Callable[..., Any]) -> None:
    (results(finished) / "export.json").write_text("{}")
    shutil.rmtree(results(finished) / RUN / "checkpoints")
    assert status(dreamproof, finished)["train"]["quarantined"] == 1
    assert dreamproof("verify", finished).code == ExitCode.BROKEN_EVIDENCE


def test_weights_and_an_evaluation_that_are_gone_are_a_lost_proof(
    finished: Path, dreamproof: Callable[..., Any]
) -> None:
    checkpoint = max((results(finished) / RUN / "checkpoints").iterdir())
    next(path for path in checkpoint.iterdir() if path.name != "record.json").unlink()
    assert status(dreamproof, finished)["complete"], "weights alone may be deleted"
    (results(finished) / RUN / "evaluations" / "id.json").unlink()
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "--retrain-lost" in shown.errors
    assert "--retrain-lost" in dreamproof("why", finished, CELL).output
    assert dreamproof("run", finished, *QUICK, "--retrain-lost").code == ExitCode.OK
    assert status(dreamproof, finished)["complete"] and dreamproof("verify", finished).code == ExitCode.OK


def test_a_changed_checkpoint_of_another_trainer_is_trained_again_and_not_believed(
    tmp_path: Path, dreamproof: Callable[..., Any]
) -> None:
    file = declare_printing(tmp_path)
    first = dreamproof("run", file, *QUICK)
    assert first.code == ExitCode.OK, first.output + first.errors
    weights = next((results(file) / "runs").rglob("model.ckpt"))
    weights.write_text("other")
    assert status(dreamproof, file)["quarantined"] == {CELL: f"{RUN}/model.ckpt has 5 bytes; 50 were proven"}
    assert dreamproof("run", file, *QUICK).code == ExitCode.BROKEN_EVIDENCE
    assert dreamproof("run", file, *QUICK, "--retrain-lost").code == ExitCode.OK
    assert weights.read_text() == "w" * 50 and weights.with_name("model.ckpt.changed").read_text() == "other"


def test_changed_results_of_the_same_size_do_not_pass_verify(finished: Path, dreamproof: Callable[..., Any]) -> None:
    path = results(finished) / RUN / "evaluations" / "id.json"
    changed = json.loads(path.read_bytes())
    episodes = changed["checkpoints"]["final"]["episodes"]
    text = path.read_text()
    first = str(next(iter(episodes.values()))[0])
    path.write_text(text.replace(first, first[:-1] + ("1" if first[-1] != "1" else "2"), 1))
    broken = dreamproof("verify", finished)
    assert broken.code == ExitCode.BROKEN_EVIDENCE and "not the one that was proven (hash differs)" in broken.errors


def test_a_record_that_is_not_the_proven_one_is_no_proof(finished: Path, dreamproof: Callable[..., Any]) -> None:
    record = max((results(finished) / RUN / "checkpoints").iterdir()) / "record.json"
    record.write_text("null")
    assert status(dreamproof, finished)["train"]["quarantined"] == 1
    assert dreamproof("run", finished, *QUICK).code == ExitCode.BROKEN_EVIDENCE
    assert dreamproof("run", finished, *QUICK, "--retrain-lost").code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_nothing_is_withdrawn_for_a_cell_that_cannot_be_trained(finished: Path, dreamproof: Callable[..., Any]) -> None:
    record = max((results(finished) / RUN / "checkpoints").iterdir()) / "record.json"
    content = record.read_bytes()
    record.unlink()
    record.symlink_to("record.json")
    shown = dreamproof("run", finished, *QUICK, "--retrain-lost")
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "repair or remove it" in shown.errors
    assert "readable again" not in shown.output
    assert dreamproof("verify", finished).code == ExitCode.BROKEN_EVIDENCE
    record.unlink()
    record.write_bytes(content)
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK


def test_a_study_whose_runs_are_gone_is_not_complete(finished: Path, dreamproof: Callable[..., Any]) -> None:
    (results(finished) / "runs").rename(results(finished) / "away")
    seen = status(dreamproof, finished)
    assert (seen["train"]["quarantined"], seen["complete"]) == (4, False)


def test_a_broken_checkpoint_is_not_exported(finished: Path, dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    checkpoint = max((results(finished) / RUN / "checkpoints").iterdir())
    weights = next(path for path in checkpoint.iterdir() if path.name != "record.json")
    weights.write_bytes(b"other")
    shown = dreamproof("export", finished, tmp_path / "out", "--checkpoints")
    assert shown.code == ExitCode.BROKEN_EVIDENCE and checkpoint.name in shown.errors
    exported = {path.parts[-4] for path in (tmp_path / "out" / "runs").glob(f"*/checkpoints/*/{weights.name}")}
    assert len(exported) == 3 and "low-seed0" not in exported


def test_an_export_is_verified_without_its_weights(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    assert dreamproof("export", finished, tmp_path / "out").code == ExitCode.OK
    shown = dreamproof("verify", tmp_path / "out")
    assert shown.code == ExitCode.OK and "this is an export" in shown.output
    assert status(dreamproof, tmp_path / "out")["complete"]
    (tmp_path / "out" / RUN / "evaluations" / "id.json").write_text("{}")
    assert dreamproof("verify", tmp_path / "out").code == ExitCode.BROKEN_EVIDENCE


def test_a_proof_that_is_put_back_counts_again(finished: Path, dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    checkpoint = max((results(finished) / RUN / "checkpoints").iterdir())
    checkpoint.rename(tmp_path / "away")
    assert dreamproof("run", finished, *QUICK).code == ExitCode.BROKEN_EVIDENCE
    (tmp_path / "away").rename(checkpoint)
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert status(dreamproof, finished)["complete"]


@pytest.mark.parametrize("make", [as_folder, as_pipe, as_loop, as_dead_link])
@pytest.mark.parametrize("name", ["metrics.jsonl", "heartbeat.json", "evaluations/id.json", "record.json"])
def test_an_unreadable_file_of_a_proven_cell_is_named_by_every_verb(
    finished: Path, dreamproof: Callable[..., Any], name: str, make: Callable[[Path], None]
) -> None:
    run = results(finished) / RUN
    path = max((run / "checkpoints").iterdir()) / name if name == "record.json" else run / name
    path.unlink(missing_ok=True)
    make(path)
    place = str(path.relative_to(results(finished)))
    assert status(dreamproof, finished)["quarantined"][CELL].startswith(f"{place} ")
    assert path.name in dreamproof("why", finished, CELL).output
    broken = dreamproof("verify", finished)
    assert (broken.code, path.name in broken.errors) == (ExitCode.BROKEN_EVIDENCE, True)
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code in (ExitCode.GAP_REMAINS, ExitCode.BROKEN_EVIDENCE)
    assert f"{CELL} is quarantined: {place} " in shown.output and "everything is proven" not in shown.output
    row = (results(finished) / "manifests" / "train_status.tsv").read_text().splitlines()[1].split("\t")
    assert row[:3] == ["low", "0", "quarantined"] and row[-1].startswith(f"{place} ")
    if make is not as_pipe:
        return
    reported = dreamproof("report", finished)
    assert reported.code == ExitCode.BROKEN_EVIDENCE and f"first {CELL}: {place} is a pipe" in reported.errors
    decision = next((results(finished) / "reports").rglob("decision.md")).read_text()
    assert path.name in decision
