"""Everything behind the one-page decision: all tables and figures, lints, and the cells behind every number."""

from dreamproof.report.context import ReportContext
from dreamproof.report.data import TRAIN
from dreamproof.report.document import (
    Bullets,
    CodeBlock,
    Document,
    EvidenceList,
    Heading,
    Paragraph,
    Picture,
    Stamp,
    Table,
)
from dreamproof.report.documents import tables
from dreamproof.report.documents.checkpoints import checkpoint_blocks
from dreamproof.report.documents.tasks import task_blocks
from dreamproof.report.documents.validation import validation_blocks
from dreamproof.report.hints import hints
from dreamproof.report.lints.lint import eval_names
from dreamproof.report.markdown import cells_text
from dreamproof.report.prose import (
    answer_stamp,
    arms_sentence,
    complete,
    coverage_sentence,
    header,
    limit_sentences,
    lint_stamp,
    uncompared,
    verdict_sentence,
)
from dreamproof.report.rounding import exact_text
from dreamproof.runs.layout import Cell
from dreamproof.stats.limits import UNSEEN_FACTOR

MANY_CELLS = 400
MANY_CONDITIONS = 4


def appendix(context: ReportContext, pictures: list[str]) -> Document:
    """Everything behind the page with all digits; `pictures` are the figures that exist and are not on the page."""
    texts, evidence = context.texts, context.analysis.evidence
    document = Document(
        texts("appendix.title", name=evidence.study.name), texts.language, rounded=False, anchor="appendix"
    )
    document.add(Bullets(header(context)))
    document.add(answer_stamp(context))
    if not complete(context):
        document.add(Stamp("block", texts("decision.partial"), coverage_sentence(context)))
    _question(document, context)
    _coverage(document, context)
    _results(document, context)
    _verdicts(document, context)
    if pictures:
        document.add(Heading(texts("decision.figures")))
        document.add(*(Picture(name, caption(context, name)) for name in pictures))
    _lints(document, context)
    _proxies(document, context)
    _reproduce(document, context)
    _sources(document, context)
    return document


def _question(document: Document, context: ReportContext) -> None:
    texts, evidence = context.texts, context.analysis.evidence
    study, plan = evidence.study, context.analysis.look_plan
    looks = context.listing([str(seeds) for seeds in plan.looks])
    title = "decision.question" if evidence.declared_before_runs else "decision.question_later"
    document.add(Heading(texts(title)), Paragraph(f"**{study.question}**"))
    items = [
        texts(
            "question.metric",
            metric=study.metric.name,
            direction=texts(f"direction.{study.metric.direction}"),
            condition=context.deciding,
            margin=exact_text(study.metric.smallest_difference),
        ),
        arms_sentence(context),
        texts(
            "question.seeds", seeds=len(study.seeds), steps=f"{study.agent_steps:,}", episodes=study.evaluation_episodes
        ),
        texts("question.looks" if len(plan.looks) > 1 else "question.one_look", looks=looks, alpha=f"{plan.alpha:g}"),
        texts("question.declared", hash=study.hash()[:12]),
    ]
    if study.decides is not None and study.limits:
        items.insert(1, texts("question.decides", conditions=context.listing(study.decides.limited)))
    if study.metric.checkpoint_rule is not None:
        items.insert(1, texts("question.checkpoint_rule", rule=study.metric.checkpoint_rule))
    limits = [{"metric": limit.name, "limit": exact_text(limit.at_most)} for limit in study.limits]
    items[1:1] = [texts("question.constraint", **facts) for facts in limits]
    document.add(Bullets(items))


def caption(context: ReportContext, name: str) -> str:
    """What a figure shows; figures of a further limited metric end in its number."""
    base, _, number = name.partition("-")
    text = context.texts(f"figure.{base}")
    return f"{text} · {context.analysis.evidence.study.limits[int(number) - 1].name}" if number else text


def _coverage(document: Document, context: ReportContext) -> None:
    texts, evidence = context.texts, context.analysis.evidence
    document.add(Heading(texts("decision.coverage")), Paragraph(coverage_sentence(context)))
    document.add(tables.matrix_table(context), Paragraph(texts("coverage.legend")))
    if context.analysis.spending.not_saved_cells:
        document.add(Paragraph(texts("coverage.legend_not_saved")))
    missing = [str(cell) for cell, facts in evidence.cells.items() if not facts.trained]
    if missing:
        document.add(Paragraph(texts("coverage.missing_train", count=len(missing), cells=cells_text(tuple(missing)))))
    gone = [key for key, facts in evidence.evals.items() if not facts.evaluated]
    if gone:
        document.add(Paragraph(texts("coverage.missing_eval", count=len(gone), cells=eval_names(gone))))


