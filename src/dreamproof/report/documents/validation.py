"""Validation returns over training: final, area and peak of every arm, and each collapse by its cell."""

from dreamproof.report.context import ReportContext
from dreamproof.report.data import TrainFacts
from dreamproof.report.document import Block, Bullets, Heading, Paragraph, Table
from dreamproof.report.numbers import DASH
from dreamproof.report.validation import PARTS, fallen_cells

MAX_LINES = 20


def validation_blocks(context: ReportContext) -> list[Block]:
    """Heading, how to read it, the table, and what happened to single cells; nothing if no run recorded any."""
    texts, table = context.texts, validation_table(context)
    lines = [line for facts in fallen_cells(context.analysis.evidence) for line in _falls(context, facts)]
    lines += _ended_before(context)
    if table is None and not lines:
        return []
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], texts("validation.more", count=len(lines) - MAX_LINES)]
    blocks: list[Block] = [Heading(texts("validation.title"), 3), Paragraph(texts("validation.note"))]
    blocks += [table] if table is not None else []
    return [*blocks, Bullets(lines) if lines else Paragraph(texts("validation.no_falls"))]


def validation_table(context: ReportContext) -> Table | None:
    """Arms by final, area and peak of the validation return, mean ± sd over trained seeds; None if none is recorded."""
    texts, token = context.texts, context.numbers.token
    rows = []
    for arm, found in context.analysis.validation.items():
        key = f"validation.{arm}"
        row = [arm, token(f"{key}.seeds")]
        for part in PARTS:
            mean, sd = token(f"{key}.{part}"), token(f"{key}.{part}_sd")
            row.append(mean if sd == DASH else f"{mean} ± {sd}")
        rows.append([*row, str(found.collapses), str(found.rollbacks)])
    names = ("table.seeds", *(f"validation.{part}" for part in PARTS), "validation.collapses", "validation.rollbacks")
    return Table([texts("table.arm"), *(texts(name) for name in names)], rows) if rows else None


def _falls(context: ReportContext, facts: TrainFacts) -> list[str]:
    """One line per recorded collapse; one for those that only the summary counts."""
    texts, cell = context.texts, facts.cell
    lines = []
    for count, fall in enumerate(facts.collapses, start=1):
        key = f"validation.{cell.arm}.fall{count}"
        values = {
            "cell": str(cell),
            "agent_steps": f"{fall.agent_steps:,}",
            "value": context.numbers.token(f"{key}_to.seed{cell.seed}"),
            "best": context.numbers.token(f"{key}_from.seed{cell.seed}"),
            "best_steps": f"{fall.best_agent_steps:,}",
        }
        if fall.rolled_back_to is None:
            lines.append(texts("validation.left", **values))
        else:
            lines.append(texts("validation.rolled_back", **values, target=f"{fall.rolled_back_to:,}"))
    if facts.collapse_count > len(facts.collapses):
        counts = {"collapses": facts.collapse_count, "rollbacks": facts.rollback_count}
        lines.append(texts("validation.counted", cell=str(cell), **counts))
    return lines


def _ended_before(context: ReportContext) -> list[str]:
    """Trained cells whose last validation is older than their proven checkpoint."""
    cells = context.analysis.evidence.cells
    return [
        context.texts(
            "validation.early",
            cell=str(cell),
            validated=f"{summary.final_agent_steps:,}",
            trained=f"{cells[cell].agent_steps:,}",
        )
        for found in context.analysis.validation.values()
        for cell, summary in found.summaries.items()
        if summary.final_agent_steps < cells[cell].agent_steps
    ]
