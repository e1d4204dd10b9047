"""What the money bought: useful, wasted, idle, unexplained; per cause and cell; and the shortest way to a decision."""

from dreamproof.report.document import Block, Bullets, Document, Heading, Paragraph, Picture, Stamp, Table
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.prose import Telling, answer, header
from dreamproof.report.spending import Use

MANY_CELLS = 60


def money(telling: Telling, pictures: list[str]) -> Document:
    """The recap of hours and money."""
    words, spending = telling.words, telling.analysis.spending
    evidence = telling.analysis.evidence
    document = Document(words("money.title", name=evidence.study.name), words.language)
    document.add(Bullets(header(telling)))
    document.add(Stamp("answer", words("money.short"), in_short(telling)))
    document.add(Heading(words("money.uses")), _uses(telling))
    if spending.paid is not None:
        lines = [words("money.bill_line", what=line.what, amount=telling.money(line.amount)) for line in evidence.bill]
        document.add(Paragraph(words("money.bill_note")), Bullets(lines))
    document.add(Paragraph(words("money.price_note", price=telling.money(spending.price_per_hour))))
    if spending.suspended_seconds or spending.clock_changes:
        document.add(Paragraph(_clock_note(telling)))
    if "money" in pictures:
        document.add(Picture("money", words("figure.money")))
    document.add(Heading(words("money.causes")), *_causes(telling))
    document.add(Heading(words("money.cells")), *_cells(telling))
    document.add(Heading(words("money.artefacts")), Bullets(_artefacts(telling)))
    document.add(Heading(words("money.shortest")), Bullets(next_steps(telling)))
    document.add(Paragraph(answer(telling)))
    return document


def in_short(telling: Telling) -> str:
    """Money and hours by use and what they bought, in two sentences."""
    words, spending = telling.words, telling.analysis.spending
    token = telling.numbers.token
    decided = sum(not telling.analysis.undecided(arm) for arm in telling.analysis.treatments)
    return words(
        "money.in_short",
        spent=telling.money(spending.spent),
        hours=telling.hours(spending.recorded_seconds),
        trained=token("coverage.train.proven"),
        evaluated=token("coverage.eval.proven"),
        decided=decided,
        comparisons=len(telling.analysis.treatments),
        useful=telling.money(spending.money(spending.useful_seconds)),
        wasted=telling.money(spending.money(spending.wasted_seconds)),
        idle=telling.money(spending.money(spending.idle_seconds)),
    )


def _clock_note(telling: Telling) -> str:
    """Wall-clock time that nobody is billed for."""
    spending = telling.analysis.spending
    return telling.words(
        "money.clock_note",
        suspended=telling.hours(spending.suspended_seconds),
        count=len(spending.clock_changes),
        forward=telling.hours(sum(seconds for seconds in spending.clock_changes if seconds > 0)),
        back=telling.hours(-sum(seconds for seconds in spending.clock_changes if seconds < 0)),
    )


def _uses(telling: Telling) -> Table:
    words, spending = telling.words, telling.analysis.spending
    rows = []
    total = max(spending.spent, spending.paid or 0.0)
    for name in ("useful", "wasted", "idle"):
        seconds = getattr(spending, f"{name}_seconds")
        amount = spending.money(seconds)
        share = f"{amount / total:.0%}" if total > 0 else "–"
        rows.append([words(f"use.{name}"), telling.hours(seconds), telling.money(amount), share])
    if spending.unaccounted is not None:
        share = f"{spending.unaccounted / total:.0%}" if total > 0 else "–"
        rows.append([words("use.unaccounted"), "–", telling.money(spending.unaccounted), share])
    if spending.budget is not None:
        rows.append([words("use.budget"), "–", telling.money(spending.budget), "–"])
    return Table([words(f"table.{name}") for name in ("use", "gpu_hours", "money", "share")], rows)


def _causes(telling: Telling) -> list[Block]:
    words, spending = telling.words, telling.analysis.spending
    if not spending.by_cause:
        return [Paragraph(words("money.no_causes"))]
    rows = [
        [words.or_itself("cause", cause), telling.hours(seconds), telling.money(spending.money(seconds))]
        for cause, seconds in sorted(spending.by_cause.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    return [Table([words(f"table.{name}") for name in ("cause", "gpu_hours", "money")], rows)]


def _cells(telling: Telling) -> list[Block]:
    """One row a cell; one an arm where there are many."""
    words, spending = telling.words, telling.analysis.spending
    by_cell: dict[str, Use] = {str(cell): use for cell, use in spending.by_cell.items()}
    if not by_cell:
        return [Paragraph(words("money.no_cells"))]
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
            telling.hours(use.useful_seconds),
            telling.hours(use.wasted_seconds),
            telling.money(spending.money(use.useful_seconds + use.wasted_seconds)),
        ]
        for name, use in sorted(by_cell.items())
    ]
    return [Table([words(f"table.{name}") for name in ("cell", "useful_hours", "wasted_hours", "money")], rows)]


def _artefacts(telling: Telling) -> list[str]:
    words, evidence = telling.words, telling.analysis.evidence
    trained = [facts for facts in evidence.cells.values() if facts.trained]
    episodes = sum(facts.episodes for facts in evidence.evals.values() if facts.evaluated)
    items = [
        words("artefact.checkpoints", count=len(trained), steps=f"{sum(facts.agent_steps for facts in trained):,}"),
        words(
            "artefact.evaluations",
            count=sum(facts.evaluated for facts in evidence.evals.values()),
            episodes=f"{episodes:,}",
        ),
    ]
    if telling.analysis.spending.attempts:
        items.append(words("artefact.attempts", count=telling.analysis.spending.attempts))
    return items
