"""What every arm reached at its final and at its selected checkpoint, side by side."""

from dreamproof.report.context import ReportContext
from dreamproof.report.data import FINAL, SELECTED, Group
from dreamproof.report.document import Block, Heading, Paragraph, Table
from dreamproof.report.documents.tables import column_title
from dreamproof.report.numbers import DASH
from dreamproof.report.prose import mean_sd


def checkpoint_blocks(context: ReportContext, level: int = 2) -> list[Block]:
    """Heading, table and how to read it; nothing unless both checkpoints of an arm were evaluated."""
    table, texts = checkpoint_table(context), context.texts
    if table is None:
        return []
    return [Heading(texts("checkpoints.title"), level), table, Paragraph(texts("checkpoints.note"))]


def checkpoint_table(context: ReportContext) -> Table | None:
    """Arms by the deciding metric and every limited one, each at both checkpoints; None if no arm has both."""
    evidence, texts = context.analysis.evidence, context.texts
    places = _places(context)
    if not any(_has_both(context, Group(arm, places[0][1], places[0][0])) for arm in evidence.arms):
        return None
    rows = [[arm, _earlier(context, arm), *_cells(context, arm, places)] for arm in evidence.arms]
    columns = [column_title(context, (*place, name)) for place in places for name in (FINAL, SELECTED)]
    return Table([texts("table.arm"), texts("checkpoints.earlier"), *columns], rows)


def _places(context: ReportContext) -> list[tuple[str, str]]:
    """(metric, condition): the deciding metric where it decides, every limited one in the first one for limits."""
    evidence = context.analysis.evidence
    decides = evidence.study.decides
    limited = evidence.primary_condition if decides is None else decides.limited[0]
    metrics = [limit.name for limit in evidence.study.limits if limit.name != evidence.study.metric.name]
    return [(evidence.study.metric.name, evidence.primary_condition), *((metric, limited) for metric in metrics)]


def _cells(context: ReportContext, arm: str, places: list[tuple[str, str]]) -> list[str]:
    """Final and selected values of an arm at every place; a dash for a selected one that has other seeds."""
    cells = []
    for metric, condition in places:
        final = Group(arm, condition, metric)
        selected = mean_sd(context, Group(arm, condition, metric, SELECTED)) if _has_both(context, final) else DASH
        cells += [mean_sd(context, final), selected]
    return cells


def _has_both(context: ReportContext, final: Group) -> bool:
    """Whether the selected checkpoints of the same seeds were evaluated."""
    values = context.analysis.evidence.values
    selected = Group(final.arm, final.condition, final.metric, SELECTED)
    return final in values and values[final].keys() == values.get(selected, {}).keys()


def _earlier(context: ReportContext, arm: str) -> str:
    """How many trained cells have a selected checkpoint from before their end, of those that have one."""
    facts = [one for one in context.analysis.evidence.cells.values() if one.cell.arm == arm and one.trained]
    known = [one for one in facts if one.selected_agent_steps is not None]
    earlier = sum(one.selected_agent_steps != one.agent_steps for one in known)
    return context.texts("checkpoints.count", earlier=earlier, cells=len(known)) if known else DASH
