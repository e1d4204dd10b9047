"""`dreamproof watch`: the live view of a study supervised by another process."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy
    from dreamproof.study.views.overview import Overview

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
SHORTEST_SECONDS = 0.2


def watch(
    study: StudyArgument,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Between updates: 2, 30s, 5m or 1h.")] = "2s",
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Append lines with the time to a file instead.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the status once and exit.")] = False,
    json: JsonOption = False,
) -> None:
    """Show progress until nothing runs; read-only."""
    import gc
    import time

    from dreamproof.cli.output import is_gone
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.plan.on_disk import open_with_disk
    from dreamproof.study.views.overview import make_overview
    from dreamproof.study.views.running import OVER

    seconds = parse_interval(every)
    gc.enable()
    while True:
        opened = open_with_disk(study, numbers_only=True)
        overview = make_overview(opened, read_moment())
        if log is not None:
            _append(opened, overview, log)
        elif json:
            print_json(overview.as_json())
        else:
            _draw(opened, overview, str(study), once)
        alive = overview.supervisor is not None or any(one.liveness not in OVER for one in overview.running)
        if once or not alive or is_gone():
            return
        time.sleep(seconds)


def parse_interval(text: str) -> float:
    """Seconds of 2, 30s, 5m or 1h."""
    from dreamproof.base.errors import BadInput

    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "s")
    try:
        seconds = float(number) * UNITS[unit]
    except ValueError:
        seconds = 0.0
    if not SHORTEST_SECONDS <= seconds < float("inf"):
        raise BadInput(f"--every {text}: is not a time of at least {SHORTEST_SECONDS:g} s", "write e.g. --every 5m")
    return seconds


def _draw(opened: "OpenStudy", overview: "Overview", study: str, once: bool) -> None:
    import sys

    from dreamproof.cli.running import terminal_width
    from dreamproof.cli.status import overview_text

    if sys.stdout.isatty() and not once:
        typer.echo("\x1b[2J\x1b[H", nl=False)
    print_text(overview_text(opened, overview, study, terminal_width()))


def _append(opened: "OpenStudy", overview: "Overview", log: Path) -> None:
    """Adds the state at this time to a file."""
    from dreamproof.base.safe_text import printable
    from dreamproof.cli.running import log_lines

    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"{printable(line)}\n" for line in log_lines(overview, opened.study.metric.name))
