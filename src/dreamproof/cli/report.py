"""`dreamproof report`: write the reports of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamproof.base.errors import BadInput
from dreamproof.cli.printing import JsonOption, StudyArgument, print_json

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy


def report(
    study: StudyArgument,
    language: Annotated[
        str, typer.Option("--language", metavar="en|zh-Hans|zh-Hant", help="Language of the reports.")
    ] = "en",
    update: Annotated[
        Path | None,
        typer.Option("--update", metavar="FILE", help="Only update the bound numbers of a Markdown file."),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", metavar="FILE", help="Which of its numbers are bound, in addition to its anchors."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --update: show the diff and write nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Write tables, figures and the decision report from what is proven."""
    from dreamproof.study.plan.open_study import open_study

    opened = open_study(study)
    if update is not None:
        _update(opened, update, mapping, dry_run)
        return
    files = write_reports(opened, language)
    if json:
        print_json([str(path) for path in files])
    else:
        typer.echo("\n".join(map(str, files)))


def write_reports(opened: "OpenStudy", language: str = "en") -> list[Path]:
    """Writes every document of a study; returns their files."""
    from dreamproof.report import write_all

    if not opened.folder.ledger.exists() and not opened.folder.imported.is_dir():
        raise BadInput(
            f"{opened.folder.root}: nothing has run, so there is nothing to report", f"dreamproof run {opened.file}"
        )
    return write_all(opened.folder.root, language, declared=opened.study)


def _update(opened: "OpenStudy", document: Path, mapping: Path | None, dry_run: bool) -> None:
    """Shows what changes in a user's own Markdown, and changes it."""
    from dreamproof.report import update_markdown

    found = update_markdown(opened.folder.root, document, mapping, opened.study)
    typer.echo(found.diff or f"{document}: {found.bound} bound numbers, all up to date", nl=not found.diff)
    for key in found.unknown_values:
        typer.echo(f"{key} has no value yet; its number was left alone", err=True)
    if found.changes and not dry_run:
        found.write()
