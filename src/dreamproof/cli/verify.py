"""`dreamproof verify`: does the disk still hold what the ledger claims?"""

from typing import Annotated

import typer

from dreamproof.base.errors import BrokenEvidence, ExitCode
from dreamproof.cli.words import JsonOption, StudyArgument, print_json


def verify(
    study: StudyArgument,
    quick: Annotated[bool, typer.Option("--quick", help="Look at sizes and records, not at every byte.")] = False,
    json: JsonOption = False,
) -> None:
    """Check chain, files, hashes and proofs, and name the first thing that is broken."""
    from dreamproof.study.opening import open_study
    from dreamproof.study.verify import Inspection
    from dreamproof.study.verify import verify as inspect

    try:
        found = inspect(open_study(study), check_content=not quick)
    except BrokenEvidence as error:
        found = Inspection(faults=[error.seen])
    if json:
        from dataclasses import asdict

        print_json(asdict(found))
        raise typer.Exit(ExitCode.BROKEN_EVIDENCE if found.faults else ExitCode.OK)
    if found.faults:
        others = f"\n  and {len(found.faults) - 1} more" if len(found.faults) > 1 else ""
        raise BrokenEvidence(
            f"first broken: {found.faults[0]}{others}",
            f"put the file back from a copy; dreamproof verify {study} --json names all",
        )
    for note in found.notes:
        typer.echo(f"note        {note}")
    typer.echo(f"whole: {found.events:,} events, {found.train_proofs} trained cells, {found.eval_proofs} evaluations")
