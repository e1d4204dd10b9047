"""`dreamproof stop`: save and stop what was started."""

from typing import TYPE_CHECKING, Annotated

import typer

from dreamproof.base.text import quoted
from dreamproof.cli.printing import StudyArgument

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy

POLL_SECONDS = 0.2


def stop(
    study: StudyArgument,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait until everything has stopped.")] = 120.0,
) -> None:
    """Let every running attempt save its checkpoint, then stop it and the supervisor."""
    import getpass
    import time
    from contextlib import suppress

    from dreamproof.base.errors import Busy
    from dreamproof.base.files import write_json
    from dreamproof.study.ledger.lease import living_holder
    from dreamproof.study.plan.open_study import find_folder, open_study

    folder = find_folder(study)  # a running study can be stopped even if its ledger is damaged
    if living_holder(folder.lease) is None:
        with suppress(Busy):  # a supervisor took the study in between: it is asked like any other
            _stop_alone(open_study(study))
            return
    write_json(folder.stop_request, {"by": getpass.getuser(), "unix_seconds": time.time()})
    until = time.monotonic() + wait
    while time.monotonic() < until:
        if living_holder(folder.lease) is None:
            typer.echo("stopped; all checkpoints are kept")
            typer.echo(f"next        dreamproof run {quoted(study)}")
            return
        time.sleep(POLL_SECONDS)
    raise Busy(f"{study}: still stopping after {wait:g} s", f"dreamproof watch {quoted(study)}")


def _stop_alone(opened: "OpenStudy") -> None:
    """Without a living supervisor: takes the lease and stops the attempts that live."""
    from dreamproof.study import session
    from dreamproof.study.supervisor import SupervisorOptions

    if not opened.state.open_attempts:
        typer.echo("nothing is running")
        return
    with (
        session.open_ledger(opened) as ledger,
        session.supervising(opened, ledger, SupervisorOptions(drain=True)) as supervisor,
    ):
        supervisor.run()
    typer.echo("stopped; no attempt of this study is running")
