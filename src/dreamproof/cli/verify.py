"""`dreamproof verify`: does the disk still hold what the ledger claims?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamproof.base.errors import BrokenEvidence, ExitCode
from dreamproof.base.text import quoted
from dreamproof.cli.printing import JsonOption, StudyArgument, print_json

if TYPE_CHECKING:
    from dreamproof.study.views.verify import FaultOf


def verify(
    study: StudyArgument,
    quick: Annotated[bool, typer.Option("--quick", help="Check records and sizes, not every byte.")] = False,
    json: JsonOption = False,
) -> None:
    """Check chain, files, hashes and proofs, and name the first thing that is broken."""
    from dreamproof.study.plan.on_disk import open_with_disk
    from dreamproof.study.views.verify import FaultOf, Inspection
    from dreamproof.study.views.verify import verify as inspect

    if is_run_folder(study):
        _verify_run(study, json)
        return
    is_export = False
    try:
        opened = open_with_disk(study)
        is_export = opened.folder.is_export
        found = inspect(opened, check_content=not quick)
    except BrokenEvidence as error:
        found = Inspection(faults=[error.seen], kind=FaultOf.CHAIN)
    if json:
        from dataclasses import asdict

        print_json(asdict(found))
        raise typer.Exit(ExitCode.BROKEN_EVIDENCE if found.faults else ExitCode.OK)
    if found.faults:
        others = f"\n  and {len(found.faults) - 1} more" if len(found.faults) > 1 else ""
        raise BrokenEvidence(
            f"first broken: {found.faults[0]}{others}",
            f"{_remedy(found.kind, study, is_export)}; dreamproof verify {quoted(study)} --json lists all",
        )
    typer.echo(
        f"verified: {found.events:,} events, {found.train_proofs} trained cells, {found.eval_proofs} evaluations"
    )
    for note in found.notes:
        typer.echo(f"note: {note}")


def _remedy(kind: "FaultOf | None", study: Path, is_export: bool) -> str:
    """What repairs a fault without losing more than it names."""
    from dreamproof.study.views.verify import FaultOf

    run = f"dreamproof run {quoted(study)}"
    others = {
        FaultOf.LEDGER: f"{run} (it takes in what the run folders prove)",
        FaultOf.DECLARATION: f"{run} (it copies the study file again)",
        FaultOf.EVALUATION: f"{run} (it puts a changed file aside and evaluates again)",
        FaultOf.CHECKPOINT: (
            f"{run} --retrain-lost (it puts changed files aside and trains again what a result needs, "
            "not the deleted weights of evaluated cells)"
        ),
        FaultOf.FILE: f"repair it, then {run}",
    }
    restore = "restore the file from a copy"
    return restore if is_export or kind not in others else f"{restore}, or {others[kind]}"


def is_run_folder(place: Path) -> bool:
    """Whether this is the folder of one run, and not of a study."""
    return (place / "settings.json").is_file() and not (place / "ledger.jsonl").exists()


def _verify_run(place: Path, json: bool) -> None:
    """The same for one run folder, from its files alone."""
    from dreamproof.runs.layout import RunFolder
    from dreamproof.runs.resolved import NOT_STORED, read_resolved
    from dreamproof.study.views.verify import verify_run

    run = RunFolder(place)
    faults, record = verify_run(run), read_resolved(run)
    settings = f"settings {record.hash[:12]}" if record is not None else f"settings {NOT_STORED}"
    if json:
        print_json({"faults": faults, "resolved_hash": record.hash if record is not None else None})
        raise typer.Exit(ExitCode.BROKEN_EVIDENCE if faults else ExitCode.OK)
    if faults:
        raise BrokenEvidence(f"first broken: {place}: {faults[0]}", f"restore the file from a copy of {place}")
    typer.echo(f"verified: {len(run.checkpoint_folders())} checkpoints, {settings}")
