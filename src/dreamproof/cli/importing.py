"""`dreamproof import`: runs that were made outside the study."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.base.text import quoted
from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text


def import_runs(
    study: StudyArgument,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="Folder of run folders or logs, one log, or a table of statuses or results."
        ),
    ],
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="NAME",
            help="Names of folders or logs, e.g. '{arm}_s{seed}_{job}'; of evaluations also {condition}.",
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option("--adapter", help="How runs are read, e.g. embodied, sb3 or auto; as in the study file."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option("--jobs", metavar="TABLE", help="Cells of a scheduler's jobs: columns job, seed and perhaps arm."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0-4", help="Seeds of which a table of results gives means.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be imported; record nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Import runs made outside the study: copy nothing, prove what can be proven, list the rest."""
    from dreamproof.study import session
    from dreamproof.study.plan.gap import Selection
    from dreamproof.study.plan.importing.found import ImportOptions
    from dreamproof.study.plan.importing.runs import import_runs as find_runs
    from dreamproof.study.plan.open_study import open_study, refuse_export

    opened = open_study(study)
    refuse_export(opened)
    chosen = Selection.parse(opened.study, None, seeds).seeds
    options = ImportOptions(pattern, adapter, jobs, tuple(sorted(chosen or ())))
    if dry_run:
        result = find_runs(opened, source, options)
    else:
        with session.open_ledger(opened) as ledger:
            session.declare(opened, ledger)
            result = find_runs(opened, source, options)
            session.record_import(opened, ledger, result)
            session.write_manifests(opened)
    if json:
        print_json(
            {
                "proven": result.proven,
                "unproven": result.unproven,
                "not_ours": result.living,
                "aborted": result.aborted,
                "reported": len(result.reported),
                "missing": result.missing,
                "unmatched": result.unmatched,
                "strangers": result.unmatched,
                "recorded": not dry_run,
            }
        )
    else:
        print_text("\n".join(result.lines))
        typer.echo(f"next        dreamproof status {quoted(study)}")
