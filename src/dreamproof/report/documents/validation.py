"""How training went by its validations: final, area and peak of every arm, and each collapse by its cell."""

from dreamproof.report.data import TrainFacts
from dreamproof.report.document import Block, Bullets, Heading, Paragraph, Table
from dreamproof.report.numbers import DASH
from dreamproof.report.prose import Telling
from dreamproof.report.validation import PARTS, fallen_cells

MOST_LINES = 20


def validation_blocks(telling: Telling) -> list[Block]:
    """Heading, how to read it, the table, and what happened to single cells; nothing where no run kept anything."""
    words, table = telling.words, validation_table(telling)
    lines = [line for facts in fallen_cells(telling.analysis.evidence) for line in _falls(telling, facts)]
    lines += _ended_before(telling)
    if table is None and not lines:
        return []
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], words("validation.more", count=len(lines) - MOST_LINES)]
    blocks: list[Block] = [Heading(words("validation.title"), 3), Paragraph(words("validation.note"))]
    blocks += [table] if table is not None else []
    return [*blocks, Bullets(lines) if lines else Paragraph(words("validation.no_falls"))]


def validation_table(telling: Telling) -> Table | None:
    """Arms by final, area and peak of the validation return, mean ± sd over trained seeds; None where none is kept."""
    words, token = telling.words, telling.numbers.token
    rows = []
    for arm, found in telling.analysis.validation.items():
        key = f"validation.{arm}"
        row = [arm, token(f"{key}.seeds")]
        for part in PARTS:
            mean, sd = token(f"{key}.{part}"), token(f"{key}.{part}_sd")
            row.append(mean if sd == DASH else f"{mean} ± {sd}")
        rows.append([*row, str(found.collapses), str(found.rollbacks)])
    names = ("table.seeds", *(f"validation.{part}" for part in PARTS), "validation.collapses", "validation.rollbacks")
    return Table([words("table.arm"), *(words(name) for name in names)], rows) if rows else None


def _falls(telling: Telling, facts: TrainFacts) -> list[str]:
    """One line a recorded fall; one for those that only the summary counts."""
    words, cell = telling.words, facts.cell
    lines = []
    for count, fall in enumerate(facts.collapses, start=1):
        key = f"validation.{cell.arm}.fall{count}"
        told = {
            "cell": str(cell),
            "agent_steps": f"{fall.agent_steps:,}",
            "value": telling.numbers.token(f"{key}_to.seed{cell.seed}"),
            "best": telling.numbers.token(f"{key}_from.seed{cell.seed}"),
            "best_steps": f"{fall.best_agent_steps:,}",
        }
        if fall.rolled_back_to is None:
            lines.append(words("validation.left", **told))
        else:
            lines.append(words("validation.rolled_back", **told, target=f"{fall.rolled_back_to:,}"))
    if facts.collapse_count > len(facts.collapses):
        counts = {"collapses": facts.collapse_count, "rollbacks": facts.rollback_count}
        lines.append(words("validation.counted", cell=str(cell), **counts))
    return lines


def _ended_before(telling: Telling) -> list[str]:
    """Trained cells whose last validation is older than their proven checkpoint."""
    cells = telling.analysis.evidence.cells
    return [
        telling.words(
            "validation.early",
            cell=str(cell),
            validated=f"{summary.final_agent_steps:,}",
            trained=f"{cells[cell].agent_steps:,}",
        )
        for found in telling.analysis.validation.values()
        for cell, summary in found.summaries.items()
        if summary.final_agent_steps < cells[cell].agent_steps
    ]
