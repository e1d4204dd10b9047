"""Differences that can be seen and are not verdicts."""

from dreamproof.report.context import ReportContext
from dreamproof.report.data import FINAL, Group
from dreamproof.report.numbers import group_key

LOOKS_LEVEL = 0.05
MAX_HINTS = 20


def hints(context: ReportContext) -> list[str]:
    """Differences whose unadjusted interval excludes zero without a verdict, deteriorations first; not claims."""
    analysis = context.analysis
    study = analysis.evidence.study
    sign = 1.0 if study.metric.direction == "higher" else -1.0
    found: list[tuple[bool, str]] = []
    for group, comparison in analysis.comparisons.items():
        decided = group == analysis.primary(group.arm) and not analysis.undecided(group.arm)
        if group.metric != study.metric.name or group.checkpoint != FINAL or decided:
            continue
        interval = comparison.interval
        if interval is None or not interval.finite or not interval.excludes(0) or interval.low == interval.high:
            continue
        good = sign * comparison.difference > 0
        key = f"versus.{group_key(analysis, group)}"
        facts = {
            "arm": group.arm,
            "reference": study.reference,
            "condition": context.condition(group.condition),
            "difference": context.numbers.token(f"{key}.difference"),
            "low": context.numbers.token(f"{key}_low"),
            "high": context.numbers.token(f"{key}_high"),
            "welch_p": context.numbers.token(f"{key}.welch_p"),
            "p": context.numbers.token(f"{key}.p"),
            "smallest_p": context.numbers.token(f"{key}.smallest_p"),
        }
        sentence = context.texts("hint.better" if good else "hint.worse", **facts)
        found.append(
            (good, sentence + context.texts("list.space") + context.texts(_no_verdict(context, group), **facts))
        )
    return [sentence for _, sentence in sorted(found, key=lambda pair: pair[0])][:MAX_HINTS]


def _no_verdict(context: ReportContext, group: Group) -> str:
    """The key of the text that explains why a visible difference is no verdict."""
    analysis = context.analysis
    if analysis.comparisons[group].smallest_p > LOOKS_LEVEL:
        return "hint.too_few"
    return "hint.undecided" if group == analysis.primary(group.arm) else "hint.not_declared"
