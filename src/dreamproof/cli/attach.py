"""`dreamproof attach`: the run of somebody else that works on a cell."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.base.text import quoted
from dreamproof.cli.printing import CellArgument, JsonOption, StudyArgument, print_json, print_text


def attach(
    study: StudyArgument,
    cell: CellArgument,
    pid: Annotated[int | None, typer.Option("--pid", metavar="N", help="Process of the run, on this machine.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Run folder; found by --pid where that is possible.")
    ] = None,
    adapter: Annotated[str | None, typer.Option("--adapter", help="How the run is read; as in the study file.")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="The attached run is over: take in what it left.")] = False,
    json: JsonOption = False,
) -> None:
    """Attach a run that you started yourself: it is watched, never started twice, and adopted when it ends."""
    from dreamproof.study import session
    from dreamproof.study.plan.importing.attach import AttachOptions
    from dreamproof.study.plan.importing.attach import attach as find_run
    from dreamproof.study.plan.open_study import declared_cell, open_study

    opened = open_study(study)
    wanted = declared_cell(opened, cell)
    with session.open_ledger(opened) as ledger:
        session.declare(opened, ledger)
        result = find_run(opened, wanted, AttachOptions(pid, folder, adapter, ended))
        session.record(opened, ledger, *result.events)
        session.write_manifests(opened)
    if json:
        print_json({"proven": result.proven, "unproven": result.unproven, "not_ours": result.living})
    else:
        print_text("\n".join(result.lines))
        typer.echo(f"next        dreamproof {'run' if result.living else 'status'} {quoted(study)}")
