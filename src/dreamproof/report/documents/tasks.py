"""The part of the appendix about single tasks, in a study over several."""

from dreamproof.report.data import Group
from dreamproof.report.document import Block, Bullets, Heading, Paragraph, Table
from dreamproof.report.documents.tables import range_text
from dreamproof.report.numbers import number_text
from dreamproof.report.prose import ReportContext, mean_sd
from dreamproof.report.tasks import over_tasks, task_statements, task_tables

DECIMALS = 3


def task_blocks(context: ReportContext) -> list[Block]:
    """Means and IQM over tasks, a table of all tasks, and what tests say task by task; nothing for a single task."""
    analysis, texts = context.analysis, context.texts
    tasks = analysis.evidence.study.tasks
    if tasks is None or not task_tables(analysis):
        return []
    return [
        Heading(texts("tasks.title"), 3),
        _over_tasks(context),
        Paragraph(texts("tasks.interval_note")),
        _table(context, tasks),
        *([Bullets([_statement(context, arm) for arm in analysis.treatments])] if analysis.treatments else []),
    ]


def _over_tasks(context: ReportContext) -> Table:
    texts, rows = context.texts, []
    for arm, table in task_tables(context.analysis).items():
        found = over_tasks(table)
        ends = (found.interval.low, found.interval.high) if found.interval is not None else (None, None)
        interval = range_text(*(number_text(end, DECIMALS) for end in ends))
        rows.append([arm, number_text(found.mean, DECIMALS), number_text(found.iqm, DECIMALS), interval])
    return Table([texts("table.arm"), texts("tasks.mean"), texts("tasks.iqm"), texts("tasks.interval")], rows)


def _table(context: ReportContext, tasks: list[str]) -> Table:
    """One row per task: every arm's mean ± sd, then what scripted policies and the recorded data reach."""
    evidence = context.analysis.evidence
    metric = evidence.study.metric.name
    floors = list(dict.fromkeys(name for task in tasks for name in evidence.floors.get(task, {})))
    rows = []
    for task in tasks:
        below = [evidence.floors.get(task, {}).get(name, {}).get(metric) for name in floors]
        cells = [mean_sd(context, Group(arm, task, metric)) for arm in evidence.arms]
        rows.append([task, *cells, *(number_text(value, DECIMALS) for value in below)])
    return Table([context.texts("tasks.task"), *evidence.arms, *floors], rows)


def _statement(context: ReportContext, arm: str) -> str:
    found = task_statements(context.analysis, arm)
    facts = {"arm": arm, "reference": context.reference, "higher": found.higher, "count": found.compared}
    nothing = context.texts("tasks.none")
    lists = {name: context.listing(getattr(found, name)) or nothing for name in ("better", "worse")}
    return context.texts("tasks.statement", **facts, **lists)
