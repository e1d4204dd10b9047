"""An exported copy: `verify` names whatever is not as it was exported, and no verb works on it."""

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.base.files import file_hash
from dreamproof.testing.small_study import COMMAND, QUICK, declare_printing, run_small

RUN = "runs/low-seed0"
WEIGHTS = f"{RUN}/checkpoints"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study with reports, and `export`, a copy of it with checkpoints."""
    file = run_small(tmp_path_factory.mktemp("recorded"))
    for arguments in (["report", file], ["export", file, file.parent / "export", "--checkpoints"]):
        done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return file.parent


@pytest.fixture
def place(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def copy(place: Path) -> Path:
    return place / "export"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def first(folder: Path, pattern: str) -> Path:
    return min(path for path in folder.glob(pattern) if path.is_file())


def flip(path: Path) -> None:
    """Other content of the same size."""
    old = path.read_bytes()
    path.write_bytes(old[:-2] + bytes([old[-2] ^ 1]) + old[-1:])


def cut_ledger(copy: Path) -> None:
    ledger = copy / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-3]))


def edit_study(copy: Path) -> None:
    declaration = copy / "study.yaml"
    declaration.write_text(declaration.read_text().replace("seeds: 2", "seeds: 1"))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "record deleted": (lambda copy: first(copy, f"{RUN}/checkpoints/*/record.json").unlink(), "record.json is missing"),
    "checkpoint folders deleted": (lambda copy: shutil.rmtree(copy / RUN / "checkpoints"), "record.json is missing"),
    "record changed": (lambda copy: flip(first(copy, f"{RUN}/checkpoints/*/record.json")), "record.json is not"),
    "curve changed": (lambda copy: flip(copy / RUN / "steps.log"), f"{RUN}/steps.log is not the exported file"),
    "weights changed": (lambda copy: flip(first(copy, f"{WEIGHTS}/*/w*")), "is not the exported file (hash differs)"),
    "weights deleted": (lambda copy: first(copy, f"{WEIGHTS}/*/w*").unlink(), "checkpoints/"),
    "ledger cut": (cut_ledger, "ledger.jsonl has "),
    "episodes overwritten": (lambda copy: (copy / "episodes.csv").write_text("x"), "episodes.csv has 1 bytes; "),
    "cells overwritten": (lambda copy: flip(copy / "cells.csv"), "cells.csv is not the exported file"),
    "manifest deleted": (lambda copy: (copy / "manifests" / "train_status.tsv").unlink(), "train_status.tsv is miss"),
    "declaration edited": (edit_study, "study.yaml is not the exported file"),
    "declaration deleted": (lambda copy: (copy / "study.yaml").unlink(), "study.yaml is missing"),
    "list deleted": (lambda copy: (copy / "files.json").unlink(), "files.json is missing"),
    "list changed": (lambda copy: flip(copy / "files.json"), "files.json is not the exported list"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_export_does_not_pass_verify(copy: Path, dreamproof: Callable[..., Any], name: str) -> None:
    assert dreamproof("verify", copy).code == ExitCode.OK
    damage, expected = DAMAGES[name]
    damage(copy)
    shown = dreamproof("verify", copy)
    assert shown.code == ExitCode.BROKEN_EVIDENCE and expected in shown.errors


def test_a_quick_look_compares_sizes(copy: Path, dreamproof: Callable[..., Any]) -> None:
    flip(copy / "cells.csv")
    shown = dreamproof("verify", copy, "--quick")
    assert shown.code == ExitCode.OK and "the sizes of " in shown.output
    (copy / "cells.csv").write_text("")
    assert dreamproof("verify", copy, "--quick").code == ExitCode.BROKEN_EVIDENCE


@pytest.mark.parametrize("damage", [Path.unlink, flip])
def test_a_document_that_report_writes_again_is_a_note(
    copy: Path, dreamproof: Callable[..., Any], damage: Callable[[Path], None]
) -> None:
    before = content(copy)
    damage(copy / "reports" / "decision.md")
    shown = dreamproof("verify", copy)
    assert shown.code == ExitCode.OK and "1 document not as exported: reports/decision.md is " in shown.output
    assert f"dreamproof report {copy}" in shown.output
    assert dreamproof("report", copy).code == ExitCode.OK
    assert "not as exported" not in dreamproof("verify", copy).output
    assert content(copy) == before


def test_further_files_are_allowed(copy: Path, dreamproof: Callable[..., Any]) -> None:
    (copy / "notes.txt").write_text("read")
    assert dreamproof("verify", copy).code == ExitCode.OK


def test_what_was_left_out_is_a_fault(place: Path, dreamproof: Callable[..., Any]) -> None:
    os.mkfifo(place / "results" / "small" / RUN / "extra.log")
    assert dreamproof("export", place / "small.yaml", place / "out").code == ExitCode.BROKEN_EVIDENCE
    shown = dreamproof("verify", place / "out")
    assert shown.code == ExitCode.BROKEN_EVIDENCE
    assert f"{RUN}/extra.log was left out when exported: is a pipe, not a file" in shown.errors


def test_a_proof_that_was_gone_before_is_left_out_by_name(place: Path, dreamproof: Callable[..., Any]) -> None:
    max((place / "results" / "small" / RUN / "checkpoints").glob("*/record.json")).unlink()
    assert dreamproof("export", place / "small.yaml", place / "out").code == ExitCode.BROKEN_EVIDENCE
    shown = dreamproof("verify", place / "out")
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "record.json was left out when exported: is gone" in shown.errors


def test_an_export_without_its_ledger_is_named_as_one(copy: Path, dreamproof: Callable[..., Any]) -> None:
    (copy / "ledger.jsonl").unlink()
    for verb in ("status", "verify", "report"):
        shown = dreamproof(verb, copy)
        assert shown.code == ExitCode.BROKEN_EVIDENCE and "is an export whose ledger.jsonl is gone" in shown.errors


def test_an_unpacked_archive_is_verified_like_a_folder(place: Path, dreamproof: Callable[..., Any]) -> None:
    assert dreamproof("export", place / "small.yaml", place / "out.zip").code == ExitCode.OK
    shown = dreamproof("verify", place / "out.zip")
    assert shown.code == ExitCode.BAD_INPUT and "is an archive; unpack it first" in shown.errors
    assert f"unzip {place / 'out.zip'} -d FOLDER; dreamproof verify FOLDER/STUDY" in shown.errors
    with zipfile.ZipFile(place / "out.zip") as archive:
        archive.extractall(place / "unpacked")
    assert dreamproof("verify", place / "unpacked" / "small").code == ExitCode.OK
    flip(place / "unpacked" / "small" / "money.csv")
    assert dreamproof("verify", place / "unpacked" / "small").code == ExitCode.BROKEN_EVIDENCE


def test_an_export_of_an_earlier_version_is_verified_with_a_note(copy: Path, dreamproof: Callable[..., Any]) -> None:
    (copy / "files.json").unlink()
    (copy / "export.json").write_text('{"version": "0.1.0"}')
    shown = dreamproof("verify", copy)
    assert shown.code == ExitCode.OK and "this export has no list of files" in shown.output
    (copy / RUN / "evaluations" / "id.json").unlink()
    assert dreamproof("verify", copy).code == ExitCode.BROKEN_EVIDENCE


def test_a_list_cannot_lead_out_of_the_export(copy: Path, dreamproof: Callable[..., Any]) -> None:
    listed = json.loads((copy / "files.json").read_text())
    listed["files"]["../small.yaml"] = {"bytes": 1, "sha256": file_hash(copy.parent / "small.yaml")}
    (copy / "files.json").write_text(json.dumps(listed))
    (copy / "export.json").write_text(json.dumps({"version": "1", "files_sha256": file_hash(copy / "files.json")}))
    shown = dreamproof("verify", copy)
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "../small.yaml is listed but not inside" in shown.errors


@pytest.mark.parametrize("mark", ["{}", '{"version": "0.2.0"}', '{"version": "0.2.0", "files_sha256": "0"}'])
def test_a_mark_in_a_study_switches_nothing_off(place: Path, dreamproof: Callable[..., Any], mark: str) -> None:
    study = place / "results" / "small"
    (study / "export.json").write_text(mark)
    shutil.rmtree(study / "attempts")
    shutil.rmtree(study / RUN / "checkpoints")
    shown = dreamproof("verify", study)
    assert shown.code == ExitCode.BROKEN_EVIDENCE and "low/0" in shown.errors
    (study / "ledger.head").unlink()
    if "files_sha256" in mark:
        assert "files.json is missing" in dreamproof("verify", study).errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "{copy}", *QUICK),
        ("run", "{copy}", "--detach"),
        ("run", "{copy}/study.yaml", *QUICK),
        ("run", "{place}/named.yaml", *QUICK),
        ("check", "{copy}"),
        ("attach", "{copy}", "low/0", "--folder", "{place}"),
        ("import", "{copy}", "{place}/results/small/runs"),
    ],
)
def test_nothing_is_started_or_recorded_in_an_export(
    place: Path, dreamproof: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    copy = place / "export"
    (place / "named.yaml").write_text((place / "small.yaml").read_text() + "folder: export\n")
    before = content(place)
    shown = dreamproof(*(one.format(copy=copy, place=place) for one in arguments))
    assert shown.code == ExitCode.BAD_INPUT and f"{copy}: is an exported copy of a study" in shown.errors
    assert f"dreamproof verify {copy}" in shown.errors
    assert content(place) == before


def test_stop_writes_nothing_to_an_export(copy: Path, dreamproof: Callable[..., Any]) -> None:
    before = content(copy)
    shown = dreamproof("stop", copy)
    assert shown.code == ExitCode.OK and "nothing is running" in shown.output
    assert content(copy) == before


def test_no_verb_proposes_to_run_an_export(place: Path, dreamproof: Callable[..., Any]) -> None:
    (place / "results" / "small" / RUN / "evaluations" / "id.json").unlink()
    assert dreamproof("export", place / "small.yaml", place / "out").code == ExitCode.BROKEN_EVIDENCE
    for arguments in (["status"], ["plan"], ["why", "low/0"], ["watch", "--once"]):
        shown = dreamproof(arguments[0], place / "out", *arguments[1:])
        assert f"next        dreamproof verify {place / 'out'}" in shown.output and "dreamproof run" not in shown.output
    unknown = dreamproof("why", place / "out", "none/0")
    assert f"dreamproof status {place / 'out'}\n" in unknown.errors
    seen = json.loads(dreamproof("status", place / "out" / "study.yaml", "--json").output)
    assert seen["folder"] == str(place / "out")


def test_an_export_of_printed_lines_is_an_export(tmp_path: Path, dreamproof: Callable[..., Any]) -> None:
    file = declare_printing(tmp_path)
    assert dreamproof("run", file, *QUICK).code == ExitCode.OK
    assert dreamproof("export", file, tmp_path / "out").code == ExitCode.OK
    shown = dreamproof("verify", tmp_path / "out")
    assert shown.code == ExitCode.OK and "this is an export" in shown.output
    assert dreamproof("run", tmp_path / "out", *QUICK).code == ExitCode.BAD_INPUT
    first(tmp_path / "out", "attempts/*/output.log").unlink()
    assert dreamproof("verify", tmp_path / "out").code == ExitCode.BROKEN_EVIDENCE


def test_options_of_a_policy_alone_are_refused(place: Path, dreamproof: Callable[..., Any]) -> None:
    for options, message in (
        (["--task", "x"], "--task has no effect without --policy"),
        (["--checkpoint", "selected", "--policies"], "--checkpoint has no effect without --policy"),
        (["--policy", "low/0", "--policies"], "--policy writes one policy, --policies all"),
    ):
        refused = dreamproof("export", place / "export", place / "never", *options)
        assert refused.code == ExitCode.BAD_INPUT and message in refused.errors, refused.errors
        assert not (place / "never").exists()
