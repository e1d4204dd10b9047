"""The gallery is small, opens, and its documents are what its records give today."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dreamproof
from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import StudyFolder
from dreamproof.runs.resolved import read_resolved, resolved_fault
from dreamproof.settings.resolved import resolved_changes, resolved_hash
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.plan.provenance import resolved_arm
from dreamproof.testing.gallery import add, unpack, write_documents
from dreamproof.testing.resolved_at_commit import FILE, GIVEN, ORIGIN, commit_of, given_settings, hash_of, reconstruct

GALLERY = Path(__file__).parents[2] / "gallery"
ENTRIES = sorted(path.parent for path in GALLERY.glob("*/ledger.jsonl"))
LARGEST_BYTES = 8 << 20
RECONSTRUCTED = {
    "flow_pwm_48m",
    "flow_pwm_fork",
    "pwm_ant",
    "pwm_cheetah_run",
    "pwm_walker_walk",
}
"""Older than the record of all settings after defaults; theirs were reconstructed."""


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
    assert len(results.scores) and list(results.verdicts.arm) == open_study(study).study.treatments


def test_settings_come_out_of_the_files_again(entry: Path, study: Path) -> None:
    opened = open_study(study)
    known = opened.state.resolved
    assert (entry.name in RECONSTRUCTED) == (not known) == (entry / FILE).is_file()
    for arm, record in known.items():
        assert resolved_hash(record["resolved"]) == record["resolved_hash"]
        assert resolved_changes(record["resolved"], resolved_arm(opened.study, arm)) == []
        assert resolved_hash(resolved_arm(opened.study, arm)) == record["resolved_hash"]
    for cell in (cell for cell in opened.state.cells.values() if cell.proof is not None and known):
        stored = read_resolved(opened.run(cell.cell))
        assert resolved_fault(opened.run(cell.cell)) is None
        assert stored is not None and stored.hash == cell.resolved_hash == known[cell.cell.arm]["resolved_hash"]


def values(tree: Any, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every leaf of nested settings."""
    if not isinstance(tree, dict):
        return {above: tree}
    return {place: leaf for key, part in tree.items() for place, leaf in values(part, (*above, key)).items()}


@pytest.mark.parametrize("name", sorted(RECONSTRUCTED))
def test_reconstructed_settings_belong_to_the_runs(name: str) -> None:
    entry = GALLERY / name
    kept, given = json.loads((entry / FILE).read_text()), given_settings(entry)
    assert kept["origin"] == ORIGIN and kept["commit"].startswith(commit_of(entry))
    assert f"]({FILE})" in (entry / "README.md").read_text("utf-8")
    assert sorted(kept["arms"]) == sorted(given)
    for arm, record in kept["arms"].items():
        assert hash_of(record["resolved"]) == record["hash"]
        assert {key: record["resolved"][key] for key in GIVEN[:3]} == {key: given[arm][key] for key in GIVEN[:3]}
        found, typed = values(record["resolved"]["settings"]), values(given[arm]["settings"])
        assert {place: found[place] for place in typed} == typed
        assert len(found) > 3 * len(typed), "defaults are written out"


@pytest.mark.parametrize("name", sorted(RECONSTRUCTED))
def test_settings_are_reconstructed_again_from_the_history_or_its_lack_is_named(name: str) -> None:
    root = GALLERY.parent
    command = ["git", "cat-file", "-e", f"{commit_of(GALLERY / name)}^{{commit}}"]
    if subprocess.run(command, cwd=root, capture_output=True, check=False).returncode:
        with pytest.raises(BadInput, match="has no commit"):
            reconstruct(GALLERY / name, root)
    else:
        assert reconstruct(GALLERY / name, root) == json.loads((GALLERY / name / FILE).read_text())


def test_another_commit_or_edited_code_is_refused(tmp_path: Path) -> None:
    rows = [{"event": "supervisor_started", "commit": "abc1234", "dirty": dirty} for dirty in (False, True)]
    for kept in (rows, rows[1:]):
        (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
        with pytest.raises(BadInput, match="does not name one commit without edits"):
            commit_of(tmp_path)


def test_every_entry_has_a_page_and_two_to_four_figures(entry: Path) -> None:
    assert (entry / "README.md").is_file() and 2 <= len(list((entry / "figures").glob("*.png"))) <= 4


def test_the_gallery_is_small() -> None:
    assert sum(path.stat().st_size for path in GALLERY.rglob("*") if path.is_file()) < LARGEST_BYTES


def test_a_study_is_taken_in_with_the_same_bytes(entry: Path, study: Path, tmp_path: Path) -> None:
    add(study, tmp_path / "entry")
    found, kept = (StudyFolder(folder).archive for folder in (tmp_path / "entry", entry))
    assert found.read_bytes() == kept.read_bytes()
