"""`dreamproof import`: runs that were made outside the study."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text


def import_runs(
    study: StudyArgument,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Folder with run folders, or a status table (TSV).")],
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="NAME", help="Folder names, e.g. '{arm}_s{seed}'.")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option("--adapter", help="How runs are read, e.g. embodied, sb3 or auto; as in the study file."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported; record nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Import finished runs: copy nothing, prove what can be proven, list the rest."""
    from dreamproof.study import session
    from dreamproof.study.plan.importing import ImportOptions
    from dreamproof.study.plan.importing import import_runs as find_runs
    from dreamproof.study.plan.open_study import open_study

    opened = open_study(study)
    options = ImportOptions(pattern, adapter)
    if dry_run:
        result = find_runs(opened, source, options)
    else:
        with session.open_ledger(opened) as ledger:
            session.declare(opened, ledger)
            result = find_runs(opened, source, options)
            session.record(opened, ledger, *result.events)
            session.write_manifests(opened)
    if json:
        found = {"proven": result.proven, "unproven": result.unproven, "missing": result.missing}
        print_json({**found, "unmatched": result.unmatched, "strangers": result.unmatched, "recorded": not dry_run})
    else:
        print_text("\n".join(result.lines))
        typer.echo(f"next        dreamproof status {study}")
