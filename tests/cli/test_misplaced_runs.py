"""Run folders that are not those of their cell: nothing in them proves it, and nothing is written through them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.testing.small_study import QUICK, declare

pytestmark = pytest.mark.usefixtures("no_patience")
OWN, OTHER = "low-seed1", "high-seed1"


def runs(file: Path) -> Path:
    return file.parent / "results" / "small" / "runs"


def content(folder: Path) -> dict[str, bytes]:
    """What a run must not lose; a lock is made by looking."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


def link_run(place: Path) -> None:
    shutil.rmtree(place / OWN)
    (place / OWN).symlink_to(OTHER)


def link_evaluations(place: Path) -> None:
    shutil.rmtree(place / OWN / "evaluations")
    (place / OWN / "evaluations").symlink_to(f"../{OTHER}/evaluations")


def link_checkpoints(place: Path) -> None:
    shutil.rmtree(place / OWN / "checkpoints")
    (place / OWN / "checkpoints").symlink_to(f"../{OTHER}/checkpoints")


def link_checkpoint(place: Path) -> None:
    name = newest(place / OWN).name
    shutil.rmtree(place / OWN / "checkpoints" / name)
    (place / OWN / "checkpoints" / name).symlink_to(place / OTHER / "checkpoints" / name)
    (place / OWN / "evaluations" / "id.json").unlink()


@pytest.mark.parametrize("options", [(), ("--retrain-lost",)])
@pytest.mark.parametrize("damage", [link_run, link_evaluations, link_checkpoints, link_checkpoint])
def test_a_link_to_another_cell_is_quarantined_and_nothing_is_written_through_it(
    finished: Path, dreamproof: Callable[..., Any], damage: Callable[[Path], None], options: tuple[str, ...]
) -> None:
    other = content(runs(finished) / OTHER)
    damage(runs(finished))
    shown = dreamproof("run", finished, *QUICK, *options)
    assert shown.code != ExitCode.OK and "is a symbolic link into the run folder of another cell" in shown.output
    assert content(runs(finished) / OTHER) == other
    overview = json.loads(dreamproof("status", finished, "--json").output)
    assert not overview["complete"] and overview["train"]["proven"] == 3


def test_a_link_to_another_disk_is_allowed(finished: Path, dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    (runs(finished) / OWN).rename(tmp_path / "large_disk")
    (runs(finished) / OWN).symlink_to(tmp_path / "large_disk")
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert dreamproof("verify", finished).code == ExitCode.OK


def test_the_run_of_another_cell_is_not_taken_over(tmp_path: Path, dreamproof: Callable[..., Any]) -> None:
    file = declare(tmp_path)
    assert dreamproof("run", file, *QUICK, "--arms", "low").code == ExitCode.OK
    shutil.copytree(runs(file) / "low-seed0", runs(file) / "high-seed0")
    shown = dreamproof("run", file, *QUICK)
    assert shown.code != ExitCode.OK and "settings.json is that of low/0" in shown.output
    shutil.rmtree(runs(file) / "high-seed0")
    assert dreamproof("run", file, *QUICK).code == ExitCode.OK


def test_a_run_with_other_settings_is_not_taken_over(tmp_path: Path, dreamproof: Callable[..., Any]) -> None:
    file = declare(tmp_path)
    assert dreamproof("run", file, *QUICK, "--arms", "low").code == ExitCode.OK
    kept = tmp_path / "kept"
    (file.parent / "results" / "small").rename(kept)
    declare(tmp_path, arms={"low": {"level": 5}, "high": {"level": 2}})
    shutil.copytree(kept / "runs", runs(file))
    shown = dreamproof("run", file, *QUICK)
    assert shown.code != ExitCode.OK
    assert "settings.json names another task or other settings than the study" in shown.output


def test_runs_without_a_ledger_are_taken_in(finished: Path, dreamproof: Callable[..., Any]) -> None:
    before = content(runs(finished))
    for name in ("ledger.jsonl", "ledger.head"):
        (runs(finished).parent / name).unlink()
    assert dreamproof("run", finished, *QUICK).code == ExitCode.OK
    assert content(runs(finished)) == before


def test_checkpoints_without_settings_are_not_continued(tmp_path: Path, dreamproof: Callable[..., Any]) -> None:
    file = declare(tmp_path)
    assert dreamproof("run", file, *QUICK, "--arms", "low").code == ExitCode.OK
    shutil.copytree(runs(file) / "low-seed0" / "checkpoints", runs(file) / "high-seed0" / "checkpoints")
    shown = dreamproof("run", file, *QUICK)
    assert shown.code != ExitCode.OK and "no settings.json shows that they are of this cell" in shown.output


def test_an_import_takes_no_run_of_another_seed_or_with_other_settings(
    finished: Path, tmp_path: Path, dreamproof: Callable[..., Any]
) -> None:
    made = tmp_path / "made"
    for name in ("low-seed0", "low-seed1", "high-seed0", "high-seed1"):
        shutil.copytree(runs(finished) / name, made / name)
    (made / "low-seed0").rename(made / "kept")
    (made / "low-seed1").rename(made / "low-seed0")
    (made / "kept").rename(made / "high-seed7")
    place = tmp_path / "other"
    file = declare(place, seeds=[0, 1, 7])
    shown = dreamproof("import", file, made)
    assert "low/0: unproven: its settings.json is that of low/1" in shown.output
    assert "high/7: unproven: its settings.json is that of low/0" in shown.output
    assert "high/0: proven" in shown.output and "high/1: proven" in shown.output


def test_a_report_names_a_record_that_is_not_the_proven_one(finished: Path, dreamproof: Callable[..., Any]) -> None:
    record = newest(runs(finished) / OWN) / "record.json"
    other = newest(runs(finished) / OTHER) / "record.json"
    record.write_bytes(other.read_bytes())
    dreamproof("report", finished)
    assert "record.json is not the proven one" in (runs(finished).parent / "reports" / "status.md").read_text()


def test_an_import_does_not_call_a_lost_cell_proven(
    finished: Path, tmp_path: Path, dreamproof: Callable[..., Any]
) -> None:
    shutil.copytree(runs(finished), tmp_path / "made")
    (newest(runs(finished) / OWN) / "record.json").unlink()
    shown = dreamproof("import", finished, tmp_path / "made")
    assert "low/1: proven, but runs/low-seed1/checkpoints/" in shown.output and "--retrain-lost" in shown.output
    assert "3 of 4 cells proven" in shown.output
