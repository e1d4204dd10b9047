"""`dreamproof export`: the study as plain tables, for others."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.cli.words import JsonOption, StudyArgument, print_json


def export(
    study: StudyArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Folder, .zip or .tar.gz that is not there yet.")],
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="With the proven checkpoints.")] = False,
    json: JsonOption = False,
) -> None:
    """Write ledger, tables, episodes, costs and reports to a folder or an archive."""
    import time

    from dreamproof.study.exporting import export_study
    from dreamproof.study.opening import open_study

    names = export_study(open_study(study), target, time.time(), checkpoints)
    if json:
        print_json({"target": str(target), "files": names})
    else:
        typer.echo("\n".join(names))
        typer.echo(f"{len(names)} files in {target}")
