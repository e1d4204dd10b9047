"""Tables shared by several documents."""

from itertools import product

from dreamproof.report.context import ReportContext
from dreamproof.report.data import FINAL, TRAIN, Group
from dreamproof.report.document import Table
from dreamproof.report.limits import Constrained
from dreamproof.report.lints.values import says_peak
from dreamproof.report.numbers import DASH, group_key, number_text
from dreamproof.report.prose import mean_sd
from dreamproof.report.rounding import uncertain_decimals
from dreamproof.report.tasks import task_metrics
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import DATA_FLOORS
from dreamproof.settings.study import Study

WIDEST_MATRIX = 12
WIDEST_KEY_TABLE = 8
SIGNALS = ("certificate/", "auroc/")
MOTION = "forward/"
SEED_COLUMNS = 12


def range_text(low: str, high: str) -> str:
    """[low, high], or a dash if there is no interval."""
    return DASH if DASH in (low, high) else f"[{low}, {high}]"


def matrix_table(context: ReportContext) -> Table:
    """Arms by seeds: trained or not, and how many conditions are evaluated; counts if there are many seeds."""
    evidence, texts = context.analysis.evidence, context.texts
    study = evidence.study
    conditions = [condition.name for condition in study.conditions]
    if len(study.seeds) > WIDEST_MATRIX:
        return _counted_matrix(context)
    rows = []
    for arm in study.arms:
        row = [arm]
        for seed in study.seeds:
            cell = Cell(arm, seed)
            mark = texts(f"mark.{evidence.cells[cell].state}")
            done = sum(evidence.evals[cell, name].evaluated for name in conditions)
            row.append(f"{mark} {done}/{len(conditions)}" if conditions else mark)
        rows.append(row)
    return Table([texts("table.arm_seed"), *map(str, study.seeds)], rows, left=(0,), evidence=False)


def _counted_matrix(context: ReportContext) -> Table:
    evidence, texts = context.analysis.evidence, context.texts
    rows = []
    for arm in evidence.arms:
        cells = [facts for cell, facts in evidence.cells.items() if cell.arm == arm]
        evals = [facts for (cell, _), facts in evidence.evals.items() if cell.arm == arm]
        trained, evaluated = sum(f.trained for f in cells), sum(f.evaluated for f in evals)
        rows.append([arm, f"{trained}/{len(cells)}", f"{evaluated}/{len(evals)}"])
    return Table([texts("table.arm"), texts("table.trained"), texts("table.evaluated")], rows, evidence=False)


def key_columns(context: ReportContext) -> list[tuple[str, str, str]]:
    """(metric, condition, checkpoint) of the key table; secondary metrics in the deciding condition only."""
    evidence = context.analysis.evidence
    known = {(group.metric, group.condition, group.checkpoint) for group in [*evidence.values, *evidence.means]}
    metric = evidence.study.metric.name
    places = dict.fromkeys([evidence.primary_condition, *evidence.conditions, TRAIN])
    joint = [evidence.primary_condition] if len(evidence.deciding_conditions) > 1 else []
    columns = [(name, condition, FINAL) for condition in joint for name in task_metrics(evidence)]
    columns += [(metric, condition, FINAL) for condition in evidence.conditions]
    for name in evidence.checkpoints(metric):
        held = [(metric, condition, name) for condition in places if (metric, condition, name) in known]
        columns += [place for place in held[:1] if place not in columns]
    for other in evidence.metrics:
        if other == metric or other.startswith((*SIGNALS, MOTION)) or _is_all_zero(context, other):
            continue
        held = [(other, condition, name) for name in evidence.checkpoints(other) for condition in places]
        primary = [place for place in held if place[1] == evidence.primary_condition and place in known]
        found = primary[:1] or [place for place in held if place in known][:1]
        columns += [place for place in found if place not in columns]
    return [column for column in columns if column in known][:WIDEST_KEY_TABLE]


