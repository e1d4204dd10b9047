"""Files of a finished study that are still there and are not what was proven: nothing believes them."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.base.files import FaultKind
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import changed_file, changed_record, prove_evaluation
from dreamproof.study.ledger.chain import Ledger, LedgerFailure, sealed_line
from dreamproof.study.ledger.events import SupervisorLost
from dreamproof.study.session import ReportOutcome
from dreamproof.testing.small_study import QUICK, run_small

CELL, RUN, OTHER = "low/0", "runs/low-seed0", "runs/low-seed1"
NO_SIZES = ("file_bytes", "file_hash", "proof_bytes")


pytestmark = pytest.mark.usefixtures("no_patience")


def results(file: Path) -> Path:
    return file.parent / "results" / "small"


def checkpoint(file: Path, run: str = RUN) -> Path:
    return max((results(file) / run / "checkpoints").iterdir())


def status(dreamproof: Callable[..., Any], file: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(dreamproof("status", file, "--json").output)
    return shown


def change_a_digit(path: Path) -> None:
    """Another value in a file of the same size."""
    text = path.read_text()
    first = str(next(iter(json.loads(text)["checkpoints"]["final"]["episodes"].values()))[0])
    path.write_text(text.replace(first, first[:-1] + ("1" if first[-1] != "1" else "2"), 1))


def without_sizes(file: Path) -> None:
    """The ledger as an older version wrote it."""
    ledger, previous, lines = results(file) / "ledger.jsonl", "0" * 64, []
    for line in ledger.read_text().splitlines():
        row = {key: value for key, value in json.loads(line).items() if key not in (*NO_SIZES, "hash")}
        made, previous = sealed_line(row | {"prev": previous})
        lines.append(made)
    ledger.write_bytes(b"".join(lines))
    (results(file) / "ledger.head").unlink()


def test_another_value_is_in_no_report_and_the_evaluation_is_made_again(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    path = results(finished) / RUN / "evaluations" / "id.json"
    true = path.read_bytes()
    change_a_digit(path)
    reported = dreamproof("report", finished)
    assert reported.code == ExitCode.BROKEN_EVIDENCE
    assert f"first {CELL} under id: {RUN}/evaluations/id.json is not the proven one (hash differs)" in reported.errors
    scores = (results(finished) / "tables" / "scores.csv").read_text()
    assert "low,1,id" in scores and "low,0,id" not in scores
    exported = dreamproof("export", finished, tmp_path / "out")
    assert exported.code == ExitCode.BROKEN_EVIDENCE and "id.json: is not the proven one" in exported.errors
    assert "low,0,id" not in (tmp_path / "out" / "episodes.csv").read_text()
    assert dreamproof("verify", tmp_path / "out").code == ExitCode.BROKEN_EVIDENCE
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.OK and "moved to id.json.changed" in shown.output
    made = json.loads(path.read_bytes())
    assert made["checkpoints"]["final"]["episodes"] == json.loads(true)["checkpoints"]["final"]["episodes"]
    assert dreamproof("verify", finished).code == dreamproof("report", finished).code == ExitCode.OK


@pytest.mark.parametrize("content", [b"", b'{"half": '])
def test_an_old_ledger_believes_no_worthless_file(
    finished: Path, dreamproof: Callable[..., Any], content: bytes
) -> None:
    without_sizes(finished)
    assert status(dreamproof, finished)["complete"] and dreamproof("verify", finished).code == ExitCode.OK
    (results(finished) / RUN / "evaluations" / "id.json").write_bytes(content)
    (checkpoint(finished, OTHER) / "record.json").write_bytes(content)
    seen = status(dreamproof, finished)
    assert seen["missing_evaluate"] == {"id": {"low": [0, 1]}} and list(seen["quarantined"]) == ["low/1"]
    assert dreamproof("run", finished, *QUICK, "--retrain-lost").code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK and status(dreamproof, finished)["complete"]


def test_an_old_ledger_believes_no_evaluation_of_another_cell(finished: Path, dreamproof: Callable[..., Any]) -> None:
    without_sizes(finished)
    shutil.copy(results(finished) / OTHER / "evaluations" / "id.json", results(finished) / RUN / "evaluations")
    assert dreamproof("report", finished).code == ExitCode.BROKEN_EVIDENCE
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_a_file_that_may_not_be_read_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    path.write_text("{}")
    assert changed_record(path, 2) is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "open", _refused)
    for fault in (changed_file(path, 2), changed_record(path, None)):
        assert fault is not None and fault.fault is FaultKind.BLOCKED


def _refused(*_: Any, **__: Any) -> int:
    raise PermissionError(13, "Permission denied")


def test_swapped_checkpoints_are_seen_before_anything_is_evaluated(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    mine, other = checkpoint(finished), checkpoint(finished, OTHER)
    mine.rename(tmp_path / "away")
    other.rename(mine)
    (tmp_path / "away").rename(other)
    (results(finished) / RUN / "evaluations" / "id.json").unlink()
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "started: evaluate" not in shown.output
    assert f"{CELL} is quarantined" in shown.output and "--retrain-lost" in shown.errors
    assert dreamproof("run", finished, *QUICK, "--retrain-lost").code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK and status(dreamproof, finished)["complete"]


def test_changed_weights_are_found_when_their_evaluation_does_not_fit(
    finished: Path, dreamproof: Callable[..., Any]
) -> None:
    weights = next(path for path in checkpoint(finished).iterdir() if path.name != "record.json")
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    (results(finished) / RUN / "evaluations" / "id.json").unlink()
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code != ExitCode.OK and f"{CELL} is quarantined" in shown.output, shown.output
    beside = finished.parent.with_name(f"{finished.parent.name}_restored")
    shutil.copytree(finished.parent, beside)
    healed = dreamproof("run", finished, *QUICK, "--retrain-lost")
    assert healed.code == ExitCode.OK, healed.output + healed.errors
    assert dreamproof("verify", finished).code == ExitCode.OK and status(dreamproof, finished)["complete"]
    other = beside / finished.name
    content[-3] ^= 1
    (checkpoint(other) / weights.name).write_bytes(content)
    assert dreamproof("run", other, *QUICK).code == ExitCode.OK and dreamproof("verify", other).code == ExitCode.OK


def test_changed_weights_of_an_evaluated_cell_are_trained_again_if_asked(
    finished: Path, dreamproof: Callable[..., Any]
) -> None:
    weights = next(path for path in checkpoint(finished).iterdir() if path.name != "record.json")
    weights.write_bytes(b"other")
    broken = dreamproof("verify", finished)
    assert broken.code == ExitCode.BROKEN_EVIDENCE and "--retrain-lost" in broken.errors
    shown = dreamproof("run", finished, *QUICK, "--retrain-lost")
    assert shown.code == ExitCode.OK and f"{CELL}: proof lost" in shown.output
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_deleted_weights_of_an_evaluated_cell_are_not_trained_again(
    finished: Path, dreamproof: Callable[..., Any]
) -> None:
    next(path for path in checkpoint(finished).iterdir() if path.name != "record.json").unlink()
    shown = dreamproof("run", finished, *QUICK, "--retrain-lost")
    assert shown.code == ExitCode.OK and "started" not in shown.output


def test_an_edited_declaration_does_not_hide_cells(finished: Path, dreamproof: Callable[..., Any]) -> None:
    inside = results(finished) / "study.yaml"
    inside.write_text(inside.read_text().replace("seeds: 2", "seeds: 1"))
    broken = dreamproof("verify", results(finished))
    assert broken.code == ExitCode.BROKEN_EVIDENCE and "is not the declaration that was recorded" in broken.errors
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK
    inside.unlink()
    assert dreamproof("verify", finished).code == ExitCode.BROKEN_EVIDENCE
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_a_change_inside_the_study_folder_is_named_there(finished: Path, dreamproof: Callable[..., Any]) -> None:
    inside = results(finished) / "study.yaml"
    inside.write_text(inside.read_text().replace("agent_steps: ", "agent_steps: 1"))
    refused = dreamproof("run", results(finished), *QUICK)
    assert refused.code == ExitCode.BAD_INPUT and f"{inside}: the declaration changed" in refused.errors


def test_an_evaluation_changed_while_reports_are_written_is_no_success(
    finished: Path, dreamproof: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = results(finished) / RUN / "evaluations" / "id.json"

    def write(opened: Any) -> ReportOutcome:
        change_a_digit(evaluation)
        return ReportOutcome()

    monkeypatch.setattr("dreamproof.cli.report.write_declared", write)
    shown = dreamproof("run", finished, "--no-check", "--plain")
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "runs/low-seed0/evaluations/id.json" in shown.errors
    monkeypatch.undo()
    assert dreamproof("verify", finished).code == ExitCode.BROKEN_EVIDENCE


def test_reports_that_cannot_be_written_are_no_success(
    finished: Path, dreamproof: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*arguments: Any) -> list[Path]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("dreamproof.cli.report.write_reports", write)
        shown = dreamproof("run", finished, "--no-check", "--plain")
    assert shown.code == ExitCode.NO_REPORT and "not written: report in en" in shown.errors
    assert "No space left on device" in shown.errors and "dreamproof report" in shown.errors
    assert dreamproof("run", finished, "--no-check", "--plain").code == ExitCode.OK


def test_a_cut_ledger_is_named_and_no_report_is_replaced(finished: Path, dreamproof: Callable[..., Any]) -> None:
    assert dreamproof("report", finished).code == ExitCode.OK
    decision = (results(finished) / "reports" / "decision.md").read_bytes()
    (results(finished) / "ledger.jsonl").write_bytes(b"")
    assert "the ledger is not whole" in status(dreamproof, finished)["notices"][0]
    refused = dreamproof("report", finished)
    assert refused.code == ExitCode.BROKEN_EVIDENCE and "its end was lost or cut off" in refused.errors
    assert (results(finished) / "reports" / "decision.md").read_bytes() == decision
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == ExitCode.OK and "the ledger ended after event 0" in shown.output
    assert status(dreamproof, finished)["complete"]


def test_a_cut_ledger_is_not_exported(finished: Path, dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    ledger = results(finished) / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-3]))
    assert dreamproof("export", finished, tmp_path / "out").code == ExitCode.BROKEN_EVIDENCE
    ledger.unlink()
    assert dreamproof("export", finished, tmp_path / "out").code == ExitCode.BROKEN_EVIDENCE
    assert not (tmp_path / "out").exists()


def test_a_ledger_cut_together_with_its_head_is_named_by_what_ran(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    ledger, head = results(finished) / "ledger.jsonl", results(finished) / "ledger.head"
    lines = ledger.read_bytes().splitlines(keepends=True)
    for kept in (b"".join(lines[:4]), None):
        ledger.write_bytes(kept) if kept is not None else ledger.unlink()
        head.unlink(missing_ok=True)
        for verb in (("report", finished), ("export", finished, tmp_path / "out")):
            refused = dreamproof(*verb)
            assert refused.code == ExitCode.BROKEN_EVIDENCE and "ran and is not in it" in refused.errors
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert dreamproof("export", finished, tmp_path / "out").code == ExitCode.OK


def test_another_ledger_is_refused_before_anything_is_written(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    ledger, head = results(finished) / "ledger.jsonl", results(finished) / "ledger.head"
    true = ledger.read_bytes()
    without_sizes(finished)
    other = ledger.read_bytes()
    shutil.copytree(finished.parent, finished.parent / "copy", ignore=lambda *_: ["copy"])
    ledger.write_bytes(true)
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    kept, seen = ledger.read_bytes(), head.read_bytes()
    lines = len(kept.splitlines())
    with_more = Ledger(finished.parent / "copy" / "results" / "small" / "ledger.jsonl")
    for _ in range(lines - len(other.splitlines()) + 2):
        with_more.append(SupervisorLost())
    with_more.close()
    shutil.copy(with_more.path, ledger)
    for verb in (("run", finished, *QUICK), ("report", finished), ("export", finished, tmp_path / "out")):
        assert dreamproof(*verb).code == ExitCode.BROKEN_EVIDENCE
    assert ledger.read_bytes() == with_more.path.read_bytes() and head.read_bytes() == seen
    ledger.write_bytes(kept)
    assert dreamproof("verify", finished).code == dreamproof("run", finished, *QUICK).code == ExitCode.OK


def test_a_shorter_ledger_of_another_study_is_not_continued(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    other = run_small(tmp_path / "other")
    ledger, head = results(finished) / "ledger.jsonl", results(finished) / "ledger.head"
    whole, kept = ledger.read_bytes(), head.read_bytes()
    ledger.write_bytes(b"".join((results(other) / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:12]))
    refused = dreamproof("run", finished, *QUICK)
    assert refused.code == ExitCode.BROKEN_EVIDENCE and "this is another ledger" in refused.errors
    assert head.read_bytes() == kept
    ledger.write_bytes(whole)
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_a_folder_in_the_place_of_a_file_is_named(finished: Path, dreamproof: Callable[..., Any]) -> None:
    inside = results(finished) / "study.yaml"
    inside.unlink()
    inside.mkdir()
    refused = dreamproof("run", finished, *QUICK)
    assert refused.code == ExitCode.BAD_INPUT and f"{inside}: Is a directory" in refused.errors
    assert f"ls -ld {inside}" in refused.errors


def test_reports_are_not_replaced_by_empty_ones(finished: Path, dreamproof: Callable[..., Any]) -> None:
    assert dreamproof("report", finished).code == ExitCode.OK
    decision = (results(finished) / "reports" / "decision.md").read_bytes()
    (results(finished) / "runs").rename(results(finished) / "away")
    refused = dreamproof("report", finished)
    assert refused.code == ExitCode.BROKEN_EVIDENCE and "so there are no values to report" in refused.errors
    assert (results(finished) / "reports" / "decision.md").read_bytes() == decision


def test_a_record_with_other_steps_is_no_proof(finished: Path, dreamproof: Callable[..., Any]) -> None:
    record = checkpoint(finished) / "record.json"
    steps = json.loads(record.read_text())["gradient_steps"]
    text = record.read_text()
    record.write_text(text.replace(f'"gradient_steps": {steps}', f'"gradient_steps": {steps + 1}'))
    assert record.read_text() != text
    assert dreamproof("run", finished, *QUICK).code == ExitCode.BROKEN_EVIDENCE
    assert dreamproof("run", finished, *QUICK, "--retrain-lost").code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_an_evaluation_of_another_condition_is_no_proof(finished: Path) -> None:
    run = RunFolder(results(finished) / RUN)
    record = json.loads(run.evaluation("id").read_text())
    final = record["checkpoints"]["final"]
    assert not isinstance(prove_evaluation(run, "id", 3, final["parameter_hash"]), str)
    run.evaluation("id").write_text(json.dumps(record | {"condition": "heavy"}))
    assert prove_evaluation(run, "id", 3, final["parameter_hash"]) == "its file is of the condition heavy"


def test_a_ledger_that_was_cut_meanwhile_is_not_written_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(SupervisorLost())
    path.write_bytes(path.read_bytes()[:-40])
    half = path.read_bytes()
    with pytest.raises(Exception, match="it was changed meanwhile"):
        ledger.append(SupervisorLost())
    ledger.close()
    assert path.read_bytes() == half
    path.unlink()
    path.write_bytes(half)
    assert Ledger(path).shortened[0]["event"] == "ledger_shortened"


def test_a_ledger_in_the_place_of_another_is_not_written_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(SupervisorLost())
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    with pytest.raises(Exception, match="another file took its place"):
        ledger.append(SupervisorLost())


def test_a_ledger_that_was_removed_meanwhile_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    first = ledger.append(SupervisorLost())
    path.unlink()
    second = ledger.append(SupervisorLost())
    ledger.close()
    assert [json.loads(line)["hash"] for line in path.read_text().splitlines()] == [first["hash"], second["hash"]]


def test_a_ledger_is_not_restored_in_a_folder_that_was_made_again_after_a_move(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    ledger = Ledger(before / "ledger.jsonl")
    ledger.append(SupervisorLost())
    before.rename(after)
    before.mkdir()
    with pytest.raises(LedgerFailure):
        ledger.append(SupervisorLost())
    assert not (before / "ledger.jsonl").exists()
    assert len((after / "ledger.jsonl").read_text().splitlines()) == 1


def test_a_plan_names_quarantined_cells(finished: Path, dreamproof: Callable[..., Any]) -> None:
    (checkpoint(finished) / "record.json").unlink()
    shown = dreamproof("plan", finished)
    assert f"quarantined {CELL}: run leaves them out" in shown.output
    assert shown.output.splitlines()[-1] == f"next        dreamproof why {finished} {CELL}"
    assert json.loads(dreamproof("plan", finished, "--json").output)["quarantined_cells"] == [CELL]


def test_a_study_folder_behind_a_dead_link_is_not_made_anew(finished: Path, dreamproof: Callable[..., Any]) -> None:
    kept = finished.parent / "kept"
    (finished.parent / "results").rename(kept)
    (finished.parent / "results").symlink_to(finished.parent / "not_mounted")
    refused = dreamproof("run", finished, *QUICK)
    assert refused.code == ExitCode.BAD_INPUT and "which is not there" in refused.errors
    kept.rename(finished.parent / "not_mounted")
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK


def test_a_run_folder_behind_a_dead_link_is_quarantined_and_comes_back(
    finished: Path, dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    run = results(finished) / RUN
    run.rename(tmp_path / "away")
    run.symlink_to("/mnt/not_mounted")
    for more in ((), ("--retrain-lost",)):
        shown = dreamproof("run", finished, *QUICK, *more)
        assert shown.code == ExitCode.BROKEN_EVIDENCE and "which is not there" in shown.output
        assert "readable again" not in shown.output
    run.unlink()
    (tmp_path / "away").rename(run)
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK


def cut_ledger(folder: Path) -> None:
    """Takes the last two events away."""
    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-2]))


def edit_declaration(folder: Path) -> None:
    (folder / "study.yaml").write_text((folder / "study.yaml").read_text().replace("seeds: 2", "seeds: 1"))


@pytest.mark.parametrize(
    "damage", [cut_ledger, edit_declaration, lambda folder: change_a_digit(folder / RUN / "evaluations" / "id.json")]
)
def test_what_a_plain_run_repairs_is_not_to_be_removed(
    finished: Path, dreamproof: Callable[..., Any], damage: Callable[[Path], None]
) -> None:
    damage(results(finished))
    broken = dreamproof("verify", finished)
    assert broken.code == ExitCode.BROKEN_EVIDENCE and f"dreamproof run {finished} (" in broken.errors
    assert "--retrain-lost" not in broken.errors and "remove" not in broken.errors.split("hint: ")[1]
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_an_edited_ledger_is_only_restored(finished: Path, dreamproof: Callable[..., Any]) -> None:
    ledger = results(finished) / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"seeds"', '"seedz"', 1))
    broken = dreamproof("verify", finished)
    assert "restore the file from a copy; dreamproof verify" in broken.errors and "dreamproof run" not in broken.errors


def test_a_file_that_cannot_be_read_is_repaired_and_nothing_is_trained_again(
    finished: Path, dreamproof: Callable[..., Any]
) -> None:
    heartbeat = results(finished) / RUN / "heartbeat.json"
    heartbeat.unlink(missing_ok=True)
    heartbeat.mkdir()
    broken = dreamproof("verify", finished)
    assert f"repair it, then dreamproof run {finished};" in broken.errors and "--retrain-lost" not in broken.errors
    heartbeat.rmdir()
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
