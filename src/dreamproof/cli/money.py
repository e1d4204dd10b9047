"""`dreamproof money`: what the study spent and what it bought."""

from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text


def money(study: StudyArgument, json: JsonOption = False) -> None:
    """Show the money spent, split into useful, wasted and idle, and the forecast."""
    from dataclasses import asdict

    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.ledger.lease import living_holder
    from dreamproof.study.money.spending import count_money, money_lines
    from dreamproof.study.plan.open_study import open_study
    from dreamproof.study.preflight.measured import read_measured

    opened = open_study(study)
    alive = living_holder(opened.folder.lease) is not None
    spending = count_money(opened.state, read_moment(), alive, read_measured(opened.folder.preflight).rates)
    if not json:
        print_text("\n".join(money_lines(spending)))
        return
    values = asdict(spending)
    values.pop("study")
    values["imported_seconds"] = spending.imported_ms / 1000
    values |= {"total_ms": spending.total_ms, "total_money": spending.total_money}
    values |= {"currency": opened.study.money.currency, "budget": opened.study.money.budget}
    print_json(values)
