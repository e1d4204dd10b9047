"""The part of the appendix about single tasks, in a study over several."""

from dreamproof.report.context import ReportContext
from dreamproof.report.data import Group
from dreamproof.report.document import Block, Bullets, Heading, Paragraph, Table
from dreamproof.report.documents.tables import range_text
from dreamproof.report.numbers import number_text
from dreamproof.report.prose import mean_sd
from dreamproof.report.tasks import TaskStatements, task_metrics, task_statements, task_tables

DECIMALS = 3


def task_blocks(context: ReportContext) -> list[Block]:
    """Means and IQM over tasks, a table of all tasks, and what tests say task by task; nothing for a single task."""
    analysis, texts = context.analysis, context.texts
    over, other = over_tasks_table(context), analysis.evidence.other_score
    if over is None:
        return []
    blocks: list[Block] = [
        Heading(texts("tasks.title"), 3),
        over,
        Paragraph(texts("list.sentences").join([texts("tasks.interval_note"), *other_score_note(context)])),
        _table(context, analysis.evidence.study.metric.name),
    ]
    statements = {arm: task_statements(analysis, arm) for arm in analysis.treatments}
    compared = [_statement(context, arm, found) for arm, found in statements.items() if found.compared]
    blocks += [Bullets(compared)] if compared else []
    if other is not None:
        blocks += [Heading(texts("tasks.other_title", metric=other.metric), 3), _table(context, other.metric)]
    return blocks


def other_score_note(context: ReportContext) -> list[str]:
    """What the other normalisation means, that it does not decide, and what it leaves out; none without it.

    Why it is not shown, where too many tasks would be left out.
    """
    texts, evidence = context.texts, context.analysis.evidence
    other, hidden = evidence.other_score, evidence.hidden_score
    if hidden is not None:
        counts = {"missing": len(hidden.left_out), "count": len(evidence.study.tasks or [])}
        return [texts("tasks.not_shown", metric=hidden.metric, **counts)]
    if other is None:
        return []
    notes = [texts(f"tasks.{other.metric}")]
    if other.left_out:
        notes.append(texts("tasks.left_out", metric=other.metric, tasks=context.listing(other.left_out)))
    if other.arms_without:
        arms = context.both([f"`{arm}`" for arm in other.arms_without])
        notes.append(texts("tasks.arms_without", metric=other.metric, arms=arms))
    return notes


def over_tasks_table(context: ReportContext) -> Table | None:
    """Mean and IQM over tasks of every arm, of the deciding score and the other one; None for a single task."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    evidence = analysis.evidence
    if evidence.study.tasks is None or not task_tables(analysis):
        return None
    rows = []
    for metric, tasks in task_metrics(evidence).items():
        for arm in task_tables(analysis, metric):
            key = f"over_tasks.{arm}.{metric}"
            interval = range_text(token(f"{key}_low"), token(f"{key}_high"))
            by_seed = mean_sd(context, Group(arm, evidence.primary_condition, metric))
            found = [token(f"{key}.mean"), by_seed, token(f"{key}.iqm"), interval]
            rows.append([arm, metric, str(len(tasks)), *found])
    over = "iqm" if evidence.study.decides is not None and evidence.study.decides.over == "iqm" else "mean"
    names = ("table.arm", "table.metric", "tasks.count", "tasks.mean", f"tasks.by_seed_{over}", "tasks.iqm")
    return Table([texts(name) for name in (*names, "tasks.interval")], rows, left=(0, 1))


def _table(context: ReportContext, metric: str) -> Table:
    """One row per task: every arm's mean ± sd, then what scripted policies and the recorded data reach."""
    evidence = context.analysis.evidence
    tasks = evidence.study.tasks or []
    floors = list(dict.fromkeys(name for task in tasks for name in evidence.floors.get(task, {})))
    below = {name: [evidence.floors.get(task, {}).get(name, {}).get(metric) for task in tasks] for name in floors}
    known = [name for name in floors if any(value is not None for value in below[name])]
    rows = []
    for place, task in enumerate(tasks):
        cells = [mean_sd(context, Group(arm, task, metric)) for arm in evidence.arms]
        rows.append([task, *cells, *(number_text(below[name][place], DECIMALS) for name in known)])
    return Table([context.texts("tasks.task"), *evidence.arms, *known], rows)


def _statement(context: ReportContext, arm: str, found: TaskStatements) -> str:
    facts = {"arm": arm, "reference": context.reference, "higher": found.higher, "count": found.compared}
    nothing = context.texts("tasks.none")
    lists = {name: context.listing(getattr(found, name)) or nothing for name in ("better", "worse")}
    return context.texts("tasks.statement", **facts, **lists)
