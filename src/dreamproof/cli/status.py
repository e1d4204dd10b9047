"""`dreamproof status`: the whole declared matrix, what runs, what is missing."""

from typing import TYPE_CHECKING

from dreamproof.base.text import quoted, shown_conditions
from dreamproof.cli.printing import JsonOption, StudyArgument, next_of_budget, next_of_complete, print_json, print_text

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy
    from dreamproof.study.views.overview import Overview

MAX_LISTED = 12
MARKS = {"proven": "+", "running": ">", "dead": "x", "stopped": "!", "unproven": "?", "waiting": "~", "missing": "."}
MARKS |= {"quarantined": "q", "not_saved": "s", "running_not_ours": "o"}
MAX_COLUMNS = 40
MAX_ROWS = 40


def status(study: StudyArgument, json: JsonOption = False) -> None:
    """Show the whole declared matrix: proven, running, missing."""
    from dreamproof.cli.running import terminal_width
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.plan.on_disk import open_with_disk
    from dreamproof.study.plan.provenance import find_refusal
    from dreamproof.study.views.overview import make_overview

    opened = open_with_disk(study, numbers_only=True)
    overview = make_overview(opened, read_moment())
    if json:
        from dreamproof.study.views.values import status_values

        print_json(status_values(opened, overview))
    else:
        refusal = find_refusal(opened) if overview.supervisor is None else None
        if refusal is not None:
            overview.notices.append(f"the next run refuses: {refusal.seen}")
        print_text(overview_text(opened, overview, str(study), terminal_width(), refusal is not None))


def overview_text(
    opened: "OpenStudy", overview: "Overview", study: str, width: int | None = None, is_refused: bool = False
) -> str:
    """The status as a person reads it, in lines of at most `width` columns; the next command is never cut.

    is_refused: `run` would refuse, and `plan` shows why.
    """
    from dreamproof.base.text import duration_text
    from dreamproof.cli.running import fit, running_table
    from dreamproof.study.money.spending import WITHOUT_EVALUATIONS

    parts = [f"{overview.name}: {overview.question}", f"folder      {overview.folder}", _supervisor_line(overview)]
    parts.append(f"train       {_counts(overview.train)}")
    parts.append(f"evaluate    {_counts(overview.evaluate)}")
    if overview.running or overview.supervisor is not None:
        of_what = WITHOUT_EVALUATIONS if overview.without_evaluations else "for the whole study"
        parts.append(f"left        {duration_text(overview.seconds_left)} {of_what}")
    grid = _grid(opened, overview, width)
    if grid:
        parts += ["", grid, "            + proven  > running  x dead  ~ waiting  . missing  ! stopped  ? unproven"]
        parts[-1] += "  q quarantined" if overview.quarantined else ""
        parts[-1] += "  s not saved" if overview.not_saved else ""
        parts[-1] += "  o running (not ours)" if overview.train.get("running_not_ours") else ""
    if overview.running:
        table = running_table(overview.running, opened.study.metric.name, width)
        parts += ["", table, *_stalled_lines(overview)]
    parts += _missing_lines(overview) + _stopped_lines(overview)
    parts += [f"note        {notice}" for notice in overview.notices]
    command = f"dreamproof plan {quoted(study)}" if is_refused else _next_command(opened, overview, study)
    return "\n".join([fit("\n".join(parts), width), f"next        {command}"])


def _supervisor_line(overview: "Overview") -> str:
    if overview.supervisor is None:
        return "supervisor  none"
    return f"supervisor  process {overview.supervisor['process_id']} on {overview.supervisor['host']}"


def _counts(counts: dict[str, int]) -> str:
    from dreamproof.study.ledger.status import status_text

    declared = counts["declared"]
    parts = [f"{counts.get('proven', 0)}/{declared} proven"]
    parts += [
        f"{count} {status_text(status)}"
        for status, count in counts.items()
        if status not in ("declared", "proven") and count
    ]
    return ", ".join(parts)