def _is_all_zero(context: ReportContext, metric: str) -> bool:
    """Whether an undeclared metric is 0 in every cell and floor."""
    evidence = context.analysis.evidence
    if evidence.study.limit_of(metric) is not None:
        return False
    values = [value for group, seeds in evidence.values.items() if group.metric == metric for value in seeds.values()]
    values += [known.mean for group, known in evidence.means.items() if group.metric == metric]
    values += [floor.get(metric, 0.0) for floors in evidence.floors.values() for floor in floors.values()]
    return not any(values)


def column_title(context: ReportContext, column: tuple[str, str, str]) -> str:
    """score · hallu2, cost@best · hallu2; proxy conditions and peaks are marked."""
    metric, condition, checkpoint = column
    mark = "" if checkpoint == FINAL else f"@{checkpoint}"
    kind = context.analysis.evidence.kind(condition)
    proxy = context.texts("mark.proxy") if kind == "proxy" else ""
    deciding = context.analysis.evidence.study.metric
    explained = metric == deciding.name and deciding.checkpoint_rule is not None
    is_peak = says_peak(checkpoint) or (says_peak(metric) and not explained)
    peak = context.texts("mark.peak") if is_peak else ""
    return f"{metric}{mark} · {context.condition(condition, metric)}{proxy}{peak}"


def key_table(context: ReportContext) -> Table:
    """Arms by key values, mean ± sd over seeds."""
    columns = key_columns(context)
    rows = []
    for arm in context.analysis.evidence.arms:
        row = [arm]
        for metric, condition, checkpoint in columns:
            group = Group(arm, condition, metric, checkpoint)
            row.append(mean_sd(context, group) + _limit_mark(context, group))
        rows.append(row)
    rows += _floor_rows(context, columns)
    return Table([context.texts("table.arm"), *(column_title(context, column) for column in columns)], rows)


def _limit_mark(context: ReportContext, group: Group) -> str:
    """What is shown about the limit, behind a value of the limited metric."""
    found = limit_of(context, group)
    return "" if found is None else context.in_brackets(context.texts(f"limit_verdict.{found.verdict.kind}"))


def limit_of(context: ReportContext, group: Group) -> Constrained | None:
    """The group against the limit; None if its metric has none."""
    analysis, place = context.analysis, (group.metric, group.condition)
    for found in analysis.limits.get(group.arm, []):
        if (found.metric, found.condition, found.checkpoint) == (*place, group.checkpoint):
            return found
    return analysis.elsewhere.get(group.arm, {}).get(place) if group.checkpoint == FINAL else None


def limit_table(context: ReportContext) -> Table:
    """Every arm under every condition against the limits, the deciding condition first."""
    evidence, token = context.analysis.evidence, context.numbers.token
    conditions = dict.fromkeys([evidence.primary_condition, *evidence.conditions])
    limited = [limit.name for limit in evidence.study.limits]
    checkpoints = dict.fromkeys([FINAL, *(name for metric in limited for name in evidence.checkpoints(metric))])
    rows = []
    for metric, condition, checkpoint, arm in product(limited, conditions, checkpoints, evidence.arms):
        group = Group(arm, condition, metric, checkpoint)
        found = limit_of(context, group)
        if found is not None:
            key = f"limit.{group_key(context.analysis, group)}"
            bounds = [token(f"{key}_low"), token(f"{key}_high")]
            verdict = context.texts(f"limit_verdict.{found.verdict.kind}")
            name = column_title(context, (group.metric, condition, checkpoint))
            rows.append([arm, name, str(found.verdict.seeds), mean_sd(context, group), *bounds, verdict])
    names = ("arm", "condition", "seeds", "mean_sd", "limit_low", "limit_high", "limit")
    return Table([context.texts(f"table.{name}") for name in names], rows, left=(0, 1, 6))


def motion_table(context: ReportContext, conditions: list[str] | None = None) -> Table | None:
    """Length, distance and speed of locomotion episodes, arm by condition; None without forward motion."""
    evidence, texts = context.analysis.evidence, context.texts
    if not any(name.startswith(MOTION) for name in evidence.metrics):
        return None
    names = ("length", "forward/metres", "forward/metres_per_second")
    rows = []
    for condition in conditions or evidence.conditions:
        for arm in evidence.arms:
            cells = [mean_sd(context, Group(arm, condition, name)) for name in names]
            if any(cell != DASH for cell in cells[1:]):
                rows.append([arm, context.condition(condition), *cells])
    titles = ("table.arm", "table.condition", "motion.length", "motion.metres", "motion.speed")
    return Table([texts(title) for title in titles], rows, left=(0, 1)) if rows else None


