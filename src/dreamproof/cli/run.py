"""`dreamproof run`: work on exactly what is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dreamproof.base.errors import BadInput, ExitCode
from dreamproof.cli.words import ArmsOption, SeedsOption, StudyArgument, print_deprecations, print_text

if TYPE_CHECKING:
    from dreamproof.cli.live import View
    from dreamproof.study.ledger.chain import Ledger
    from dreamproof.study.plan.open_study import OpenStudy
    from dreamproof.study.supervisor import Ending, Options, Supervisor

DETACH_SECONDS = 30.0


def run(
    study: StudyArgument,
    arms: ArmsOption = None,
    seeds: SeedsOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Work in the background; `watch` shows it.")] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although settings changed: typed ones, or a default.")
    ] = False,
    accept_changed_code: Annotated[
        bool, typer.Option("--accept-changed-code", help="Go on although other code trained what is there; recorded.")
    ] = False,
    retry_stopped: Annotated[bool, typer.Option("--retry-stopped", help="Try stopped cells again.")] = False,
    retrain_lost: Annotated[
        bool, typer.Option("--retrain-lost", help="Train cells again whose proof is gone from disk.")
    ] = False,
    from_lost_host: Annotated[
        bool, typer.Option("--from-lost-host", help="Take the study from a machine that is gone.")
    ] = False,
    no_check: Annotated[bool, typer.Option("--no-check", help="Start without a preflight.")] = False,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Add seeds in planned batches, up to maximum_seeds and the budget.")
    ] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no reports at the end.")] = False,
    shutdown_again: Annotated[
        bool, typer.Option("--shutdown-again", help="Do the shutdown of at_end again although nothing was done since.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="One line an event instead of a live table.")] = False,
) -> None:
    """Train and evaluate what is missing; adopt what already runs."""
    import gc

    from dreamproof.study.plan.gap import Selection
    from dreamproof.study.plan.open_study import open_study

    gc.enable()
    opened = open_study(study)
    print_deprecations(opened.folder.declaration if study.is_dir() else study)
    selection = Selection.parse(opened.study, arms, seeds)
    if detach:
        words = _words_again(study, arms, seeds)
        flags = {
            "--accept-changes": accept_changes,
            "--accept-changed-code": accept_changed_code,
            "--retry-stopped": retry_stopped,
            "--retrain-lost": retrain_lost,
            "--from-lost-host": from_lost_host,
            "--no-check": no_check,
            "--until-decided": until_decided,
            "--no-report": no_report,
            "--shutdown-again": shutdown_again,
        }
        _detach(opened, [*words, *(flag for flag, on in flags.items() if on)], study)
        return

    from dreamproof.cli.live import View
    from dreamproof.study import session
    from dreamproof.study.supervisor import Options

    with deaf_to_hangup(), View(plain) as view, session.held(opened, from_lost_host) as ledger:
        for change in session.prepare_run(opened, ledger, accept_changes, accept_changed_code):
            view.say(change)
        session.settle_lost_proofs(opened, ledger, retrain_lost)
        if retry_stopped:
            session.reopen(opened, ledger, "run --retry-stopped")
        if not no_check:
            session.preflight(opened, ledger, view.say)
        options = Options(selection, from_lost_host=from_lost_host, on_tick=view.tick, on_event=view.event)
        ending = _supervise(opened, ledger, options, view, _After(not no_report, until_decided, shutdown_again))
    _tell_end(opened, ending, study)


@dataclass(frozen=True)
class _After:
    """What follows when nothing is left to do."""

    reports: bool
    until_decided: bool
    shutdown_again: bool


def _supervise(opened: "OpenStudy", ledger: "Ledger", options: "Options", view: "View", after: _After) -> "Ending":
    """Works on the gap, batch after batch where seeds may be added; reports and shutdown follow the last one."""
    from dreamproof.cli.report import write_reports
    from dreamproof.study import session
    from dreamproof.study.supervisor import Ending

    while True:
        with session.supervising(opened, ledger, options) as supervisor, _hearing_signals(supervisor):
            ending = supervisor.run()
            if after.until_decided and ending is Ending.COMPLETE and _add_seeds(opened, ledger, view):
                continue
            if supervisor.refusal is not None:
                view.say(supervisor.refusal)
            reports = write_reports if after.reports else None
            session.finish(opened, supervisor, ending, view.say, reports, after.shutdown_again)
        return ending


NO_MORE_SEEDS = {
    "decided": "every comparison is decided",
    "gap": "declared cells are missing",
    "blocked": "a lint forbids any verdict; see the decision report",
    "maximum": "the declared maximum of seeds is reached",
    "budget": "the next batch would go beyond the budget",
}


def _add_seeds(opened: "OpenStudy", ledger: "Ledger", view: "View") -> bool:
    """Declares the next planned batch of seeds; False where no more are needed or allowed, and says why."""
    from dreamproof.report import next_seeds
    from dreamproof.study import session

    answer = next_seeds(opened.folder.root)
    if not answer.go_on:
        view.say(f"no seeds are added: {NO_MORE_SEEDS[answer.reason]}")
        return False
    opened.study = opened.study.model_copy(update={"seeds": answer.seeds(opened.study.seeds)})
    session.declare(opened, ledger)
    view.say(f"not decided: going on to {answer.seeds_per_arm} seeds an arm")
    return True


@contextmanager
def deaf_to_hangup() -> Iterator[None]:
    """A closed terminal or a dropped connection ends nothing; a polite kill ends this process and what it probes."""
    import signal

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    hangup = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    terminate = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, hangup)
        signal.signal(signal.SIGTERM, terminate)


@contextmanager
def _hearing_signals(supervisor: "Supervisor") -> Iterator[None]:
    """Ctrl-C saves and stops, a second one leaves the attempts running, as a polite kill does."""
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


def _tell_end(opened: "OpenStudy", ending: "Ending", study: Path) -> None:
    """Says how the study stands and leaves with the exit code of the ending."""
    from dreamproof.cli.status import status_text
    from dreamproof.study import session
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.supervisor import Ending
    from dreamproof.study.views.overview import make_overview

    typer.echo(f"\n{ending.value}\n")
    print_text(status_text(opened, make_overview(opened, read_moment()), str(study)))
    _tell_answer(opened)
    session.require_proofs(opened)
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
    raise typer.Exit(codes.get(ending, ExitCode.GAP_REMAINS))


def _tell_answer(opened: "OpenStudy") -> None:
    """The answer to the declared question, then where its report and its pictures lie; nothing without reports."""
    if not opened.state.reports:
        return
    from dreamproof.report import plain_answer

    typer.echo(f"\nquestion    {opened.study.question}")
    typer.echo(f"answer      {plain_answer(opened.folder.root)}\n")
    for word, ending in (("report", "decision.html"), ("trails", "trails.png")):
        for name in opened.state.reports:
            if name.endswith(ending):
                typer.echo(f"{word}      {opened.folder.root / name}")


def _words_again(study: Path, arms: str | None, seeds: str | None) -> list[str]:
    words = ["run", str(study.resolve()), "--plain"]
    words += ["--arms", arms] if arms else []
    return words + (["--seeds", seeds] if seeds else [])


def _detach(opened: "OpenStudy", words: list[str], study: Path) -> None:
    """Starts the same run in a session of its own and waits until it holds the study."""
    import os
    import subprocess
    import sys
    import time

    from dreamproof.base.errors import Busy
    from dreamproof.base.files import open_own_file, read_tail
    from dreamproof.study.ledger.lease import living_holder

    holder = living_holder(opened.folder.lease)
    if holder is not None:
        raise Busy(f"{study}: supervised by process {holder.process_id}", f"dreamproof watch {study}")
    log = opened.folder.supervisor_log
    log.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_own_file(log, os.O_WRONLY | os.O_APPEND), "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dreamproof.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until = time.monotonic() + DETACH_SECONDS
    while time.monotonic() < until and process.poll() is None:
        holder = living_holder(opened.folder.lease)
        if holder is not None and holder.process_id == process.pid:
            typer.echo(f"process {process.pid} works on it; what it says goes to {log}")
            typer.echo(f"next        dreamproof watch {study}")
            return
        time.sleep(0.05)
    if process.poll() == 0:
        print_text(read_tail(log, 4096))
        return
    raise BadInput(f"the run ended at once: {read_tail(log, 2048).strip()}", f"dreamproof run {study}")
