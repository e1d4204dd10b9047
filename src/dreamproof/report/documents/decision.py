"""The decision report: the question as declared, the answer, and everything it stands on."""

from dreamproof.report.data import TRAIN
from dreamproof.report.document import (
    Bullets,
    Code,
    Document,
    EvidenceList,
    Heading,
    Paragraph,
    Picture,
    Stamp,
    Table,
)
from dreamproof.report.documents import tables
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.documents.validation import validation_blocks
from dreamproof.report.lints import eval_names
from dreamproof.report.markdown import cells_text
from dreamproof.report.prose import (
    Telling,
    answer_stamp,
    complete,
    coverage_sentence,
    header,
    hints,
    limit_sentences,
    lint_stamp,
    verdict_sentence,
)
from dreamproof.runs.layout import Cell

MANY_CELLS = 400
MANY_CONDITIONS = 4


def decision(telling: Telling, pictures: list[str]) -> Document:
    """The whole report; `pictures` are the figures that exist."""
    words, evidence = telling.words, telling.analysis.evidence
    document = Document(words("decision.title", name=evidence.study.name), words.language)
    document.add(Bullets(header(telling)))
    document.add(answer_stamp(telling))
    if not complete(telling):
        document.add(Stamp("block", words("decision.partial"), coverage_sentence(telling)))
    _question(document, telling)
    _coverage(document, telling)
    _results(document, telling)
    _verdicts(document, telling)
    if pictures:
        document.add(Heading(words("decision.figures")))
        document.add(*(Picture(name, words(f"figure.{name}")) for name in pictures))
    _lints(document, telling)
    _proxies(document, telling)
    document.add(Heading(words("decision.next")), Bullets(next_steps(telling)))
    _reproduce(document, telling)
    _appendix(document, telling)
    return document


def _question(document: Document, telling: Telling) -> None:
    words, evidence = telling.words, telling.analysis.evidence
    study, plan = evidence.study, telling.analysis.look_plan
    looks = telling.listing([str(seeds) for seeds in plan.looks])
    title = "decision.question" if evidence.declared_before_runs else "decision.question_later"
    document.add(Heading(words(title)), Paragraph(f"**{study.question}**"))
    items = [
        words(
            "question.metric",
            metric=study.metric.name,
            direction=words(f"direction.{study.metric.direction}"),
            condition=telling.condition(evidence.primary_condition),
            margin=f"{study.metric.smallest_difference:g}",
        ),
        words("question.arms", reference=study.reference, arms=telling.listing(telling.analysis.treatments) or "–"),
        words(
            "question.seeds", seeds=len(study.seeds), steps=f"{study.agent_steps:,}", episodes=study.evaluation_episodes
        ),
        words("question.looks" if len(plan.looks) > 1 else "question.one_look", looks=looks, alpha=f"{plan.alpha:g}"),
        words("question.declared", hash=study.hash()[:12]),
    ]
    if study.constraint is not None:
        items.insert(
            1, words("question.constraint", metric=study.constraint.name, limit=f"{study.constraint.at_most:g}")
        )
    document.add(Bullets(items))


def _coverage(document: Document, telling: Telling) -> None:
    words, evidence = telling.words, telling.analysis.evidence
    document.add(Heading(words("decision.coverage")), Paragraph(coverage_sentence(telling)))
    document.add(tables.matrix_table(telling), Paragraph(words("coverage.legend")))
    missing = [str(cell) for cell, facts in evidence.cells.items() if not facts.trained]
    if missing:
        document.add(Paragraph(words("coverage.missing_train", count=len(missing), cells=cells_text(tuple(missing)))))
    gone = [key for key, facts in evidence.evals.items() if not facts.evaluated]
    if gone:
        document.add(Paragraph(words("coverage.missing_eval", count=len(gone), cells=eval_names(gone))))


def _results(document: Document, telling: Telling) -> None:
    words, evidence = telling.words, telling.analysis.evidence
    document.add(Heading(words("decision.key_table")), Paragraph(words("decision.key_note")), tables.key_table(telling))
    shown = [evidence.primary_condition, *(name for name in evidence.conditions if name != evidence.primary_condition)]
    for condition in shown[:MANY_CONDITIONS]:
        title = words("decision.spread", metric=evidence.study.metric.name, condition=telling.condition(condition))
        document.add(Heading(title, 3), tables.spread_table(telling, condition))
        seeds = tables.seeds_table(telling, condition)
        if seeds is not None:
            document.add(seeds)
    document.add(Paragraph(words("decision.intervals_note")))
    motion = tables.motion_table(telling)
    if motion is not None:
        document.add(Heading(words("motion.title"), 3), Paragraph(words("motion.note")), motion)
    tails = tables.tails_table(telling)
    if tails is not None:
        document.add(Heading(words("decision.tails"), 3), tails)
    if telling.analysis.shifted:
        document.add(Heading(words("decision.shifted"), 3), _shifted_table(telling))
    signals = tables.signals_table(telling)
    if signals is not None:
        document.add(Heading(words("decision.signals"), 3), Paragraph(words("decision.signals_note")), signals)
    document.add(*validation_blocks(telling))


