"""A report is the same bytes whoever makes it again: from the study, from an export of it, or after `run` ended."""

from pathlib import Path

from dreamproof.report import write_all
from dreamproof.runs.layout import StudyFolder
from dreamproof.study.ledger import events
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.views.exporting import export_study
from dreamproof.testing.made_study import START, Plan, make_study

SMALL = Plan(arms=("baseline", "full"), seeds=3)


def content(root: Path) -> dict[str, bytes]:
    folder = StudyFolder(root)
    places = (folder.tables, folder.figures, folder.reports)
    return {str(path.relative_to(root)): path.read_bytes() for place in places for path in sorted(place.rglob("*"))}


def test_an_export_gives_the_report_of_its_study(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", SMALL)
    write_all(root)
    export_study(open_study(root), tmp_path / "export", START + 1e6)
    kept = content(tmp_path / "export")
    for name in kept:
        (tmp_path / "export" / name).unlink()
    write_all(tmp_path / "export")
    assert content(tmp_path / "export") == kept == content(root)


def test_a_report_is_the_same_after_its_run_has_ended(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", SMALL)
    write_all(root, figures=False)
    before = content(root)
    ledger = Ledger(StudyFolder(root).ledger, clock=lambda: Moment(START + 1e6))
    ledger.append(events.ReportWritten(["reports/decision.md"]), durable=False)
    ledger.append(events.SupervisorEnded("nothing left to do"), durable=False)
    ledger.close()
    write_all(root, figures=False)
    assert content(root) == before
