"""What a colleague needs to take over: scope, environment, events with their evidence, and how to continue."""

from dreamproof.report.context import ReportContext
from dreamproof.report.document import Block, Bullets, CodeBlock, Document, Heading, Paragraph, Table
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.lints.lint import eval_names
from dreamproof.report.markdown import cells_text
from dreamproof.report.prose import answer_stamp, header, moment_text
from dreamproof.report.quotes import translated
from dreamproof.settings.study import CommandTrainer
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.status import outside_text
from dreamproof.study.money.spending import ABORTED

MAX_EVENTS = 300
QUOTE_LENGTH = 200
HIDDEN_EVENTS = ("attempt_started", "report_written", "eval_proven", "settings_resolved", "code_recorded")


def record(context: ReportContext) -> Document:
    """The handover record."""
    texts, evidence = context.texts, context.analysis.evidence
    document = Document(texts("record.title", name=evidence.study.name), texts.language)
    document.add(Bullets(header(context)), answer_stamp(context))
    document.add(Heading(texts("record.scope")), Bullets(_scope(context)))
    document.add(Heading(texts("record.environment")), *_environment(context))
    document.add(Heading(texts("record.observations")), *_observations(context))
    document.add(Heading(texts("record.causes")), *_causes(context))
    document.add(Heading(texts("record.missing")), Bullets(_missing(context)))
    document.add(Heading(texts("record.continue")), Bullets(next_steps(context)), Paragraph(texts("record.inside")))
    lines = ["dreamproof verify .", "dreamproof status .", "dreamproof run .", "dreamproof report ."]
    document.add(CodeBlock(lines))
    document.add(Heading(texts("record.places")), Bullets(_places(context)))
    return document


def _scope(context: ReportContext) -> list[str]:
    texts, study = context.texts, context.analysis.evidence.study
    trainer = " ".join(study.trainer.command) if isinstance(study.trainer, CommandTrainer) else study.trainer
    return [
        texts("record.question", question=study.question),
        texts("record.task", task=study.task, trainer=trainer),
        texts(
            "record.matrix",
            arms=context.listing(list(study.arms)),
            seeds=cells_text(tuple(f"·/{seed}" for seed in study.seeds)).removeprefix("·/"),
            conditions=context.listing([condition.name for condition in study.conditions]) or "–",
        ),
        texts("record.steps", steps=f"{study.agent_steps:,}", hash=study.hash()[:12]),
    ]


def _environment(context: ReportContext) -> list[Block]:
    texts, evidence = context.texts, context.analysis.evidence
    items = []
    if evidence.state is not None:
        for span in evidence.state.supervisors[-3:]:
            facts = {key: span.identity.get(key) or "–" for key in ("host", "version", "commit")}
            items.append(
                texts("record.supervisor", started=moment_text(span.started), ended=moment_text(span.ended), **facts)
            )
    versions = sorted(
        {f"{name} {version}" for facts in evidence.cells.values() for name, version in facts.versions.items()}
    )
    commits = sorted({facts.commit[:12] for facts in evidence.cells.values() if facts.commit})
    if versions:
        items.append(texts("record.versions", versions=context.listing(versions)))
    if commits:
        items.append(texts("record.commits", commits=context.listing(commits)))
    return [Bullets(items)] if items else [Paragraph(texts("record.no_environment"))]


def _observations(context: ReportContext) -> list[Block]:
    texts, evidence = context.texts, context.analysis.evidence
    shown = [row for row in evidence.rows if row["event"] not in HIDDEN_EVENTS]
    if not shown:
        imported = [facts for facts in evidence.cells.values() if facts.imported]
        items = [
            texts(
                "record.imported_line",
                cell=str(facts.cell),
                state=texts(f"state.{facts.state}"),
                steps=f"{facts.agent_steps:,}",
                source=facts.run_folder,
                evidence=translated(facts.reason or "–", texts),
            )
            for facts in imported
        ]
        return (
            [Paragraph(texts("record.no_ledger")), Bullets(items)] if items else [Paragraph(texts("record.no_ledger"))]
        )
    blocks: list[Block] = []
    if len(shown) > MAX_EVENTS:
        blocks.append(Paragraph(texts("record.shortened", shown=MAX_EVENTS, total=len(shown))))
    rows = [[str(row["n"]), moment_text(row["t"]), *_event_row(context, row)] for row in shown[-MAX_EVENTS:]]
    header_row = [texts(f"table.{name}") for name in ("ledger_line", "moment", "event", "evidence")]
    return [*blocks, Table(header_row, rows, left=(1, 2, 3))]