def _grid(opened: "OpenStudy", overview: "Overview", terminal: int | None) -> str:
    """One mark per cell, arms down, seeds across; without spaces or left out if it would not fit."""
    from dreamproof.runs.layout import Cell
    from dreamproof.study.ledger.status import as_seen, train_status
    from dreamproof.study.views.overview import seen_cells

    state, study, seen = opened.state, opened.study, seen_cells(overview.running)
    if len(study.seeds) > MAX_COLUMNS or len(study.arms) > MAX_ROWS:
        return ""
    width = max(2, max(len(str(seed)) for seed in study.seeds))
    name_width = max(10, *(len(arm) for arm in study.arms))
    narrow = terminal is not None and name_width + 2 + (width + 1) * len(study.seeds) > terminal
    between, width = ("", 1) if narrow else (" ", width)
    heads = between.join(str(seed)[-1:] if narrow else str(seed).rjust(width) for seed in study.seeds)
    lines = ["seed".ljust(name_width) + "  " + heads]
    for arm in study.arms:
        cells = [state.cells[Cell(arm, seed)] for seed in study.seeds]
        statuses = [as_seen(train_status(state, cell), seen.get(("train", str(cell.cell)))) for cell in cells]
        marks = [MARKS[status].rjust(width) for status in statuses]
        lines.append(arm.ljust(name_width) + "  " + between.join(marks))
    return "\n".join(lines)


def _stalled_lines(overview: "Overview") -> list[str]:
    """Why an attempt counts as stalled, as it was when that was first seen."""
    own = {one.attempt: one.reason for one in overview.running if one.liveness == "stalled" and not one.is_foreign}
    others = {one.cell: one.reason for one in overview.running if one.is_foreign}
    lines = _shortened([f"not ours    {cell}: {reason}" for cell, reason in others.items()])
    return lines + _shortened([f"stalled     {attempt}: {reason}" for attempt, reason in own.items()])


def _missing_lines(overview: "Overview") -> list[str]:
    """What is not proven, whether it runs, waits or is missing; the head counts each of these."""
    from dreamproof.study.views.overview import seeds_text

    lines = [f"not proven  train {arm}: seeds {seeds_text(seeds)}" for arm, seeds in overview.missing_train.items()]
    alike: dict[tuple[str, str], list[str]] = {}
    for condition, arms in overview.missing_evaluate.items():
        for arm, seeds in arms.items():
            alike.setdefault((arm, seeds_text(seeds)), []).append(condition)
    for (arm, shown_seeds), conditions in alike.items():
        named = shown_conditions(conditions)
        lines += [f"not proven  evaluate {condition} {arm}: seeds {shown_seeds}" for condition in named]
    return ([""] if lines else []) + _shortened(lines)


def _stopped_lines(overview: "Overview") -> list[str]:
    quarantined = [f"quarantine  {cell}: {reason}" for cell, reason in overview.quarantined.items()]
    lines = [f"stopped     {cell}: {reason}" for cell, reason in overview.stopped.items()]
    unproven = [f"unproven    {cell}: {why}" for cell, why in overview.unproven.items()]
    return _shortened(quarantined) + _shortened(lines) + _shortened(unproven) + _not_saved_lines(overview)


def _not_saved_lines(overview: "Overview") -> list[str]:
    """What was trained to its end and is on no disk: cells, hours, money and the remedy."""
    from dreamproof.base.text import count_text, duration_text, money_text
    from dreamproof.study.ledger.status import SAVE_REMEDY

    if not overview.not_saved:
        return []
    cells = count_text(len(overview.not_saved), "cell")
    money = money_text(overview.not_saved_money, overview.currency)
    spent = f"{duration_text(overview.not_saved_seconds)}, money {money}"
    lines = [f"not saved   {cell}: {reason}" for cell, reason in overview.not_saved.items()]
    return [*_shortened(lines), f"not saved   {cells} in all: {spent}", f"remedy      {SAVE_REMEDY}"]


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_LISTED:
        return lines
    return [*lines[:MAX_LISTED], f"            and {len(lines) - MAX_LISTED} more (--json lists all)"]


def _next_command(opened: "OpenStudy", overview: "Overview", study: str) -> str:
    from dreamproof.study.money.budget import money_reserve

    if overview.complete:
        return next_of_complete(opened, study)
    if opened.folder.is_export:
        return f"dreamproof verify {quoted(study)}"
    if overview.supervisor is not None:
        return f"dreamproof watch {quoted(study)}"
    if overview.quarantined and not overview.stopped:
        return f"dreamproof why {quoted(study)} {next(iter(overview.quarantined))}"
    if overview.stopped or (overview.not_saved and not overview.train.get("missing")):
        return f"dreamproof why {quoted(study)} {next(iter({**overview.stopped, **overview.not_saved}))}"
    reached, budget = opened.state.budget_reached, opened.study.money.budget
    if reached is not None and budget is not None and reached + money_reserve(opened.study).money >= budget:
        return next_of_budget(study)
    return f"dreamproof run {quoted(study)}"
