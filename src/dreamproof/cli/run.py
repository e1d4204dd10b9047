"""`dreamproof run`: work on exactly what is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamproof.base.errors import BadInput, ExitCode, ReportFailed
from dreamproof.base.files import real_path
from dreamproof.base.text import count_text, money_text, quoted
from dreamproof.cli.printing import ArmsOption, SeedsOption, StudyArgument, print_deprecations, print_text

if TYPE_CHECKING:
    from dreamproof.cli.live import View
    from dreamproof.stats.sequential import NextBatch
    from dreamproof.study.ledger.chain import Ledger
    from dreamproof.study.plan.open_study import OpenStudy
    from dreamproof.study.plan.provenance import Accepted
    from dreamproof.study.supervisor import Ending, Supervisor, SupervisorOptions

DETACH_SECONDS = 30.0


def run(
    context: typer.Context,
    study: StudyArgument,
    arms: ArmsOption = None,
    seeds: SeedsOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; `watch` shows progress.")] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Continue with changed settings or defaults.")
    ] = False,
    accept_changed_code: Annotated[
        bool, typer.Option("--accept-changed-code", help="Continue with changed trainer code; this is recorded.")
    ] = False,
    retry_stopped: Annotated[bool, typer.Option("--retry-stopped", help="Retry stopped cells.")] = False,
    retrain_lost: Annotated[
        bool, typer.Option("--retrain-lost", help="Retrain cells whose proof is gone from disk.")
    ] = False,
    import_from: Annotated[
        Path | None, typer.Option("--import", metavar="SOURCE", help="First import runs, as `import` does.")
    ] = None,
    from_lost_host: Annotated[
        bool, typer.Option("--from-lost-host", help="Take over from a machine that is gone.")
    ] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Skip the preflight.")] = False,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Add planned batches of seeds in all arms until decided, maximum_seeds or the budget.",
        ),
    ] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no reports at the end.")] = False,
    shutdown_again: Annotated[
        bool, typer.Option("--shutdown-again", help="Repeat the shutdown of at_end even if nothing ran since.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="One line per event instead of a live table.")] = False,
) -> None:
    """Train and evaluate what is missing; adopt attempts that already run."""
    import gc

    from dreamproof.study.plan.gap import Selection

    gc.enable()
    if until_decided and (arms is not None or seeds is not None):
        raise _only_whole(study)
    opened = _open(study)
    selection = Selection.parse(opened.study, arms, seeds)
    if detach:
        _detach(opened, rebuild_argv(context, study=real_path(study), detach=False, plain=True), study)
        return

    from dreamproof.cli.live import View
    from dreamproof.study import session
    from dreamproof.study.plan.provenance import Accepted
    from dreamproof.study.supervisor import SupervisorOptions

    with ignore_sighup(), View(plain) as view, session.open_ledger(opened, from_lost_host) as ledger:
        for row in ledger.shortened:
            view.event(row)
        for change in session.prepare_run(opened, ledger, accept_changes, accept_changed_code):
            view.show(change)
        if import_from is not None:
            _import_first(opened, ledger, import_from, view)
        for event in session.settle_lost_proofs(opened, ledger, retrain_lost):
            view.event(event.row())
        if retry_stopped:
            session.reopen(opened, ledger, "run --retry-stopped")
        if not no_check:
            session.preflight(opened, ledger, view.show)
        options = SupervisorOptions(
            selection,
            Accepted(accept_changes, accept_changed_code),
            from_lost_host=from_lost_host,
            on_tick=view.tick,
            on_event=view.event,
        )
        ending = _supervise(opened, ledger, options, view, _EndOptions(not no_report, until_decided, shutdown_again))
    _print_end(opened, ending, study, reports=not no_report)


def _only_whole(study: Path) -> BadInput:
    return BadInput(
        "--until-decided declares seeds for all arms, so --arms and --seeds cannot go with it",
        f"dreamproof run {quoted(study)} --until-decided",
    )


def _open(study: Path) -> "OpenStudy":
    """The study, which is no export, after everything that is worth a warning."""
    from dreamproof.study.plan.open_study import open_study, refuse_export

    opened = open_study(study)
    refuse_export(opened)
    print_deprecations(opened.folder.declaration if study.is_dir() else study)
    _warn_of_late_changes(opened)
    return opened


def _warn_of_late_changes(opened: "OpenStudy") -> None:
    """Says before anything is trained what was changed after results were known."""
    if not opened.state.attempts and not any(cell.outside for cell in opened.state.cells.values()):
        return
    from dreamproof.report.prospects import late_changes

    for text in late_changes(opened):
        typer.echo(f"warning: {text}", err=True)


def _import_first(opened: "OpenStudy", ledger: "Ledger", source: Path, view: "View") -> None:
    """Imports runs made outside the study before anything is started."""
    from dreamproof.study import session
    from dreamproof.study.plan.importing.runs import import_runs

    result = import_runs(opened, source)
    session.record_import(opened, ledger, result)
    for line in result.lines:
        view.show(line)


@dataclass(frozen=True)
class _EndOptions:
    """What happens when nothing is left to do."""

    reports: bool
    until_decided: bool
    shutdown_again: bool


def _supervise(
    opened: "OpenStudy", ledger: "Ledger", options: "SupervisorOptions", view: "View", after: _EndOptions
) -> "Ending":
    """Works on the gap, then on added batches of seeds; reports and shutdown follow the last one."""
    from dreamproof.cli.report import write_declared
    from dreamproof.study import session
    from dreamproof.study.supervisor import Ending

    while True:
        with session.supervising(opened, ledger, options) as supervisor, _handle_signals(supervisor):
            ending, refusal = supervisor.run(), None
            if after.until_decided and ending is Ending.COMPLETE:
                try:
                    if _add_seeds(opened, ledger, view, options.accepted):
                        continue
                except BadInput as refused:
                    refusal = refused
            if supervisor.code_watch.refusal is not None:
                view.show(supervisor.code_watch.refusal)
            reports = write_declared if after.reports else None
            session.finish(opened, supervisor, ending, view.show, reports, after.shutdown_again)
        if refusal is not None:
            raise refusal
        return ending


NO_MORE_SEEDS = {
    "decided": "all comparisons are decided",
    "not_compared": "no arms are compared",
    "gap": "declared cells are missing",
    "blocked": "a lint blocks all verdicts; see the decision report",
    "maximum": "maximum_seeds is reached",
}


def _add_seeds(opened: "OpenStudy", ledger: "Ledger", view: "View", accepted: "Accepted") -> bool:
    """Declares the next planned batch of seeds; False if no more are needed or allowed."""
    from dreamproof.report import next_seeds
    from dreamproof.study import session

    answer = next_seeds(opened.folder.root)
    if answer.reason == "budget":
        view.show(_over_budget(opened, answer))
        return False
    if not answer.add_seeds:
        view.show(f"no seeds added: {NO_MORE_SEEDS[answer.reason]}")
        return False
    cells = len(opened.study.arms) * (answer.seeds_per_arm - len(opened.study.seeds))
    for change in session.add_seeds(opened, ledger, answer.seeds(opened.study.seeds), accepted):
        view.show(change)
    takes = f"{count_text(cells, 'more cell')} in all arms"
    if answer.price:
        takes += f", about {money_text(answer.price, opened.study.money.currency)}"
    view.show(f"not decided: continuing with {answer.seeds_per_arm} seeds per arm, {takes}")
    return True


def _over_budget(opened: "OpenStudy", batch: "NextBatch") -> str:
    """Why the budget lets no batch of seeds start, and what to do."""
    from dreamproof.report.rounding import digits_apart
    from dreamproof.study.money.budget import money_reserve

    currency = opened.study.money.currency
    price, left = batch.price or 0.0, batch.money_left or 0.0
    digits = digits_apart(price, left, 2)
    needed, rest = (money_text(amount, currency, digits) for amount in (price, left))
    kept = money_text(money_reserve(opened.study).money, currency)
    return (
        f"no seeds added: the next batch takes about {needed}; of the budget {rest} are left for it, and {kept} are "
        "kept back for saving and reports. Raise money.budget, then "
        f"dreamproof run {quoted(opened.named)} --until-decided"
    )


@contextmanager
def ignore_sighup() -> Iterator[None]:
    """SIGHUP (a closed terminal) is ignored; SIGINT and SIGTERM end this process and its probes.

    SIGINT is handled even if it was ignored at the start, as a shell script does for commands in the background.
    """
    import signal

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    handlers: dict[int, Any] = {signal.SIGHUP: signal.SIG_IGN, signal.SIGINT: leave, signal.SIGTERM: leave}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _handle_signals(supervisor: "Supervisor") -> Iterator[None]:
    """Ctrl-C saves and stops; a second Ctrl-C, or SIGTERM, leaves the attempts running."""
    import signal

    def interrupt(number: int, frame: object) -> None:
        if supervisor.finishing:
            raise KeyboardInterrupt
        if supervisor.asked is None:
            supervisor.ask_to_stop("Ctrl-C")
        else:
            supervisor.leave = True

    def terminate(number: int, frame: object) -> None:
        supervisor.leave = True

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_end(opened: "OpenStudy", ending: "Ending", study: Path, reports: bool) -> None:
    """Prints the status of the study and exits with the code of the ending."""
    from dreamproof.cli.status import overview_text
    from dreamproof.study import session
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.plan.on_disk import require_values, show_disk
    from dreamproof.study.supervisor import Ending
    from dreamproof.study.views.overview import make_overview

    typer.echo(f"\n{ending.value}\n")
    overview = make_overview(show_disk(opened), read_moment(), is_released=True)
    print_text(overview_text(opened, overview, str(study)))
    if not reports:
        typer.echo("\nreport      not written (--no-report)")
    elif ending is not Ending.LEFT:
        _print_answer(opened)
    session.require_proofs(opened)
    if ending in (Ending.COMPLETE, Ending.SELECTION_DONE):
        require_values(opened)
    if opened.state.shutdown_failed:
        typer.echo(f"shutdown    {opened.state.shutdown}", err=True)
        raise typer.Exit(ExitCode.SHUTDOWN_FAILED)
    codes = {
        Ending.COMPLETE: ExitCode.OK,
        Ending.SELECTION_DONE: ExitCode.OK,
        Ending.BUDGET: ExitCode.BUDGET_REACHED,
        Ending.LEFT: ExitCode.INTERRUPTED,
        Ending.STOPPED: ExitCode.INTERRUPTED,
    }
    lost = ending is Ending.COMPLETE and not overview.complete
    code = ExitCode.GAP_REMAINS if lost else codes.get(ending, ExitCode.GAP_REMAINS)
    if reports and code is ExitCode.OK and opened.state.report_failures:
        raise ReportFailed(f"not written: {opened.state.report_failures[0]}", f"dreamproof report {quoted(study)}")
    raise typer.Exit(code)


def _print_answer(opened: "OpenStudy") -> None:
    """Prints the answer to the declared question and the paths of its report and figures, if there are reports."""
    if not opened.state.reports:
        return
    from dreamproof.report import plain_answer

    typer.echo(f"\nquestion    {opened.study.question}")
    typer.echo(f"answer      {plain_answer(opened.folder.root)}\n")
    for label, ending in (("report", "decision.html"), ("trails", "trails.png")):
        for name in opened.state.reports:
            if name.endswith(ending):
                typer.echo(f"{label}      {opened.folder.root / name}")


def rebuild_argv(context: typer.Context, **changed: Any) -> list[str]:
    """The arguments of this call, with some of them changed."""
    values = context.params | changed
    argv = [str(context.command.name)]
    for parameter in context.command.params:
        value = values.get(str(parameter.name))
        if parameter.param_type_name == "argument":
            argv.append(str(value))
        elif value is True:
            argv.append(parameter.opts[0])
        elif value not in (None, False):
            argv += [parameter.opts[0], str(value)]
    return argv


def _detach(opened: "OpenStudy", argv: list[str], study: Path) -> None:
    """Starts the same run in its own session and waits until it has the lease of the study."""
    import os
    import subprocess
    import sys
    import time

    from dreamproof.base.errors import Busy
    from dreamproof.base.files import open_own_file, read_tail
    from dreamproof.study.ledger.lease import living_holder

    holder = living_holder(opened.folder.lease)
    if holder is not None:
        raise Busy(f"{study}: already supervised by process {holder.process_id}", f"dreamproof watch {quoted(study)}")
    log = opened.folder.supervisor_log
    log.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_own_file(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dreamproof.cli.main", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until = time.monotonic() + DETACH_SECONDS
    while time.monotonic() < until and process.poll() is None:
        holder = living_holder(opened.folder.lease)
        if holder is not None and holder.process_id == process.pid:
            typer.echo(f"process {process.pid} runs the study; its output goes to {log}")
            typer.echo(f"next        dreamproof watch {quoted(study)}")
            return
        time.sleep(0.05)
    if process.poll() == 0:
        print_text(read_tail(log, 4096))
        return
    raise BadInput(f"the run ended immediately: {read_tail(log, 2048).strip()}", f"dreamproof run {quoted(study)}")
