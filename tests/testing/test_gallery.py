"""The gallery is small, opens, and its documents are what its records give today."""

import shutil
from pathlib import Path

import pytest

import dreamproof
from dreamproof.runs.resolved import read_resolved, resolved_fault
from dreamproof.settings.resolved import resolved_changes, resolved_hash
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.plan.provenance import resolved_arm
from dreamproof.testing.gallery import add, unpack, write_documents

GALLERY = Path(__file__).parents[2] / "gallery"
ENTRIES = sorted(path.parent for path in GALLERY.glob("*/ledger.jsonl"))
LARGEST_BYTES = 8 << 20
WITHOUT_SETTINGS = {
    "flow_pwm_48m",
    "flow_pwm_fork",
    "pwm_ant",
    "pwm_cheetah_flow",
    "pwm_cheetah_run",
    "pwm_walker_walk",
}
"""Older than the record of all settings after defaults; an entry that is made again leaves this list."""


@pytest.fixture(params=ENTRIES, ids=lambda entry: entry.name, scope="module")
def entry(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def study(entry: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(entry, tmp_path_factory.mktemp("gallery") / entry.name)


def test_documents_are_up_to_date(entry: Path, study: Path, tmp_path: Path) -> None:
    shutil.copytree(entry / "figures", tmp_path / "figures")
    for path in write_documents(study, tmp_path, with_figures=False):
        kept = entry / path.relative_to(tmp_path)
        assert path.read_bytes() == kept.read_bytes(), f"{kept} is out of date: make gallery"


def test_an_older_study_still_loads(study: Path) -> None:
    results = dreamproof.load(study)
    assert (results.cells.state == "proven").any()
    assert len(results.scores) and len(results.verdicts) == results.cells.arm.nunique() - 1


def test_settings_come_out_of_the_files_again(entry: Path, study: Path) -> None:
    opened = open_study(study)
    known = opened.state.resolved
    assert (entry.name in WITHOUT_SETTINGS) == (not known)
    for arm, record in known.items():
        assert resolved_hash(record["resolved"]) == record["resolved_hash"]
        assert resolved_changes(record["resolved"], resolved_arm(opened.study, arm)) == []
        assert resolved_hash(resolved_arm(opened.study, arm)) == record["resolved_hash"]
    for cell in (cell for cell in opened.state.cells.values() if cell.proof is not None and known):
        stored = read_resolved(opened.run(cell.cell))
        assert resolved_fault(opened.run(cell.cell)) is None
        assert stored is not None and stored.hash == cell.resolved_hash == known[cell.cell.arm]["resolved_hash"]


def test_every_entry_has_a_page_and_two_to_four_figures(entry: Path) -> None:
    assert (entry / "README.md").is_file() and 2 <= len(list((entry / "figures").glob("*.png"))) <= 4


def test_the_gallery_is_small() -> None:
    assert sum(path.stat().st_size for path in GALLERY.rglob("*") if path.is_file()) < LARGEST_BYTES


def test_a_study_is_taken_in_with_the_same_bytes(entry: Path, study: Path, tmp_path: Path) -> None:
    add(study, tmp_path / "entry")
    assert (tmp_path / "entry" / "runs.zip").read_bytes() == (entry / "runs.zip").read_bytes()