def _event_row(context: ReportContext, row: Row) -> list[str]:
    """Event text and evidence text of one ledger row."""
    texts = context.texts
    what = texts.or_itself("event", row["event"])
    subject = row.get("cell") or ", ".join(row.get("cells", [])) or row.get("attempt") or ""
    if row["event"] == "attempt_ended":
        what = texts("list.colon").join([what, texts.or_itself("cause", row["cause"])])
        attempt = (
            context.analysis.evidence.state.attempts.get(row["attempt"]) if context.analysis.evidence.state else None
        )
        subject = f"{row['attempt']} {cells_text(tuple(attempt.cells), 4) if attempt else ''}".strip()
    if row["event"] == "imported":
        return [f"{what} {subject}".strip(), f"{outside_text(row)}; {row['source']}"[:QUOTE_LENGTH]]
    detail = row.get("reason") or row.get("action") or row.get("state") or "; ".join(row.get("changes", []))
    quotes = [translated(str(quote), texts) for quote in row.get("evidence") or []]
    between = texts("list.semicolon")
    proof = between.join(quotes) or row.get("checkpoint") or row.get("source") or ""
    evidence = between.join(part for part in (translated(str(detail or ""), texts), str(proof)) if part)
    return [f"{what} {subject}".strip(), evidence[:QUOTE_LENGTH].replace("\n", " ") or "–"]


def _causes(context: ReportContext) -> list[Block]:
    texts, evidence = context.texts, context.analysis.evidence
    counts: dict[str, list[str]] = {}
    for attempt in evidence.attempts:
        if attempt.cause not in (None, "completed"):
            counts.setdefault(str(attempt.cause), []).extend(attempt.cells)
    for facts in evidence.cells.values():
        if facts.imported and facts.cause:
            counts.setdefault(facts.cause, []).append(str(facts.cell))
    for known in evidence.state.cells.values() if evidence.state is not None else ():
        for run in known.outside:
            if run["aborted"]:
                counts.setdefault(run["cause"] or ABORTED, []).append(str(known.cell))
    if not counts:
        return [Paragraph(texts("record.no_deaths" if evidence.attempts else "record.no_attempts"))]
    rows = [
        [texts.or_itself("cause", cause), str(len(cells)), cells_text(tuple(dict.fromkeys(cells)), 8)]
        for cause, cells in sorted(counts.items(), key=lambda pair: -len(pair[1]))
    ]
    return [Table([texts(f"table.{name}") for name in ("cause", "times", "cells")], rows, left=(0, 2))]


def _missing(context: ReportContext) -> list[str]:
    texts, evidence = context.texts, context.analysis.evidence
    cells = tuple(str(cell) for cell, facts in evidence.cells.items() if not facts.trained)
    evals = [key for key, facts in evidence.evals.items() if not facts.evaluated]
    items = []
    if cells:
        items.append(texts("coverage.missing_train", count=len(cells), cells=cells_text(cells)))
    if evals:
        items.append(texts("coverage.missing_eval", count=len(evals), cells=eval_names(evals)))
    return items or [texts("record.nothing_missing")]


def _places(context: ReportContext) -> list[str]:
    evidence = context.analysis.evidence
    folder = evidence.folder
    places = {
        "ledger": folder.ledger,
        "declaration": folder.declaration,
        "runs": folder.runs,
        "attempts": folder.attempts,
        "tables": folder.tables,
        "figures": folder.figures,
        "reports": folder.reports,
        "imported": folder.imported,
    }
    # Attempts as the ledger knows them: an exported copy, which lacks their folder, has the documents of its study.
    always = {"tables", "figures", "reports"} | ({"attempts"} if evidence.attempts else set())
    return [
        context.texts("record.place", what=context.texts(f"place.{name}"), path=folder.relative(path))
        for name, path in places.items()
        if path.exists() or name in always
    ]
