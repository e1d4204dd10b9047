"""`dreamproof export`: the study as plain tables, for others."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text


def export(
    study: StudyArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="New folder, .zip or .tar.gz.")],
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Include the proven checkpoints.")] = False,
    outside: Annotated[
        list[Path] | None,
        typer.Option("--outside", metavar="FOLDER", help="Also include checkpoints of imported runs in this folder."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write ledger, tables, episodes, money and reports to a folder or an archive."""
    import time

    from dreamproof.study.plan.open_study import open_study
    from dreamproof.study.views.exporting import export_study

    places = tuple(outside or ())
    names = export_study(open_study(study), target, time.time(), checkpoints or bool(places), places)
    if json:
        print_json({"target": str(target), "files": names})
    else:
        print_text("\n".join(names))
        typer.echo(f"{len(names)} files in {target}")
