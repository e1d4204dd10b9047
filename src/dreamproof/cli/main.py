"""The `dreamproof` command: one verb per file; heavy imports happen inside the verb that needs them."""

import errno
import gc
import sys
from typing import Annotated, NoReturn, TextIO, cast

import typer

from dreamproof.base.errors import DreamproofError, ExitCode
from dreamproof.base.files import is_full
from dreamproof.base.safe_text import printable
from dreamproof.base.text import quoted
from dreamproof.cli import (
    attach,
    check,
    data,
    examples,
    export,
    importing,
    init,
    money,
    plan,
    report,
    run,
    schema,
    serve,
    status,
    stop,
    tasks,
    verify,
    watch,
    why,
)
from dreamproof.cli.output import Output
from dreamproof.version import __version__

HELP = """Declare a study once, run what is missing, see why each attempt ended, decide on evidence.

STUDY is the YAML file of a study or its results folder.

Exit codes: 0 done, 1 unexpected, 2 bad input, 3 something is still missing, 4 preflight failed,
5 the study has another supervisor, 6 broken evidence, 7 budget reached, 8 shutdown failed,
9 a report was not written, 130 interrupted.
"""

# Errors that the permissions or the kind of a file explain.
SEEN_BY_LISTING = {"EACCES", "EPERM", "EROFS", "ELOOP", "EINVAL", "EISDIR", "ENOTDIR", "ENOTEMPTY"}
# Errors of words that the parser refuses; Typer names only one of their kinds.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for name, verb in (
    ("init", init.init),
    ("plan", plan.plan),
    ("check", check.check),
    ("run", run.run),
    ("status", status.status),
    ("watch", watch.watch),
    ("serve", serve.serve),
    ("why", why.why),
    ("stop", stop.stop),
    ("money", money.money),
    ("verify", verify.verify),
    ("report", report.report),
    ("export", export.export),
    ("import", importing.import_runs),
    ("attach", attach.attach),
    ("schema", schema.schema),
    ("examples", examples.examples),
    ("tasks", tasks.tasks),
):
    app.command(name)(verb)
app.add_typer(data.app, name="data")
app.command("cost", hidden=True)(money.money)  # its earlier name


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"dreamproof {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    del version


def main() -> None:
    """Runs a verb; an error that a person can fix is printed with its hint and exit code."""
    # Garbage collection of a large study takes longer than a short command saves.
    gc.disable()
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, Output(sys.stdout)), cast(TextIO, Output(sys.stderr))
    try:
        sys.exit(app(prog_name="dreamproof", standalone_mode=False))
    except UsageError as error:
        _exit_with_usage(error)
    except typer.Abort:
        _exit_with("aborted", code=ExitCode.UNEXPECTED)
    except DreamproofError as error:
        _exit_with(error.seen, error.hint, error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except OSError as error:
        _exit_with_os_error(error)
    finally:
        sys.stdout, sys.stderr = streams
        gc.enable()


def _print_json_error(message: str, hint: str, code: ExitCode) -> None:
    """The same error for a program that asked for JSON; people read it on stderr."""
    if "--json" in sys.argv:
        from dreamproof.cli.printing import print_json

        print_json({"error": {"message": message, "hint": hint, "exit_code": int(code)}})


def _exit_with_usage(error: typer.BadParameter) -> NoReturn:
    """Reports words that no verb takes, with the usage on stderr."""
    words = error.ctx.command_path if error.ctx is not None else "dreamproof"
    _print_json_error(error.format_message(), f"{words} --help", ExitCode.BAD_INPUT)
    error.show()
    sys.exit(error.exit_code)


def _exit_with_os_error(error: OSError) -> NoReturn:
    """Reports an error of the system; a failing disk is a failure, whatever was done before."""
    place, again = printable(str(error.filename or "the study folder")), "then run the same command again"
    if is_full(error):
        _exit_with(f"the disk of {place} is full", f"df -h; free some space, {again}")
    if errno.errorcode.get(error.errno or 0) in SEEN_BY_LISTING:
        _exit_with(f"{place}: {error.strerror}", f"ls -ld {quoted(place)}; {again}")
    reason = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'no error number')})"
    _exit_with(f"{place}: {reason}", f"dmesg | tail; {again}", ExitCode.UNEXPECTED)


def _exit_with(message: str, hint: str = "", code: ExitCode = ExitCode.BAD_INPUT) -> NoReturn:
    _print_json_error(message, hint, code)
    print(f"error: {printable(message)}" + (f"\n  hint: {printable(hint)}" if hint else ""), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
