"""Arguments that several verbs share, and plain tables for the terminal."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamproof.base.safe_text import printable
from dreamproof.base.text import quoted
from dreamproof.base.versioned import versioned

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy

StudyArgument = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file (YAML) or study folder.")]
CellArgument = Annotated[str, typer.Argument(metavar="CELL", help="The cell as arm/seed, e.g. baseline/0.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ArmsOption = Annotated[str | None, typer.Option("--arms", metavar="A,B", help="Only these arms, in this call.")]
SeedsOption = Annotated[str | None, typer.Option("--seeds", metavar="0-2,4", help="Only these seeds, in this call.")]


def print_text(text: str) -> None:
    """Prints a text that may hold parts of logs and received files: nothing in it moves the cursor or sets a colour."""
    typer.echo(printable(text))


def print_deprecations(file: Path) -> None:
    """Prints one note for every renamed key that a study file uses under its old name; to stderr, beside any JSON."""
    from dreamproof.settings.study_file import deprecation_notes

    for note in deprecation_notes(file):
        typer.echo(printable(note), err=True)


def print_json(value: Any) -> None:
    """Prints a value as JSON, a mapping with the version of its keys."""
    if isinstance(value, dict):
        value = versioned(value)
    print_text(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their widest text; numbers are for the caller to format."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in [header, *rows]]
    return "\n".join(line.rstrip() for line in lines)


def next_of_budget(named: str) -> str:
    """What to do with a study whose budget lets nothing start."""
    return f"raise money.budget in the study file, then dreamproof run {quoted(named)}"


def next_of_complete(opened: "OpenStudy", named: str) -> str:
    """What to do with a study in which nothing is missing; `named` is what a person called it."""
    report, study = f"dreamproof report {quoted(named)}", opened.study
    if opened.folder.is_export or study.maximum_seeds is None or len(study.seeds) >= study.maximum_seeds:
        return report
    return f"{report}; where it is not decided: dreamproof run {quoted(named)} --until-decided"
