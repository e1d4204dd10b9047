"""`dreamproof money`: what the study spent and what it bought."""

from dreamproof.cli.printing import JsonOption, StudyArgument, print_json, print_text


def money(study: StudyArgument, json: JsonOption = False) -> None:
    """Show the money spent, split into useful, wasted and idle, and the forecast."""
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.ledger.lease import living_holder
    from dreamproof.study.money.spending import count_money, money_lines
    from dreamproof.study.plan.on_disk import open_with_disk
    from dreamproof.study.preflight.measured import read_measured
    from dreamproof.study.views.values import money_values

    opened = open_with_disk(study)
    if json:
        print_json(money_values(opened, read_moment()))
        return
    alive = living_holder(opened.folder.lease) is not None
    spending = count_money(opened.state, read_moment(), alive, read_measured(opened.folder.preflight).rates)
    print_text("\n".join(money_lines(spending)))
