"""`dreamproof watch`: the live view of a study supervised by another process."""

from typing import Annotated

import typer

from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text


def watch(
    study: StudyArgument,
    every: Annotated[float, typer.Option("--every", help="Seconds between updates.", min=0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show the status once and exit.")] = False,
    json: JsonOption = False,
) -> None:
    """Show progress until nothing runs; read-only."""
    import gc
    import sys
    import time

    from dreamproof.cli.output import is_gone
    from dreamproof.cli.status import overview_text
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.plan.open_study import open_study
    from dreamproof.study.views.overview import make_overview

    gc.enable()
    while True:
        opened = open_study(study, numbers_only=True)
        overview = make_overview(opened, read_moment())
        if json:
            print_json(overview.as_json())
        else:
            if sys.stdout.isatty() and not once:
                typer.echo("\x1b[2J\x1b[H", nl=False)
            print_text(overview_text(opened, overview, str(study)))
        if once or overview.supervisor is None or is_gone():
            return
        time.sleep(every)