def signals_table(context: ReportContext) -> Table | None:
    """Coverage of certificates and AUROC of shift detectors, by arm and condition."""
    evidence = context.analysis.evidence
    signals = [name for name in evidence.metrics if name.startswith(SIGNALS)]
    rows = []
    for condition in evidence.conditions:
        for arm in evidence.arms:
            cells = [mean_sd(context, Group(arm, condition, name)) for name in signals]
            if any(cell != DASH for cell in cells):
                rows.append([arm, context.condition(condition), *cells])
    header = [context.texts("table.arm"), context.texts("table.condition"), *signals]
    return Table(header, rows, left=(0, 1)) if rows else None


def _floor_rows(context: ReportContext, columns: list[tuple[str, str, str]]) -> list[list[str]]:
    floors = context.analysis.evidence.floors
    found = dict.fromkeys(name for table in floors.values() for name in table)
    rows = []
    for name in found:
        cells = [floors.get(condition, {}).get(name, {}).get(metric) for metric, condition, _ in columns]
        decimals = [floor_decimals(context.analysis.evidence.study, metric, 2) for metric, _, _ in columns]
        texts = [number_text(*each) for each in zip(cells, decimals, strict=True)]
        rows.append([floor_name(context, name), *texts])
    return rows


def floor_decimals(study: Study, metric: str, least: int) -> int:
    """Decimals of a floor: those of the smallest difference that matters, so that a score of 0.225 is not 0.2."""
    known = study.metric.smallest_difference if metric == study.metric.name else None
    return max(least, uncertain_decimals(known)) if known else least


def spread_table(context: ReportContext, condition: str) -> Table:
    """The primary metric under one condition: centre, spread, both intervals, and whether seeds form two groups."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    rows = []
    for arm in analysis.evidence.arms:
        group = Group(arm, condition, analysis.evidence.study.metric.name)
        key = f"main.{group_key(analysis, group)}"
        summary = analysis.summaries.get(group)
        flag = texts("table.two_groups") if summary is not None and summary.two_groups else ""
        row = [arm, *(token(f"{key}.{name}") for name in ("seeds", "mean", "iqm", "median", "sd"))]
        row.append(range_text(token(f"{key}.minimum"), token(f"{key}.maximum")))
        row.append(range_text(token(f"{key}.t_low"), token(f"{key}.t_high")))
        row.append(range_text(token(f"{key}.bootstrap_low"), token(f"{key}.bootstrap_high")))
        rows.append([*row, flag])
    header = ["arm", "seeds", "mean", "iqm", "median", "sd", "range", "t_interval", "bootstrap", "remark"]
    return _without_empty_last(Table([texts(f"table.{name}") for name in header], rows))


def _without_empty_last(table: Table) -> Table:
    """Drops the last column if it is empty."""
    if any(row[-1] for row in table.rows):
        return table
    return Table(table.header[:-1], [row[:-1] for row in table.rows], table.left, table.evidence)


def seeds_table(context: ReportContext, condition: str) -> Table | None:
    """Every seed's own value of the primary metric under one condition; None beyond twelve seeds."""
    evidence = context.analysis.evidence
    seeds = evidence.study.seeds
    if len(seeds) > SEED_COLUMNS:
        return None
    rows = []
    for arm in evidence.arms:
        key = f"main.{group_key(context.analysis, Group(arm, condition, evidence.study.metric.name))}"
        rows.append([arm, *(context.numbers.token(f"{key}.seed{seed}") for seed in seeds)])
    return Table([context.texts("table.arm_seed"), *map(str, seeds)], rows, evidence=False)


