"""`dreamproof report`: write the reports of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamproof.base.errors import BadInput
from dreamproof.base.text import quoted
from dreamproof.cli.printing import JsonOption, StudyArgument, print_json

if TYPE_CHECKING:
    from dreamproof.settings.running import UpdatedDocument
    from dreamproof.study.plan.open_study import OpenStudy
    from dreamproof.study.session import ReportOutcome


def report(
    study: StudyArgument,
    language: Annotated[
        str | None,
        typer.Option("--language", metavar="en|zh-Hans|zh-Hant", help="Only this language; else those of the study."),
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option("--update", metavar="FILE", help="Only update the bound numbers of a Markdown file."),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            "--mapping", metavar="FILE", help="Which of its numbers are bound, in addition to its anchors, or auto."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --update: show the diff and write nothing.")] = False,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="With --update: print a mapping proposed from the file's own tables.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write tables, figures and the decision report from what is proven."""
    from dreamproof.study.plan.on_disk import require_ledger, require_values
    from dreamproof.study.plan.open_study import open_study

    opened = open_study(study)
    if update is not None:
        if suggest:
            _suggest(opened, update)
        else:
            _update(opened, update, mapping, dry_run)
        return
    require_ledger(opened)
    _require_runs(opened)
    languages = [language] if language is not None else opened.study.report.languages
    files = [path for one in languages for path in write_reports(opened, one)]
    if json:
        print_json([str(path) for path in files])
    else:
        typer.echo("\n".join(map(str, files)))
    require_values(opened)


def _require_runs(opened: "OpenStudy") -> None:
    """Raises BrokenEvidence if proven cells have no run folders: good reports are not replaced by empty ones."""
    from dreamproof.base.errors import BrokenEvidence

    runs, cells = opened.folder.runs, opened.state.cells.values()
    is_needed = any(cell.proof is not None and cell.source is None for cell in cells)
    if is_needed and not runs.is_dir() and not opened.folder.archive.is_file():
        raise BrokenEvidence(
            f"{runs}: is not there, so there are no values to report",
            f"put it back, then dreamproof report {quoted(opened.named)}",
        )


def write_reports(opened: "OpenStudy", language: str = "en") -> list[Path]:
    """Writes every document of a study; returns their files."""
    from dreamproof.report import write_all

    if not opened.folder.ledger.exists() and not opened.folder.imported.is_dir():
        raise BadInput(
            f"{opened.folder.root}: nothing has run, so there is nothing to report",
            f"dreamproof run {quoted(opened.named)}",
        )
    return write_all(opened.folder.root, language, declared=opened.study)


def write_declared(opened: "OpenStudy") -> "ReportOutcome":
    """Everything that the study declares: reports in every language, then the user's own documents.

    What fails is named; the rest is written all the same, for nobody is there at night.
    """
    from dreamproof.study.plan.on_disk import require_values
    from dreamproof.study.session import ReportOutcome

    outcome = ReportOutcome()
    for language in opened.study.report.languages:
        with outcome.noting(f"report in {language}"):
            outcome.files += write_reports(opened, language)
    with outcome.noting("reports"):
        require_values(opened)
    for document in opened.study.report.update:
        with outcome.noting(document.file):
            outcome.files += _update_declared(opened, document)
    if any("decision" in one.on for one in opened.study.notify):
        from dreamproof.report import plain_answer

        with outcome.noting("answer for notifications"):
            outcome.answer = plain_answer(opened.folder.root)
    return outcome


def _update_declared(opened: "OpenStudy", document: "UpdatedDocument") -> list[Path]:
    """Brings a declared Markdown file up to date."""
    from dreamproof.report import AUTO, update_markdown

    place = opened.base_folder / document.file
    is_file = document.mapping not in (None, AUTO)
    mapping = opened.base_folder / str(document.mapping) if is_file else document.mapping
    found = update_markdown(opened.folder.root, place, mapping, opened.study)
    if found.bound == 0:
        suggest = f"dreamproof report {quoted(opened.named)} --update {quoted(place)} --suggest > mapping.yaml"
        raise BadInput(
            f"{place}: no number is bound, so nothing was updated", f"{suggest}, then name it as its 'mapping'"
        )
    if found.changes:
        found.write()
    return [place]


def _update(opened: "OpenStudy", document: Path, mapping: Path | None, dry_run: bool) -> None:
    """Shows what changes in a user's own Markdown, and changes it."""
    from dreamproof.report import AUTO, update_markdown

    found = update_markdown(opened.folder.root, document, AUTO if mapping == Path(AUTO) else mapping, opened.study)
    if found.bound == 0:
        typer.echo(
            f"{document}: no number is bound, so nothing is kept up to date\n"
            f"hint: dreamproof report {quoted(opened.named)} --update {quoted(document)} --suggest > mapping.yaml"
        )
        return
    typer.echo(found.diff or f"{document}: {found.bound} bound numbers, all up to date", nl=not found.diff)
    for key in found.unclear_units:
        typer.echo(f"{key}: the unit or the text behind its number is not clear; its number was left alone", err=True)
    for key in found.unknown_values:
        typer.echo(f"{key} has no value yet; its number was left alone", err=True)
    if found.changes and not dry_run:
        found.write()


def _suggest(opened: "OpenStudy", document: Path) -> None:
    """Prints a mapping to be checked by its author."""
    from dreamproof.report import suggest_mapping

    lines = suggest_mapping(opened.folder.root, document, opened.study)
    if not lines:
        raise BadInput(
            f"{document}: no table has a row named after an arm and a column named after a condition",
            "put <!--dp:KEY--> before a number; the keys are in tables/numbers.csv",
        )
    typer.echo("# Proposed from the headers of the tables: check every line, then use it with --mapping.")
    typer.echo("\n".join(lines))
