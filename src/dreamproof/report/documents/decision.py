"""The decision on one page: the answer, the key table, verdicts, two figures, and what to do next at which price."""

from dreamproof.report.context import ReportContext
from dreamproof.report.document import Bullets, Document, Heading, Links, Paragraph, Picture, Stamp
from dreamproof.report.documents.checkpoints import checkpoint_blocks
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.documents.summary import shows_tail, summary_table, verdicts_table
from dreamproof.report.documents.tasks import other_score_note
from dreamproof.report.headline import headline
from dreamproof.report.lints.lint import LEVELS, NOTE, Lint
from dreamproof.report.prose import as_of, complete, coverage_sentence, level_text, not_saved_sentence
from dreamproof.report.rounding import exact_text
from dreamproof.stats.verdict import Kind

FIGURES = ("task_scores", "task_profile", "conditions", "conditions_cost", "curves_primary", "score_cost", "profile")
SHOWN_FIGURES = 2
SHOWN_PLACES = 3
OTHER_DOCUMENTS = ("appendix", "money", "status", "record", "defense")


def decision(context: ReportContext, pictures: list[str]) -> Document:
    """The page; `pictures` are the figures that exist."""
    texts, analysis = context.texts, context.analysis
    study = analysis.evidence.study
    document = Document(texts("decision.title", name=study.name), texts.language)
    document.add(Stamp("answer", texts("decision.answer"), headline(context)))
    if not complete(context):
        document.add(Stamp("block", texts("decision.partial"), coverage_sentence(context)))
    document.add(*(Stamp("warn", texts("lint_level.warn"), text) for text in not_saved_sentence(context)))
    document.add(Paragraph(f"**{study.question}** {_rule(context)}"))
    document.add(Heading(texts("decision.key_table")), summary_table(context), Paragraph(page_note(context)))
    if analysis.treatments:
        document.add(Heading(texts("decision.verdicts")), verdicts_table(context), Paragraph(verdict_note(context)))
    document.add(*checkpoint_blocks(context))
    document.add(*(Picture(name, texts(f"figure.{name}")) for name in page_figures(pictures)))
    document.add(Heading(texts("decision.next")), Bullets(next_steps(context)))
    document.add(Heading(texts("decision.care")), *_care(context))
    document.add(Paragraph(texts("decision.foot", coverage=coverage_sentence(context), as_of=as_of(context))))
    links = tuple((texts(f"document.{name}"), f"{name}.md") for name in OTHER_DOCUMENTS)
    document.add(Links(texts("decision.more"), links))
    return document


def page_figures(pictures: list[str]) -> list[str]:
    """The two figures of the page."""
    return [name for name in FIGURES if name in pictures][:SHOWN_FIGURES]


def _rule(context: ReportContext) -> str:
    """What decides, when it was declared, and which checkpoint counts if the study says so."""
    texts, evidence = context.texts, context.analysis.evidence
    study = evidence.study
    limits = [texts("decision.rule_limit", metric=each.name, limit=exact_text(each.at_most)) for each in study.limits]
    rule = texts(
        "decision.rule",
        metric=study.metric.name,
        condition=context.deciding,
        direction=texts(f"direction.{study.metric.direction}"),
        margin=exact_text(study.metric.smallest_difference),
        limit="".join(limits),
        when=texts("decision.declared" if evidence.declared_before_runs else "decision.not_declared"),
    )
    if study.metric.checkpoint_rule is None:
        return rule
    return texts("list.sentences").join([rule, texts("question.checkpoint_rule", rule=study.metric.checkpoint_rule)])


def page_note(context: ReportContext) -> str:
    """How to read the key table."""
    analysis, texts = context.analysis, context.texts
    primary = [analysis.summaries.get(analysis.primary(arm)) for arm in analysis.evidence.arms]
    counts = sorted({summary.seeds for summary in primary if summary is not None})
    parts = []
    if counts:
        seeds = "–".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
        parts.append(texts("summary.one_seed" if counts == [1] else "summary.note", seeds=seeds))
    if analysis.evidence.episodes:
        parts.append(texts("summary.episodes_note", episodes=analysis.evidence.study.evaluation_episodes))
    if analysis.limits:
        parts.append(texts("summary.limit_note", level=f"{100 * (1 - analysis.look_plan.alpha):g}"))
    if shows_tail(context):
        parts.append(texts("summary.tail_note"))
    parts += other_score_note(context)
    return texts("list.sentences").join(parts)


def verdict_note(context: ReportContext) -> str:
    """How the verdicts were made."""
    analysis, texts = context.analysis, context.texts
    early = any(verdict.stopped_early for verdict in analysis.verdicts.values())
    parts = [texts("summary.verdict_note", arms=len(analysis.treatments), alpha=f"{analysis.look_plan.alpha:g}")]
    planned = analysis.look_plan.looks
    if len(planned) > 1:
        parts.append(texts("summary.shared_level_note", looks=context.listing([str(seeds) for seeds in planned])))
    looks = {
        verdict.seeds for arm, verdict in analysis.verdicts.items() if len(analysis.look_seeds(arm)) == verdict.seeds
    }
    if any(seeds < len(analysis.evidence.study.seeds) for seeds in looks):
        parts.append(texts("summary.look_note", seeds=context.listing([str(seeds) for seeds in sorted(looks)])))
    if any(verdict.kind is Kind.EQUIVALENT for verdict in analysis.verdicts.values()):
        parts.append(texts("summary.equivalent_note"))
    return texts("list.sentences").join([*parts, *([texts("summary.early_note")] if early else [])])


def _care(context: ReportContext) -> list[Paragraph | Bullets]:
    """Blocking lints and warnings by their titles, with the arms and conditions they concern."""
    texts = context.texts
    by_level: dict[str, dict[str, list[Lint]]] = {}
    for lint in sorted(context.analysis.lints, key=lambda lint: LEVELS.index(lint.level)):
        if lint.level != NOTE:
            by_level.setdefault(level_text(context, lint), {}).setdefault(lint.code, []).append(lint)
    items = []
    for level, by_code in by_level.items():
        named = [texts(f"lint_title.{code}") + _places(context, lints) for code, lints in by_code.items()]
        items.append(texts("decision.care_line", level=level, lints=texts("list.semicolon").join(named)))
    if items:
        return [Bullets(items)]
    notes = len(context.analysis.lints)
    return [Paragraph(texts("decision.no_warnings_notes" if notes else "decision.no_warnings", count=notes))]


def _places(context: ReportContext, lints: list[Lint]) -> str:
    """The arms and conditions of lints of one kind in brackets; nothing if there are none, or too many for a line."""
    found = []
    for lint in lints:
        arms = lint.facts.get("arms", "")
        named = arms.replace(", ", context.texts("list.comma")) if isinstance(arms, str) else ""
        where = context.condition(str(lint.facts["condition"])) if "condition" in lint.facts else ""
        found.append(" · ".join(part for part in (named, where) if part))
    places = [place for place in dict.fromkeys(found) if place]
    fits = 0 < len(places) <= SHOWN_PLACES
    return context.in_brackets(context.texts("list.semicolon").join(places)) if fits else ""
