"""What the money bought: useful, wasted, idle, unexplained; per cause and cell; and the shortest path to a decision."""

from dreamproof.report.context import ReportContext
from dreamproof.report.document import Block, Bullets, Document, Heading, Paragraph, Picture, Stamp, Table
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.numbers import number_text
from dreamproof.report.prose import answer, header
from dreamproof.report.spending import Use

MANY_CELLS = 60


def money(context: ReportContext, pictures: list[str]) -> Document:
    """The recap of hours and money."""
    texts, spending = context.texts, context.analysis.spending
    evidence = context.analysis.evidence
    price = context.money(evidence.study.money.price_per_gpu_hour)
    document = Document(texts("money.title", name=evidence.study.name), texts.language)
    document.add(Bullets(header(context)))
    document.add(Stamp("answer", texts("money.short"), in_short(context)))
    document.add(Heading(texts("money.uses")), _uses(context))
    if spending.paid is not None:
        lines = [texts("money.bill_line", what=line.what, amount=context.money(line.amount)) for line in evidence.bill]
        document.add(Paragraph(texts("money.bill_note")), Bullets(lines))
    document.add(Paragraph(texts("money.price_note", price=price)))
    if spending.suspended_seconds or spending.clock_changes:
        document.add(Paragraph(_clock_note(context)))
    if "money" in pictures:
        document.add(Picture("money", texts("figure.money")))
    document.add(Heading(texts("money.causes")), *_causes(context))
    document.add(Heading(texts("money.cells")), *_cells(context))
    document.add(Heading(texts("money.artefacts")), Bullets(_artefacts(context)))
    document.add(Heading(texts("money.shortest")), Bullets(next_steps(context)))
    document.add(Paragraph(answer(context)))
    return document


def in_short(context: ReportContext) -> str:
    """Money and hours by use and what they bought, in two sentences."""
    texts, spending = context.texts, context.analysis.spending
    token = context.numbers.token
    treatments = context.analysis.treatments
    bought = texts(
        "money.bought" if treatments else "money.bought_uncompared",
        trained=token("coverage.train.proven"),
        evaluated=token("coverage.eval.proven"),
        decided=sum(not context.analysis.undecided(arm) for arm in treatments),
        comparisons=len(treatments),
    )
    return texts(
        "money.in_short" if spending.price_per_hour else "money.in_short_unpriced",
        spent=context.money(spending.spent),
        hours=context.gpu_hours(spending.recorded_seconds),
        bought=bought,
        useful=context.money(spending.money(spending.useful_seconds)),
        wasted=context.money(spending.money(spending.wasted_seconds)),
        idle=context.money(spending.money(spending.idle_seconds)),
    )


def _clock_note(context: ReportContext) -> str:
    """Wall-clock time that is not billed."""
    spending = context.analysis.spending
    return context.texts(
        "money.clock_note",
        suspended=_hours(spending.suspended_seconds),
        count=len(spending.clock_changes),
        forward=_hours(sum(seconds for seconds in spending.clock_changes if seconds > 0)),
        back=_hours(-sum(seconds for seconds in spending.clock_changes if seconds < 0)),
    )


def _hours(seconds: float) -> str:
    return number_text(seconds / 3600, 2)


def _uses(context: ReportContext) -> Table:
    texts, spending = context.texts, context.analysis.spending
    rows = []
    total = max(spending.spent, spending.paid or 0.0)
    for name in ("useful", "wasted", "idle"):
        seconds = getattr(spending, f"{name}_seconds")
        amount = spending.money(seconds)
        share = f"{amount / total:.0%}" if total > 0 else "–"
        rows.append([texts(f"use.{name}"), context.gpu_hours(seconds), context.money(amount), share])
    if spending.unaccounted is not None:
        share = f"{spending.unaccounted / total:.0%}" if total > 0 else "–"
        rows.append([texts("use.unaccounted"), "–", context.money(spending.unaccounted), share])
    if spending.budget is not None:
        rows.append([texts("use.budget"), "–", context.money(spending.budget), "–"])
    return Table([texts(f"table.{name}") for name in ("use", "gpu_hours", "money", "share")], rows)


def _causes(context: ReportContext) -> list[Block]:
    texts, spending = context.texts, context.analysis.spending
    if not spending.by_cause:
        return [Paragraph(texts("money.no_causes"))]
    rows = [
        [texts.or_itself("cause", cause), context.gpu_hours(seconds), context.money(spending.money(seconds))]
        for cause, seconds in sorted(spending.by_cause.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    return [Table([texts(f"table.{name}") for name in ("cause", "gpu_hours", "money")], rows)]


def _cells(context: ReportContext) -> list[Block]:
    """One row per cell; one per arm if there are many."""
    texts, spending = context.texts, context.analysis.spending
    by_cell: dict[str, Use] = {str(cell): use for cell, use in spending.by_cell.items()}
    if not by_cell:
        return [Paragraph(texts("money.no_cells"))]
    if len(by_cell) > MANY_CELLS:
        by_arm: dict[str, Use] = {}
        for cell, use in spending.by_cell.items():
            total = by_arm.setdefault(cell.arm, Use())
            total.useful_seconds += use.useful_seconds
            total.wasted_seconds += use.wasted_seconds
        by_cell = by_arm
    rows = [
        [
            name,
            context.gpu_hours(use.useful_seconds),
            context.gpu_hours(use.wasted_seconds),
            context.money(spending.money(use.useful_seconds + use.wasted_seconds)),
        ]
        for name, use in sorted(by_cell.items())
    ]
    return [Table([texts(f"table.{name}") for name in ("cell", "useful_hours", "wasted_hours", "money")], rows)]


def _artefacts(context: ReportContext) -> list[str]:
    texts, evidence = context.texts, context.analysis.evidence
    trained = [facts for facts in evidence.cells.values() if facts.trained]
    episodes = sum(facts.episodes for facts in evidence.evals.values() if facts.evaluated)
    form = "artefact" if evidence.rows else "reported_artefact"  # without a ledger nothing is proven here
    items = [
        texts(f"{form}.checkpoints", count=len(trained), steps=f"{sum(facts.agent_steps for facts in trained):,}"),
        texts(
            f"{form}.evaluations",
            count=sum(facts.evaluated for facts in evidence.evals.values()),
            episodes=f"{episodes:,}",
        ),
    ]
    if context.analysis.spending.attempts:
        items.append(texts("artefact.attempts", count=context.analysis.spending.attempts))
    return items