def _shifted_table(telling: Telling) -> Table:
    words, token = telling.words, telling.numbers.token
    rows = [
        [arm, token(f"shifted.{arm}.iqm"), tables.range_text(token(f"shifted.{arm}_low"), token(f"shifted.{arm}_high"))]
        for arm in telling.analysis.shifted
    ]
    return Table([words("table.arm"), words("table.iqm"), words("table.bootstrap")], rows)


def _verdicts(document: Document, telling: Telling) -> None:
    words, analysis = telling.words, telling.analysis
    document.add(Heading(words("decision.verdicts")))
    if not analysis.treatments:
        document.add(Paragraph(words("answer.one_arm", arm=telling.reference)))
        return
    document.add(
        Paragraph(words("decision.verdict_note", arms=len(analysis.treatments))), tables.verdict_table(telling)
    )
    document.add(Bullets([verdict_sentence(telling, arm) for arm in analysis.treatments]))
    seen = hints(telling)
    if seen:
        document.add(Heading(words("decision.hints"), 3), Bullets(seen))
    if analysis.constrained:
        document.add(Heading(words("decision.constraint"), 3), Bullets(limit_sentences(telling)))
    secondary = tables.secondary_table(telling)
    if secondary is not None:
        document.add(Heading(words("decision.secondary"), 3), Paragraph(words("decision.secondary_note")), secondary)
    paired = tables.paired_table(telling)
    if paired is not None:
        document.add(Heading(words("decision.paired"), 3), Paragraph(words("decision.paired_note")), paired)


def _lints(document: Document, telling: Telling) -> None:
    document.add(Heading(telling.words("decision.lints")))
    if not telling.analysis.lints:
        document.add(Paragraph(telling.words("decision.no_lints")))
    document.add(*(lint_stamp(telling, lint) for lint in telling.analysis.lints))


def _proxies(document: Document, telling: Telling) -> None:
    words, evidence = telling.words, telling.analysis.evidence
    items = [
        words("kind.line", condition=telling.condition(name), kind=words(f"kind.{evidence.kind(name)}"))
        for name in evidence.conditions
        if name != TRAIN
    ]
    if items:
        document.add(Heading(words("decision.proxies")), Bullets(items), Paragraph(words("decision.proxy_note")))


def _reproduce(document: Document, telling: Telling) -> None:
    words = telling.words
    lines = ["dreamproof status .", "dreamproof run .", f"dreamproof report . --language {words.language}"]
    document.add(Heading(words("decision.reproduce")), Paragraph(words("decision.reproduce_note")), Code(lines))


def _appendix(document: Document, telling: Telling) -> None:
    words, evidence = telling.words, telling.analysis.evidence
    document.add(Heading(words("decision.appendix")), Paragraph(words("decision.appendix_note")))
    document.add(EvidenceList(words("table.numbers"), words("table.cells")))
    document.add(Heading(words("decision.sources"), 3, anchor="cells"))
    names = ("cell", "state", "run_folder", "checkpoint", "hash", "ledger_lines", "eval_lines")
    if len(evidence.cells) > MANY_CELLS:
        document.add(Paragraph(words("decision.many_cells", count=len(evidence.cells))))
        return
    rows = [
        [
            str(facts.cell),
            words(f"state.{facts.state}"),
            f"`{facts.run_folder}`",
            facts.checkpoint or "–",
            f"`{facts.parameter_hash[:16]}`" if facts.parameter_hash else "–",
            ", ".join(map(str, facts.ledger_lines)) or "–",
            _eval_lines(telling, facts.cell),
        ]
        for facts in evidence.cells.values()
    ]
    document.add(Table([words(f"table.{name}") for name in names], rows, left=tuple(range(7)), evidence=False))


def _eval_lines(telling: Telling, cell: Cell) -> str:
    evidence = telling.analysis.evidence
    parts = []
    for condition in evidence.study.conditions:
        facts = evidence.evals[cell, condition.name]
        if facts.evaluated:
            where = ", ".join(map(str, facts.ledger_lines)) or facts.reason
            parts.append(f"{condition.name}: {where}")
    return "; ".join(parts) or "–"
