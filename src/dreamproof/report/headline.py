"""The answer to the declared question in one sentence."""

from dreamproof.report.context import ReportContext
from dreamproof.report.prose import (
    declared_decision,
    main_reason,
    reference_breaks_limit,
    uncompared,
    undecided_breaking,
)
from dreamproof.stats.verdict import Kind

ORDER = (Kind.BETTER, Kind.EQUIVALENT, Kind.WORSE, Kind.CANNOT_DECIDE)


def headline(context: ReportContext) -> str:
    """One sentence that names every arm; a declared rule over several conditions adds who wins by it."""
    texts, analysis = context.texts, context.analysis
    study = analysis.evidence.study
    if not analysis.treatments:
        return texts("list.sentences").join(uncompared(context))
    where = {"metric": study.metric.name, "condition": context.condition(analysis.evidence.primary_condition)}
    if all(analysis.undecided(arm) for arm in analysis.treatments):
        first = texts("answer.cannot_decide", reason=main_reason(context), reference=study.reference, **where)
        broken = [f"`{arm}`" for arm in undecided_breaking(analysis)]
        first += texts("list.space") + texts("headline.breaking", arms=context.both(broken)) if broken else ""
    else:
        first = texts("headline.sentence", parts=texts("list.semicolon").join(_parts(context)), **where)
    return texts("list.sentences").join([first, *uncompared(context), *declared_decision(context)])


def _parts(context: ReportContext) -> list[str]:
    """One clause per verdict and, for arms that may be chosen, per verdict on the limit."""
    arms_of: dict[tuple[Kind, str], list[str]] = {}
    for arm in context.analysis.treatments:
        kind = context.analysis.verdicts[arm].kind
        arms_of.setdefault((kind, _limit_form(context, arm, kind)), []).append(arm)
    parts = [_part(context, kind, form, arms_of[kind, form]) for kind, form in sorted(arms_of, key=_place)]
    if reference_breaks_limit(context.analysis):
        parts.append(context.texts("headline.reference_breaks", reference=context.reference))
    return parts


def _place(key: tuple[Kind, str]) -> tuple[int, str]:
    return ORDER.index(key[0]), key[1]


def _limit_form(context: ReportContext, arm: str, kind: Kind) -> str:
    """What the limit adds: keeps, breaks or cannot_tell to an arm that may be chosen; else nothing."""
    found = context.analysis.constrained.get(arm)
    keeps = found is not None and found.keeps
    chosen = kind in (Kind.BETTER, Kind.EQUIVALENT)
    safer = kind is Kind.WORSE and keeps and reference_breaks_limit(context.analysis)
    if not context.analysis.evidence.study.limits or not (chosen or safer):
        return ""
    return "cannot_tell" if found is None else str(found.verdict.kind)


def _part(context: ReportContext, kind: Kind, form: str, arms: list[str]) -> str:
    texts = context.texts
    verb = texts("headline.is" if len(arms) == 1 else "headline.are")
    clause = texts(
        f"headline.{kind}", arms=context.both([f"`{arm}`" for arm in arms]), verb=verb, reference=context.reference
    )
    return clause + (texts(f"headline.limit_{form}") if form else "")
