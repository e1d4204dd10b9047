"""Likely questions of a defence, answered from the evidence."""

from dreamproof.report.context import ReportContext
from dreamproof.report.data import TRAIN
from dreamproof.report.document import Bullets, Document, Heading, Paragraph
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.hints import hints
from dreamproof.report.markdown import cells_text
from dreamproof.report.prose import answer, coverage_sentence, header, limit_sentences, lint_stamp, verdict_sentence
from dreamproof.report.rounding import exact_text

SUSPICIOUS = (
    "identical_arms",
    "identical_values",
    "identical_checkpoints",
    "never_updated",
    "below_floor",
    "collapsed",
)


def defense(context: ReportContext) -> Document:
    """Questions as headings, answers below."""
    texts, analysis = context.texts, context.analysis
    evidence = analysis.evidence
    document = Document(texts("defense.title", name=evidence.study.name), texts.language)
    document.add(Bullets(header(context)), Paragraph(texts("defense.note")))

    def ask(key: str, *answers: str) -> None:
        document.add(Heading(texts(f"defense.{key}"), 3))
        document.add(Paragraph(answers[0]) if len(answers) == 1 else Bullets(list(answers)))

    ask("q_result", answer(context))
    ask("q_seeds", coverage_sentence(context), texts("defense.a_seeds", seeds=len(evidence.study.seeds)))
    if analysis.treatments:
        ask("q_significant", *(verdict_sentence(context, arm) for arm in analysis.treatments))
    seen = hints(context)
    if seen:
        ask("q_harm", *seen)
    before = "defense.a_difference" if evidence.declared_before_runs else "defense.a_difference_later"
    ask("q_difference", texts(before, margin=exact_text(evidence.study.metric.smallest_difference)))
    ask("q_ood", *_kinds(context))
    safe = limit_sentences(context)
    if safe:
        ask("q_safe", *safe)
    ask("q_peak", texts("defense.a_peak"))
    ask("q_trained", _trained(context))
    strange = [lint_stamp(context, lint) for lint in analysis.lints if lint.code in SUSPICIOUS]
    if strange:
        ask("q_strange", *(f"**{stamp.label}** {stamp.text}" for stamp in strange))
    missing = tuple(str(cell) for cell, facts in evidence.cells.items() if not facts.trained)
    if missing:
        ask("q_missing", texts("coverage.missing_train", count=len(missing), cells=cells_text(missing)))
    ask("q_next", *next_steps(context))
    kept = "defense.a_reproduce" if evidence.rows else "defense.a_reproduce_tables"
    ask("q_reproduce", texts(kept, hash=evidence.study.hash()[:12]))
    return document


def _kinds(context: ReportContext) -> list[str]:
    evidence, texts = context.analysis.evidence, context.texts
    lines = [
        texts("kind.line", condition=name, kind=texts(f"kind.{evidence.kind(name)}"))
        for name in evidence.conditions
        if name != TRAIN
    ]
    return lines or [texts("defense.a_no_conditions")]


def _trained(context: ReportContext) -> str:
    evidence, texts = context.analysis.evidence, context.texts
    trained = [facts for facts in evidence.cells.values() if facts.trained]
    hashed = [facts for facts in trained if facts.parameter_hash and facts.gradient_steps]
    some = "a_not_all_trained" if hashed else "a_none_trained"
    key = "a_trained" if len(hashed) == len(trained) and trained else some
    return texts(f"defense.{key}", proven=len(hashed), trained=len(trained))
