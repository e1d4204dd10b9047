"""`dreamproof check`: the preflight."""

from typing import TYPE_CHECKING

import typer

from dreamproof.base.text import quoted
from dreamproof.cli.printing import JsonOption, StudyArgument, print_deprecations, print_json, print_text

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy


def _prospects(opened: "OpenStudy") -> list[str]:
    """What would forbid a verdict, and the smallest study that could decide, at the speed just measured."""
    from dreamproof.report.prospects import find_prospects
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.money.spending import spent_and_forecast
    from dreamproof.study.preflight.measured import read_measured

    rates = read_measured(opened.folder.preflight).rates
    spent, forecast = spent_and_forecast(opened.state, read_moment(), True, rates)
    return find_prospects(opened, forecast, spent, rates).lines(opened.study.money.currency)


def check(study: StudyArgument, json: JsonOption = False) -> None:
    """Start every arm once in its real environment, before anything is spent."""
    from dreamproof.base.errors import ExitCode, PreflightError
    from dreamproof.base.files import read_json
    from dreamproof.cli.run import ignore_sighup
    from dreamproof.study import session
    from dreamproof.study.adapters import study_format
    from dreamproof.study.plan.open_study import open_study
    from dreamproof.study.preflight.local import summary_lines

    opened = open_study(study)
    print_deprecations(opened.folder.declaration if study.is_dir() else study)

    def show(text: str) -> None:
        if not json:
            print_text(text)

    with ignore_sighup(), session.open_ledger(opened) as ledger:
        session.prepare_run(opened, ledger, accept_changes=False)
        try:
            result = session.preflight(opened, ledger, show, again=True)
        except PreflightError:
            if not json:
                raise
            print_json(read_json(opened.folder.preflight))
            raise typer.Exit(ExitCode.PREFLIGHT_FAILED) from None
    if json:
        print_json(read_json(opened.folder.preflight))
    elif result is not None:
        print_text("\n".join([*summary_lines(result, study_format(opened.study)), *_prospects(opened)]))
        typer.echo(f"next        dreamproof run {quoted(study)}")