def tails_table(context: ReportContext) -> Table | None:
    """P(cost = 0) and CVaR90 of the constraint's metric at the final checkpoint; None if all costs are 0."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    groups = [group for group in sorted(analysis.tails) if group.checkpoint == FINAL]
    nonzero = {metric for metric in {group.metric for group in groups} if not _is_all_zero(context, metric)}
    groups = [group for group in groups if group.metric in nonzero]
    if not groups:
        return None
    order = {arm: place for place, arm in enumerate(analysis.evidence.arms)}
    several = len(nonzero) > 1
    conditions = analysis.evidence.conditions
    groups.sort(key=lambda group: (group.metric, conditions.index(group.condition), order[group.arm]))
    rows = []
    for group in groups:
        key = f"main.{group_key(analysis, group)}"
        row = [group.arm, context.condition(group.condition), *([group.metric] if several else [])]
        values = (token(f"{key}.zero_share"), token(f"{key}.cvar90"), token(f"{key}.maximum"))
        rows.append([*row, mean_sd(context, group), *values])
    named = ["arm", "condition", *(["metric"] if several else [])]
    names = (*named, "mean_sd", "zero_share", "cvar90", "worst_seed")
    return Table([texts(f"table.{name}") for name in names], rows, left=tuple(range(len(named))))


def verdict_table(context: ReportContext) -> Table:
    """The declared comparisons: verdict, difference, tests, probability of improvement, effect."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    rows = []
    for arm in analysis.treatments:
        key = f"versus.{group_key(analysis, analysis.primary(arm))}"
        rows.append(
            [
                arm,
                texts(f"verdict.{analysis.verdicts[arm].kind}"),
                token(f"{key}.difference"),
                range_text(token(f"{key}_low"), token(f"{key}_high")),
                token(f"{key}.p"),
                token(f"{key}.holm_p"),
                token(f"{key}.welch_p"),
                token(f"{key}.improvement"),
                range_text(token(f"{key}.improvement_low"), token(f"{key}.improvement_high")),
                token(f"{key}.effect"),
            ]
        )
    names = (
        "arm",
        "verdict",
        "difference",
        "interval",
        "p",
        "holm_p",
        "welch_p",
        "improvement",
        "improvement_interval",
        "effect",
    )
    return Table([texts(f"table.{name}") for name in names], rows, left=(0, 1))


def secondary_table(context: ReportContext) -> Table | None:
    """The same comparisons under the other conditions, as exploration without a verdict."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    metric = analysis.evidence.study.metric.name
    rows = []
    for condition in analysis.evidence.conditions:
        if condition == analysis.evidence.primary_condition:
            continue
        for arm in analysis.treatments:
            group = Group(arm, condition, metric)
            if group not in analysis.comparisons:
                continue
            key = f"versus.{group_key(analysis, group)}"
            interval = range_text(token(f"{key}_low"), token(f"{key}_high"))
            row = [arm, context.condition(condition), token(f"{key}.difference"), interval]
            rows.append(
                [*row, token(f"{key}.p"), token(f"{key}.holm_p"), token(f"{key}.welch_p"), token(f"{key}.improvement")]
            )
    names = ("arm", "condition", "difference", "interval", "p", "holm_p", "welch_p", "improvement")
    return Table([texts(f"table.{name}") for name in names], rows, left=(0, 1)) if rows else None


def paired_table(context: ReportContext) -> Table | None:
    """The paired view over shared seeds on shared layouts; None if no pair exists."""
    analysis, texts, token = context.analysis, context.texts, context.numbers.token
    rows = []
    for arm in analysis.treatments:
        found = analysis.comparisons.get(analysis.primary(arm))
        if found is None or found.paired is None:
            continue
        key = f"versus.{group_key(analysis, analysis.primary(arm))}"
        interval = range_text(token(f"{key}.paired_low"), token(f"{key}.paired_high"))
        rows.append([arm, str(found.paired.pairs), token(f"{key}.paired"), interval, token(f"{key}.paired_p")])
    names = ("arm", "pairs", "difference", "interval", "sign_flip_p")
    return Table([texts(f"table.{name}") for name in names], rows) if rows else None


def floor_name(context: ReportContext, name: str) -> str:
    """The first cell of a floor's row; recorded data are something to compare with, and no floor."""
    if name in DATA_FLOORS:
        return context.texts(f"table.{name.replace(' ', '_')}")
    return context.texts("table.floor", name=name)
