"""The two tables of the one-page decision: what every arm reached, and what was decided."""

from collections import Counter

from dreamproof.report.analysis import Analysis
from dreamproof.report.context import ReportContext
from dreamproof.report.data import FINAL, TRAIN, Group
from dreamproof.report.document import Table
from dreamproof.report.documents.tables import column_title, floor_decimals, floor_name, range_text
from dreamproof.report.limits import Constrained
from dreamproof.report.lints.values import says_peak
from dreamproof.report.numbers import DASH, group_key, number_text
from dreamproof.report.prose import arm_reason, mean_sd
from dreamproof.report.rounding import exact_text
from dreamproof.settings.study import Constraint
from dreamproof.stats.limits import LimitKind
from dreamproof.stats.verdict import Kind

Column = tuple[str, list[str]]
EARLY = " †"
"""Marks a verdict at an early look; the note below the table explains it."""


def summary_table(context: ReportContext) -> Table:
    """Arms by score, score elsewhere, every limited metric with its verdict, and risk; scripted floors below."""
    limits = context.analysis.evidence.study.limits
    limited = [_limited_column(context, limit) for limit in limits]
    elsewhere = [_elsewhere_column(context, limit.name) for limit in limits]
    found = [*_scores(context), *limited, _risk(context), *elsewhere]
    columns = [column for column in found if column is not None and any(text != DASH for text in column[1])]
    floors = list(dict.fromkeys(name for table in context.analysis.evidence.floors.values() for name in table))
    names = [*context.analysis.evidence.arms, *(floor_name(context, name) for name in floors)]
    rows = [[name, *(column[row] for _, column in columns)] for row, name in enumerate(names)]
    return Table([context.texts("table.arm"), *(title for title, _ in columns)], rows)


def _column(context: ReportContext, title: str, cells: list[str], floors: list[str] | None = None) -> Column:
    """A column of the arms' texts and, below them, the floors'."""
    names = dict.fromkeys(name for table in context.analysis.evidence.floors.values() for name in table)
    return title, [*cells, *(floors if floors is not None else [DASH] * len(names))]


def _floor_means(context: ReportContext, metric: str, conditions: list[str]) -> list[str]:
    """Every floor over these conditions, averaged as the arms are; a dash where one of them has no floor."""
    evidence = context.analysis.evidence
    names = dict.fromkeys(name for table in evidence.floors.values() for name in table)
    values = [[evidence.floors.get(where, {}).get(name, {}).get(metric) for where in conditions] for name in names]
    known = [[v for v in row if v is not None] for row in values]
    complete = [row if len(row) == len(conditions) and row else None for row in known]
    decimals = floor_decimals(evidence.study, metric, 1)
    return [number_text(None if row is None else evidence.joined(row), decimals) for row in complete]


def _scores(context: ReportContext) -> list[Column]:
    """The deciding metric where it decides, its peaks if some were imported, and its mean over other conditions."""
    analysis, evidence = context.analysis, context.analysis.evidence
    metric, token = evidence.study.metric.name, context.numbers.token
    columns = []
    for checkpoint, condition in [(FINAL, evidence.primary_condition), *_peaks(context)]:
        cells = [mean_sd(context, Group(arm, condition, metric, checkpoint)) for arm in evidence.arms]
        title = column_title(context, (metric, condition, checkpoint))
        floors = _floor_means(context, metric, evidence.deciding_conditions)
        columns.append(_column(context, title, cells, floors if checkpoint == FINAL else None))
    other = evidence.other_score
    if other is not None:
        place = (other.metric, evidence.primary_condition, FINAL)
        cells = [mean_sd(context, Group(arm, place[1], other.metric)) for arm in evidence.arms]
        columns.append(_column(context, column_title(context, place), cells))
    kind, others = analysis.other_conditions
    means = [(token(f"other.{arm}.mean"), token(f"other.{arm}.sd")) for arm in evidence.arms]
    cells = [mean if sd == DASH else f"{mean} ± {sd}" for mean, sd in means]
    title = context.texts(f"summary.{kind}", metric=metric, count=len(others))
    if len(others) == 1:
        title = column_title(context, (metric, others[0], FINAL))
    return [*columns, _column(context, title, cells, _floor_means(context, metric, others))]


def _peaks(context: ReportContext) -> list[tuple[str, str]]:
    """(checkpoint, condition) of every imported peak of the deciding metric, in the first condition that has it."""
    evidence, metric = context.analysis.evidence, context.analysis.evidence.study.metric.name
    known = {
        (group.checkpoint, group.condition) for group in [*evidence.values, *evidence.means] if group.metric == metric
    }
    places = dict.fromkeys([evidence.primary_condition, *evidence.conditions, TRAIN])
    held = {name: [place for place in places if (name, place) in known] for name in evidence.checkpoints(metric)}
    return [(name, conditions[0]) for name, conditions in held.items() if conditions and says_peak(name)]


