"""What the API says is exact: all digits of steps, values that are no numbers, deaths in the ledger of a cell."""

import json
import shutil
from pathlib import Path

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.study import session
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.made_study import Plan, make_study
from dreamproof.testing.served import Dashboard, dashboard
from dreamproof.testing.small_study import declare
from dreamproof.web import followed
from dreamproof.web.followed import FollowedStudy
from dreamproof.web.found import Studies
from dreamproof.web.server import ServeOptions, make_site

STEPS = [123_456_789, 123_456_796, 123_456_803]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study whose cell full/0 logged three late steps, with a metric that is no number."""
    root = make_study(tmp_path / "late", Plan(arms=("baseline", "full"), seeds=2))
    rows = [{"agent_steps": step, "return": 1 / 3, "broken": float("nan")} for step in STEPS]
    StudyFolder(root).run(Cell("full", 0)).metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def test_steps_keep_all_their_digits_and_values_twelve(study: Path) -> None:
    with dashboard(study) as running:
        curve = running.data("/studies/late/cells/full/0/curve?metric=return")
        assert curve["agent_steps"] == STEPS and curve["values"] == [0.333333333333] * 3
        table = running.get("/api/v1/studies/late/curves?metric=return&arms=full&format=csv").body.decode()
        assert [line.split(",")[2] for line in table.splitlines() if line.startswith("full,0")] == list(map(str, STEPS))


def test_values_that_are_no_numbers_are_counted(study: Path) -> None:
    with dashboard(study) as running:
        curve = running.data("/studies/late/cells/full/0/curve?metric=broken")
        assert (curve["agent_steps"], curve["not_finite"]) == ([], 3)
        assert running.data("/studies/late/curves?metric=broken")["not_finite"] == 3
        assert running.data("/studies/late/curves?metric=return")["not_finite"] == 0


@pytest.mark.parametrize(("content", "expected"), [(b"\x00\xff\n" * 50, "none of its lines"), (None, "is a folder")])
def test_a_log_that_cannot_be_read_is_named(study: Path, content: bytes | None, expected: str) -> None:
    log = StudyFolder(study).run(Cell("full", 0)).metrics
    log.unlink()
    if content is None:
        log.mkdir()
    else:
        log.write_bytes(content)
    with dashboard(study) as running:
        assert expected in running.data("/studies/late/cells/full/0/curve?metric=return")["fault"]
        assert running.data("/studies/late/cells/full/1/curve?metric=return")["fault"] is None


def test_the_ledger_of_a_cell_holds_the_ends_of_its_attempts(served: Dashboard) -> None:
    kinds = [row["event"] for row in served.data("/studies/whole/ledger?cell=full/1")["events"]]
    assert kinds.count("attempt_ended") == kinds.count("attempt_started") > 1
    alone = served.data("/studies/whole/ledger?cell=ful&event=ended")["events"]
    assert alone and {row["event"] for row in alone} == {"attempt_ended"}
    assert not served.data("/studies/whole/ledger?cell=full/10")["events"]


def test_a_cell_costs_what_the_money_page_says(served: Dashboard) -> None:
    money = served.data("/studies/whole/money")
    own = money["cells"]["full/1"]
    found = served.data("/studies/whole/cells/full/1")
    assert found["wall_seconds"] == pytest.approx((own["useful_ms"] + own["wasted_ms"]) / 1000)


def test_a_study_without_its_run_folders_says_so_on_every_page(study: Path) -> None:
    shutil.rmtree(StudyFolder(study).runs)
    with dashboard(study) as running:
        assert any("the folder runs is not here" in text for text in running.data("/studies/late/status")["notices"])
        shown = json.dumps(running.data("/studies/late/decision?language=en"))
        assert (
            "the run folders are not here" in shown and "tar -xf runs.tar.xz" in shown and "never recorded" not in shown
        )


def test_a_faulty_study_file_is_not_read_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text("name: [\n")
    read = []
    real = followed.find_folder
    monkeypatch.setattr(followed, "find_folder", lambda place: read.append(place) or real(place))
    study = FollowedStudy(file, "broken")
    for _ in range(20):
        assert not study.refresh()
    assert len(read) == 1 and study.fault is not None
    file.write_text("name: still broken\n")
    study.refresh()
    assert len(read) == 2


def test_a_study_that_is_named_by_its_file_and_by_its_folder_is_served_once(tmp_path: Path) -> None:
    file = declare(tmp_path)
    opened = open_study(file)
    session.declare(opened, Ledger(opened.folder.ledger))
    for places in ([file, opened.folder.root], [opened.folder.root, file], [file, opened.folder.root.parent]):
        assert list(Studies(places).by_name) == ["small"], places


def test_a_file_that_is_no_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# nothing\n")
    with pytest.raises(BadInput, match="is no study"):
        Studies([tmp_path / "README.md"])


@pytest.mark.parametrize("name", ["", "http://x/", "x:80/"])
def test_an_allowed_host_is_a_plain_name(study: Path, name: str) -> None:
    with pytest.raises(BadInput, match="is no plain name"):
        make_site([study], ServeOptions(more_hosts=(name,)), 8765)
