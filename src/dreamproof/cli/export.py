"""`dreamproof export`: the study as plain tables, for others."""

from pathlib import Path
from typing import Annotated

import typer

from dreamproof.base.errors import BrokenEvidence, ExitCode
from dreamproof.base.text import count_text, quoted
from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text

MAX_LISTED = 12


def export(
    study: StudyArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="New folder, .zip or .tar.gz.")],
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Include the proven checkpoints.")] = False,
    outside: Annotated[
        list[Path] | None,
        typer.Option("--outside", metavar="FOLDER", help="Also include checkpoints of imported runs in this folder."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="ARM/SEED", help="Write the trained policy of one cell as TARGET instead."),
    ] = None,
    policies: Annotated[
        bool,
        typer.Option("--policies", help="Write the policies of all kept checkpoints to the folder TARGET."),
    ] = False,
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="With --policy: final or selected.")] = "final",
    task: Annotated[str | None, typer.Option("--task", help="With --policy: which of a study's tasks.")] = None,
    json: JsonOption = False,
) -> None:
    """Write ledger, tables, episodes, money and reports to a folder or an archive; or one trained policy to a file."""
    import time

    from dreamproof.study.plan.on_disk import open_with_disk, require_ledger
    from dreamproof.study.views.exporting import export_study

    _check_options(policy, policies, {"--checkpoint": checkpoint != "final", "--task": task is not None})
    if policy is not None:
        _export_policy(study, target, policy, (checkpoint, task), json)
        return
    if policies:
        from dreamproof.api import load

        files = load(study).write_policies(target)
        if json:
            print_json({"target": str(target), "files": [path.name for path in files]})
        else:
            typer.echo(f"{len(files)} policies in {target}")
        return
    places, opened = tuple(outside or ()), open_with_disk(study)
    require_ledger(opened)
    made = export_study(opened, target, time.time(), checkpoints or bool(places), places)
    if json:
        print_json({"target": str(target), "files": made.files, "left_out": made.left_out})
        raise typer.Exit(ExitCode.BROKEN_EVIDENCE if made.left_out else ExitCode.OK)
    print_text("\n".join(made.files))
    typer.echo(f"{len(made.files)} files in {target}")
    if made.left_out:
        raise BrokenEvidence(
            _left_out_text(made.left_out), f"dreamproof verify {quoted(study)}; left_out.csv in the export lists all"
        )


def _check_options(policy: str | None, policies: bool, details: dict[str, bool]) -> None:
    """Refuses options that would have no effect."""
    from dreamproof.base.errors import BadInput

    if policy is not None and policies:
        raise BadInput("--policy writes one policy, --policies all", "leave one of them out")
    for option, is_given in details.items():
        if is_given and policy is None:
            raise BadInput(f"{option} has no effect without --policy", "add --policy ARM/SEED, or leave it out")


def _left_out_text(left_out: dict[str, str]) -> str:
    """What is not in the export, one line each."""
    lines = [f"  {file}: {reason}" for file, reason in sorted(left_out.items())]
    more = [f"  and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    head = f"{count_text(len(lines), 'file')} left out of the export; everything else is in it:"
    return "\n".join([head, *lines[:MAX_LISTED], *more])


def _export_policy(study: Path, target: Path, cell: str, which: tuple[str, str | None], json: bool) -> None:
    """Writes the policy of a cell to a new file."""
    from dreamproof.api import load
    from dreamproof.base.errors import BadInput
    from dreamproof.study.plan.open_study import declared_cell, open_study

    if target.exists():
        raise BadInput(f"{target}: exists already", "name a new file")
    found = declared_cell(open_study(study), cell)
    size = load(study).write_policy(found.arm, found.seed, target, *which)
    if json:
        print_json({"target": str(target), "bytes": size})
    else:
        typer.echo(
            f"{target}: {size / 2**20:.1f} MiB; in Python: dreamproof.open_policy({str(target)!r}).act(observation)"
        )