def _results(document: Document, context: ReportContext) -> None:
    texts, evidence = context.texts, context.analysis.evidence
    document.add(Heading(texts("appendix.key_table")), Paragraph(texts("decision.key_note")), tables.key_table(context))
    document.add(*checkpoint_blocks(context, 3))
    document.add(*task_blocks(context))
    others = [] if evidence.study.tasks is not None else evidence.conditions
    shown = [evidence.primary_condition, *(name for name in others if name != evidence.primary_condition)]
    for condition in shown[:MANY_CONDITIONS]:
        title = texts("decision.spread", metric=evidence.study.metric.name, condition=context.condition(condition))
        document.add(Heading(title, 3), tables.spread_table(context, condition))
        seeds = tables.seeds_table(context, condition)
        if seeds is not None:
            document.add(seeds)
    document.add(Paragraph(texts("decision.intervals_note")))
    motion = tables.motion_table(context)
    if motion is not None:
        document.add(Heading(texts("motion.title"), 3), Paragraph(texts("motion.note")), motion)
    tails = tables.tails_table(context)
    if tails is not None:
        document.add(Heading(texts("decision.tails"), 3), tails)
    if context.analysis.shifted:
        document.add(Heading(texts("decision.shifted"), 3), _shifted_table(context))
    signals = tables.signals_table(context)
    if signals is not None:
        document.add(Heading(texts("decision.signals"), 3), Paragraph(texts("decision.signals_note")), signals)
    document.add(*validation_blocks(context))


def _shifted_table(context: ReportContext) -> Table:
    texts, token = context.texts, context.numbers.token
    rows = [
        [arm, token(f"shifted.{arm}.iqm"), tables.range_text(token(f"shifted.{arm}_low"), token(f"shifted.{arm}_high"))]
        for arm in context.analysis.shifted
    ]
    return Table([texts("table.arm"), texts("table.iqm"), texts("table.bootstrap")], rows)


def _verdicts(document: Document, context: ReportContext) -> None:
    texts, analysis = context.texts, context.analysis
    document.add(Heading(texts("decision.verdicts")))
    if not analysis.treatments:
        form = "answer.not_compared" if analysis.arms_on_other_tasks else "answer.one_arm"
        document.add(Paragraph(texts(form, arm=context.reference)))
        return
    document.add(
        Paragraph(texts("decision.verdict_note", arms=len(analysis.treatments))), tables.verdict_table(context)
    )
    document.add(Bullets([verdict_sentence(context, arm) for arm in analysis.treatments] + uncompared(context)))
    is_multitask = analysis.evidence.study.tasks is not None
    seen = [] if is_multitask else hints(context)
    if seen:
        document.add(Heading(texts("decision.hints"), 3), Bullets(seen))
    if analysis.limits:
        note = texts("decision.constraint_note", level=f"{analysis.look_plan.alpha:.0%}", factor=f"{UNSEEN_FACTOR:g}")
        document.add(Heading(texts("decision.constraint"), 3), Paragraph(note), tables.limit_table(context))
        document.add(Bullets(limit_sentences(context)))
    secondary = None if is_multitask else tables.secondary_table(context)
    if secondary is not None:
        document.add(Heading(texts("decision.secondary"), 3), Paragraph(texts("decision.secondary_note")), secondary)
    paired = tables.paired_table(context)
    if paired is not None:
        document.add(Heading(texts("decision.paired"), 3), Paragraph(texts("decision.paired_note")), paired)


def _lints(document: Document, context: ReportContext) -> None:
    document.add(Heading(context.texts("decision.lints")))
    if not context.analysis.lints:
        document.add(Paragraph(context.texts("decision.no_lints")))
    document.add(*(lint_stamp(context, lint) for lint in context.analysis.lints))


def _proxies(document: Document, context: ReportContext) -> None:
    texts, evidence = context.texts, context.analysis.evidence
    items = [
        texts("kind.line", condition=context.condition(name), kind=texts(f"kind.{evidence.kind(name)}"))
        for name in evidence.conditions
        if name != TRAIN and evidence.study.tasks is None
    ]
    if items:
        document.add(Heading(texts("decision.proxies")), Bullets(items), Paragraph(texts("decision.proxy_note")))


def _reproduce(document: Document, context: ReportContext) -> None:
    texts = context.texts
    lines = ["dreamproof status .", "dreamproof run .", f"dreamproof report . --language {texts.language}"]
    document.add(Heading(texts("decision.reproduce")), Paragraph(texts("decision.reproduce_note")), CodeBlock(lines))


def _sources(document: Document, context: ReportContext) -> None:
    texts, evidence = context.texts, context.analysis.evidence
    document.add(Heading(texts("decision.appendix")), Paragraph(texts("decision.appendix_note")))
    document.add(EvidenceList(texts("table.numbers"), texts("table.cells")))
    document.add(Heading(texts("decision.sources"), 3, anchor="cells"))
    names = ("cell", "state", "run_folder", "checkpoint", "hash", "ledger_lines", "eval_lines")
    if len(evidence.cells) > MANY_CELLS:
        document.add(Paragraph(texts("decision.many_cells", count=len(evidence.cells))))
        return
    rows = [
        [
            str(facts.cell),
            texts(f"state.{facts.state}"),
            f"`{facts.run_folder}`",
            facts.checkpoint or "–",
            f"`{facts.parameter_hash[:16]}`" if facts.parameter_hash else "–",
            ", ".join(map(str, facts.ledger_lines)) or "–",
            _eval_lines(context, facts.cell),
        ]
        for facts in evidence.cells.values()
    ]
    document.add(Table([texts(f"table.{name}") for name in names], rows, left=tuple(range(7)), evidence=False))


def _eval_lines(context: ReportContext, cell: Cell) -> str:
    evidence = context.analysis.evidence
    parts = []
    for condition in evidence.study.conditions:
        facts = evidence.evals[cell, condition.name]
        if facts.evaluated:
            where = ", ".join(map(str, facts.ledger_lines)) or facts.reason
            parts.append(f"{condition.name}: {where}")
    return "; ".join(parts) or "–"