def _elsewhere_column(context: ReportContext, metric: str) -> Column | None:
    """In how many other conditions each arm keeps or breaks the limit of a metric; None if nothing is known there."""
    analysis, texts = context.analysis, context.texts
    found = {
        arm: [one for (name, _), one in analysis.elsewhere.get(arm, {}).items() if name == metric]
        for arm in analysis.evidence.arms
    }
    places = {one.condition for known in found.values() for one in known}
    if not places:
        return None
    several = {"metric": metric} if len(analysis.evidence.study.limits) > 1 else {}
    where, known = "limit_at", {"condition": context.condition(next(iter(places)))}
    if len(places) > 1:
        where, known = "limit_elsewhere", {"count": str(max(len(each) for each in found.values()))}
    counts = [Counter(one.verdict.kind for one in found[arm]) for arm in analysis.evidence.arms]
    title = texts(f"summary.{where}_of" if several else f"summary.{where}", **known, **several)
    return _column(context, title, [_counted(context, each, len(places) == 1) for each in counts])


def _limited_column(context: ReportContext, limit: Constraint) -> Column:
    """A limited metric where its limit decides, with what is shown of it."""
    analysis, texts = context.analysis, context.texts
    cells, shown = [], set()
    for arm in analysis.evidence.arms:
        one = _where_it_decides(analysis, arm, limit.name)
        if one is None:
            cells.append(DASH)
            continue
        shown.add((limit.name, one.condition, one.checkpoint))
        value = mean_sd(context, Group(arm, one.condition, limit.name, one.checkpoint))
        cells.append(value + context.in_brackets(texts(f"limit_verdict.{one.verdict.kind}")))
    same = next(iter(shown)) if len(shown) == 1 else None
    where = texts("summary.worst", metric=limit.name) if same is None else column_title(context, same)
    floors = None if same is None else _floor_means(context, limit.name, [same[1]])
    return _column(context, texts("summary.limited", metric=where, limit=exact_text(limit.at_most)), cells, floors)


def _where_it_decides(analysis: Analysis, arm: str, metric: str) -> Constrained | None:
    return next((each for each in analysis.limits.get(arm, []) if each.metric == metric), None)


def _counted(context: ReportContext, counts: Counter[LimitKind], alone: bool) -> str:
    """keeps 3, breaks 2, cannot tell 2; without a number for a single condition."""
    named = {kind: context.texts(f"limit_verdict.{kind}") for kind in LimitKind if counts[kind]}
    parts = [text if alone else f"{text} {counts[kind]}" for kind, text in named.items()]
    return context.listing(parts) or DASH


def _risk(context: ReportContext) -> Column | None:
    """The worst tenth of episodes of the first limited metric; without limits, the worst seed of the score."""
    analysis, token = context.analysis, context.numbers.token
    study = analysis.evidence.study
    if not study.limits:
        most = max(
            (one.seeds for group, one in analysis.summaries.items() if group == analysis.primary(group.arm)), default=0
        )
        if most < 2:
            return None
        end = "minimum" if study.metric.direction == "higher" else "maximum"
        keys = [f"main.{group_key(analysis, analysis.primary(arm))}.{end}" for arm in analysis.evidence.arms]
        return _column(
            context, context.texts("summary.worst_seed", metric=study.metric.name), [token(key) for key in keys]
        )
    name = study.limits[0].name
    places = {arm: _where_it_decides(analysis, arm, name) for arm in analysis.evidence.arms}
    cells = [
        DASH
        if one is None
        else token(f"main.{group_key(analysis, Group(arm, one.condition, name, one.checkpoint))}.cvar90")
        for arm, one in places.items()
    ]
    return _column(context, context.texts("summary.tail", metric=name), cells)


def shows_tail(context: ReportContext) -> bool:
    """Whether the key table has the worst tenth of episodes."""
    column = _risk(context) if context.analysis.evidence.study.limits else None
    return column is not None and any(text != DASH for text in column[1])


def verdicts_table(context: ReportContext) -> Table:
    """Every declared comparison: verdict, difference with its interval, adjusted p, and why nothing is decided."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    paired = ".paired" if analysis.evidence.study.paired_seeds else ""
    rows = []
    for arm in analysis.treatments:
        key = f"versus.{group_key(analysis, analysis.primary(arm))}"
        verdict = analysis.verdicts[arm]
        interval = range_text(token(f"{key}{paired}_low"), token(f"{key}{paired}_high"))
        reason = arm_reason(context, verdict) if verdict.kind is Kind.CANNOT_DECIDE else ""
        difference = token(f"{key}{paired or '.difference'}") + ("" if interval == DASH else f" {interval}")
        early = EARLY if verdict.stopped_early else ""
        rows.append([arm, f"**{texts(f'verdict.{verdict.kind}')}**{early}", difference, token(f"{key}.holm_p"), reason])
    header = [
        texts("summary.against", reference=context.reference),
        texts("table.verdict"),
        texts("summary.difference"),
    ]
    header += [texts("table.holm_p"), texts("summary.reason")]
    if any(row[-1] for row in rows):
        return Table(header, rows, left=(0, 1, 4))
    return Table(header[:-1], [row[:-1] for row in rows], left=(0, 1))
