"""What a colleague needs to take over: scope, environment, what happened with its evidence, and how to go on."""

from dreamproof.report.document import Block, Bullets, Code, Document, Heading, Paragraph, Table
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.lints import eval_names
from dreamproof.report.markdown import cells_text
from dreamproof.report.prose import Telling, answer_stamp, header, moment_text
from dreamproof.settings.study import CommandTrainer
from dreamproof.study.ledger.events import Row

TOLD_EVENTS = 300
QUOTE_LENGTH = 200
SILENT = ("attempt_started", "report_written", "eval_proven", "settings_resolved", "code_recorded")


def record(telling: Telling) -> Document:
    """The handover record."""
    words, evidence = telling.words, telling.analysis.evidence
    document = Document(words("record.title", name=evidence.study.name), words.language)
    document.add(Bullets(header(telling)), answer_stamp(telling))
    document.add(Heading(words("record.scope")), Bullets(_scope(telling)))
    document.add(Heading(words("record.environment")), *_environment(telling))
    document.add(Heading(words("record.observations")), *_observations(telling))
    document.add(Heading(words("record.causes")), *_causes(telling))
    document.add(Heading(words("record.missing")), Bullets(_missing(telling)))
    document.add(Heading(words("record.go_on")), Bullets(next_steps(telling)), Paragraph(words("record.inside")))
    lines = ["dreamproof verify .", "dreamproof status .", "dreamproof run .", "dreamproof report ."]
    document.add(Code(lines))
    document.add(Heading(words("record.places")), Bullets(_places(telling)))
    return document


def _scope(telling: Telling) -> list[str]:
    words, study = telling.words, telling.analysis.evidence.study
    trainer = " ".join(study.trainer.command) if isinstance(study.trainer, CommandTrainer) else study.trainer
    return [
        words("record.question", question=study.question),
        words("record.task", task=study.task, trainer=trainer),
        words(
            "record.matrix",
            arms=telling.listing(list(study.arms)),
            seeds=cells_text(tuple(f"·/{seed}" for seed in study.seeds)).removeprefix("·/"),
            conditions=telling.listing([condition.name for condition in study.conditions]) or "–",
        ),
        words("record.steps", steps=f"{study.agent_steps:,}", hash=study.hash()[:12]),
    ]


def _environment(telling: Telling) -> list[Block]:
    words, evidence = telling.words, telling.analysis.evidence
    items = []
    if evidence.state is not None:
        for span in evidence.state.supervisors[-3:]:
            facts = {key: span.identity.get(key) or "–" for key in ("host", "version", "commit")}
            items.append(
                words("record.supervisor", started=moment_text(span.started), ended=moment_text(span.ended), **facts)
            )
    versions = sorted(
        {f"{name} {version}" for facts in evidence.cells.values() for name, version in facts.versions.items()}
    )
    commits = sorted({facts.commit[:12] for facts in evidence.cells.values() if facts.commit})
    if versions:
        items.append(words("record.versions", versions=telling.listing(versions)))
    if commits:
        items.append(words("record.commits", commits=telling.listing(commits)))
    return [Bullets(items)] if items else [Paragraph(words("record.no_environment"))]


def _observations(telling: Telling) -> list[Block]:
    words, evidence = telling.words, telling.analysis.evidence
    told = [row for row in evidence.rows if row["event"] not in SILENT]
    if not told:
        imported = [facts for facts in evidence.cells.values() if facts.imported]
        items = [
            words(
                "record.imported_line",
                cell=str(facts.cell),
                state=words(f"state.{facts.state}"),
                steps=f"{facts.agent_steps:,}",
                source=facts.run_folder,
                evidence=facts.reason or "–",
            )
            for facts in imported
        ]
        return (
            [Paragraph(words("record.no_ledger")), Bullets(items)] if items else [Paragraph(words("record.no_ledger"))]
        )
    blocks: list[Block] = []
    if len(told) > TOLD_EVENTS:
        blocks.append(Paragraph(words("record.shortened", shown=TOLD_EVENTS, total=len(told))))
    rows = [[str(row["n"]), moment_text(row["t"]), *_told(telling, row)] for row in told[-TOLD_EVENTS:]]
    header_row = [words(f"table.{name}") for name in ("ledger_line", "moment", "event", "evidence")]
    return [*blocks, Table(header_row, rows, left=(1, 2, 3))]


def _told(telling: Telling, row: Row) -> list[str]:
    """(what happened, with what evidence) of one event."""
    words = telling.words
    what = words.or_itself("event", row["event"])
    subject = row.get("cell") or ", ".join(row.get("cells", [])) or row.get("attempt") or ""
    if row["event"] == "attempt_ended":
        what = f"{what}: {words.or_itself('cause', row['cause'])}"
        attempt = (
            telling.analysis.evidence.state.attempts.get(row["attempt"]) if telling.analysis.evidence.state else None
        )
        subject = f"{row['attempt']} {cells_text(tuple(attempt.cells), 4) if attempt else ''}".strip()
    detail = row.get("reason") or row.get("action") or row.get("state") or "; ".join(row.get("changes", []))
    quotes = row.get("evidence") or []
    proof = "; ".join(map(str, quotes)) or row.get("checkpoint") or row.get("source") or ""
    evidence = "; ".join(part for part in (str(detail or ""), str(proof)) if part)
    return [f"{what} {subject}".strip(), evidence[:QUOTE_LENGTH].replace("\n", " ") or "–"]


def _causes(telling: Telling) -> list[Block]:
    words, evidence = telling.words, telling.analysis.evidence
    counts: dict[str, list[str]] = {}
    for attempt in evidence.attempts:
        if attempt.cause not in (None, "completed"):
            counts.setdefault(str(attempt.cause), []).extend(attempt.cells)
    for facts in evidence.cells.values():
        if facts.imported and facts.cause:
            counts.setdefault(facts.cause, []).append(str(facts.cell))
    if not counts:
        return [Paragraph(words("record.no_deaths"))]
    rows = [
        [words.or_itself("cause", cause), str(len(cells)), cells_text(tuple(dict.fromkeys(cells)), 8)]
        for cause, cells in sorted(counts.items(), key=lambda pair: -len(pair[1]))
    ]
    return [Table([words(f"table.{name}") for name in ("cause", "times", "cells")], rows, left=(0, 2))]


def _missing(telling: Telling) -> list[str]:
    words, evidence = telling.words, telling.analysis.evidence
    cells = tuple(str(cell) for cell, facts in evidence.cells.items() if not facts.trained)
    evals = [key for key, facts in evidence.evals.items() if not facts.evaluated]
    items = []
    if cells:
        items.append(words("coverage.missing_train", count=len(cells), cells=cells_text(cells)))
    if evals:
        items.append(words("coverage.missing_eval", count=len(evals), cells=eval_names(evals)))
    return items or [words("record.nothing_missing")]


def _places(telling: Telling) -> list[str]:
    folder = telling.analysis.evidence.folder
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
    return [
        telling.words("record.place", what=telling.words(f"place.{name}"), path=folder.relative(path))
        for name, path in places.items()
        if path.exists() or name in ("tables", "figures", "reports")
    ]
