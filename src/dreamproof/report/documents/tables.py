"""Tables that several documents show."""

from dreamproof.report.data import FINAL, Group
from dreamproof.report.document import Table
from dreamproof.report.numbers import DASH, group_key, number_text
from dreamproof.report.prose import Telling
from dreamproof.runs.layout import Cell

WIDEST_MATRIX = 12
WIDEST_KEY_TABLE = 8
SIGNALS = ("certificate/", "auroc/")
MOTION = "forward/"
SEED_COLUMNS = 12


def range_text(low: str, high: str) -> str:
    """[low, high], or a dash where there is no interval."""
    return DASH if DASH in (low, high) else f"[{low}, {high}]"


def matrix_table(telling: Telling) -> Table:
    """Arms by seeds: trained or not, and how many conditions are evaluated; counts where there are many seeds."""
    evidence, words = telling.analysis.evidence, telling.words
    study = evidence.study
    conditions = [condition.name for condition in study.conditions]
    if len(study.seeds) > WIDEST_MATRIX:
        return _counted_matrix(telling)
    rows = []
    for arm in study.arms:
        row = [arm]
        for seed in study.seeds:
            cell = Cell(arm, seed)
            mark = words(f"mark.{evidence.cells[cell].state}")
            done = sum(evidence.evals[cell, name].evaluated for name in conditions)
            row.append(f"{mark} {done}/{len(conditions)}" if conditions else mark)
        rows.append(row)
    return Table([words("table.arm_seed"), *map(str, study.seeds)], rows, left=(0,), evidence=False)


def _counted_matrix(telling: Telling) -> Table:
    evidence, words = telling.analysis.evidence, telling.words
    rows = []
    for arm in evidence.arms:
        cells = [facts for cell, facts in evidence.cells.items() if cell.arm == arm]
        evals = [facts for (cell, _), facts in evidence.evals.items() if cell.arm == arm]
        trained, evaluated = sum(f.trained for f in cells), sum(f.evaluated for f in evals)
        rows.append([arm, f"{trained}/{len(cells)}", f"{evaluated}/{len(evals)}"])
    return Table([words("table.arm"), words("table.trained"), words("table.evaluated")], rows, evidence=False)


def key_columns(telling: Telling) -> list[tuple[str, str, str]]:
    """(metric, condition, checkpoint) of the key table: the primary metric everywhere, others where the verdict is."""
    evidence = telling.analysis.evidence
    known = {(group.metric, group.condition, group.checkpoint) for group in [*evidence.values, *evidence.means]}
    metric = evidence.study.metric.name
    columns = [(metric, condition, FINAL) for condition in evidence.conditions]
    columns += [(metric, evidence.primary_condition, name) for name in evidence.checkpoints(metric) if name != FINAL]
    for other in evidence.metrics:
        if other == metric or other.startswith((*SIGNALS, MOTION)) or _is_nothing(telling, other):
            continue
        places = [(other, condition, name) for name in evidence.checkpoints(other) for condition in evidence.conditions]
        primary = [place for place in places if place[1] == evidence.primary_condition and place in known]
        columns += primary[:1] or [place for place in places if place in known][:1]
    return [column for column in columns if column in known][:WIDEST_KEY_TABLE]


def _is_nothing(telling: Telling, metric: str) -> bool:
    """Whether a metric that was not declared is 0 in every cell and floor, as the cost of a task without any is."""
    evidence = telling.analysis.evidence
    constraint = evidence.study.constraint
    if constraint is not None and metric == constraint.name:
        return False
    values = [value for group, seeds in evidence.values.items() if group.metric == metric for value in seeds.values()]
    values += [known.mean for group, known in evidence.means.items() if group.metric == metric]
    values += [floor.get(metric, 0.0) for floors in evidence.floors.values() for floor in floors.values()]
    return not any(values)


def column_title(telling: Telling, column: tuple[str, str, str]) -> str:
    """score · hallu2, cost@best · hallu2; conditions that are proxies say so."""
    metric, condition, checkpoint = column
    mark = "" if checkpoint == FINAL else f"@{checkpoint}"
    kind = telling.analysis.evidence.kind(condition)
    proxy = telling.words("mark.proxy") if kind == "proxy" else ""
    return f"{metric}{mark} · {telling.condition(condition)}{proxy}"


def key_table(telling: Telling) -> Table:
    """Arms by key values, mean ± sd over seeds."""
    columns = key_columns(telling)
    rows = []
    for arm in telling.analysis.evidence.arms:
        row = [arm]
        for metric, condition, checkpoint in columns:
            row.append(mean_sd(telling, Group(arm, condition, metric, checkpoint)))
        rows.append(row)
    rows += _floor_rows(telling, columns)
    return Table([telling.words("table.arm"), *(column_title(telling, column) for column in columns)], rows)


def motion_table(telling: Telling, conditions: list[str] | None = None) -> Table | None:
    """Length, distance and speed of locomotion episodes, arm by condition; None for tasks that have no forward."""
    evidence, words = telling.analysis.evidence, telling.words
    if not any(name.startswith(MOTION) for name in evidence.metrics):
        return None
    names = ("length", "forward/metres", "forward/metres_per_second")
    rows = []
    for condition in conditions or evidence.conditions:
        for arm in evidence.arms:
            cells = [mean_sd(telling, Group(arm, condition, name)) for name in names]
            if any(cell != DASH for cell in cells[1:]):
                rows.append([arm, telling.condition(condition), *cells])
    titles = ("table.arm", "table.condition", "motion.length", "motion.metres", "motion.speed")
    return Table([words(title) for title in titles], rows, left=(0, 1)) if rows else None


def signals_table(telling: Telling) -> Table | None:
    """What certificates and detectors did, arm by condition: coverage claimed and kept, and how shifts are told."""
    evidence = telling.analysis.evidence
    signals = [name for name in evidence.metrics if name.startswith(SIGNALS)]
    rows = []
    for condition in evidence.conditions:
        for arm in evidence.arms:
            cells = [mean_sd(telling, Group(arm, condition, name)) for name in signals]
            if any(cell != DASH for cell in cells):
                rows.append([arm, telling.condition(condition), *cells])
    header = [telling.words("table.arm"), telling.words("table.condition"), *signals]
    return Table(header, rows, left=(0, 1)) if rows else None


def _floor_rows(telling: Telling, columns: list[tuple[str, str, str]]) -> list[list[str]]:
    floors = telling.analysis.evidence.floors
    found = dict.fromkeys(name for table in floors.values() for name in table)
    rows = []
    for name in found:
        cells = [floors.get(condition, {}).get(name, {}).get(metric) for metric, condition, _ in columns]
        texts = [number_text(value, 2) for value in cells]
        rows.append([f"{telling.words('table.floor')} {name}", *texts])
    return rows


def mean_sd(telling: Telling, group: Group) -> str:
    """mean ± sd, mean alone where only it is known, or a dash."""
    key = f"main.{group_key(telling.analysis, group)}"
    mean, sd = telling.numbers.token(f"{key}.mean"), telling.numbers.token(f"{key}.sd")
    return mean if sd == DASH else f"{mean} ± {sd}"


def spread_table(telling: Telling, condition: str) -> Table:
    """Everything about the primary metric under one condition: centre, spread, both intervals, two groups or one."""
    analysis, words, token = telling.analysis, telling.words, telling.numbers.token
    rows = []
    for arm in analysis.evidence.arms:
        group = Group(arm, condition, analysis.evidence.study.metric.name)
        key = f"main.{group_key(analysis, group)}"
        summary = analysis.summaries.get(group)
        flag = words("table.two_groups") if summary is not None and summary.two_groups else ""
        row = [arm, *(token(f"{key}.{name}") for name in ("seeds", "mean", "iqm", "median", "sd"))]
        row.append(range_text(token(f"{key}.minimum"), token(f"{key}.maximum")))
        row.append(range_text(token(f"{key}.t_low"), token(f"{key}.t_high")))
        row.append(range_text(token(f"{key}.bootstrap_low"), token(f"{key}.bootstrap_high")))
        rows.append([*row, flag])
    header = ["arm", "seeds", "mean", "iqm", "median", "sd", "range", "t_interval", "bootstrap", "remark"]
    return _without_empty_last(Table([words(f"table.{name}") for name in header], rows))


def _without_empty_last(table: Table) -> Table:
    """Drops the last column where it says nothing."""
    if any(row[-1] for row in table.rows):
        return table
    return Table(table.header[:-1], [row[:-1] for row in table.rows], table.left, table.evidence)


def seeds_table(telling: Telling, condition: str) -> Table | None:
    """Every seed's own value of the primary metric under one condition; None beyond twelve seeds."""
    evidence = telling.analysis.evidence
    seeds = evidence.study.seeds
    if len(seeds) > SEED_COLUMNS:
        return None
    rows = []
    for arm in evidence.arms:
        key = f"main.{group_key(telling.analysis, Group(arm, condition, evidence.study.metric.name))}"
        rows.append([arm, *(telling.numbers.token(f"{key}.seed{seed}") for seed in seeds)])
    return Table([telling.words("table.arm_seed"), *map(str, seeds)], rows, evidence=False)


def tails_table(telling: Telling) -> Table | None:
    """P(cost = 0) and CVaR90 of the constraint's metric at the final checkpoint; None without any cost to speak of."""
    analysis, words, token = telling.analysis, telling.words, telling.numbers.token
    groups = [group for group in sorted(analysis.tails) if group.checkpoint == FINAL]
    told = {metric for metric in {group.metric for group in groups} if not _is_nothing(telling, metric)}
    groups = [group for group in groups if group.metric in told]
    if not groups:
        return None
    order = {arm: place for place, arm in enumerate(analysis.evidence.arms)}
    groups.sort(key=lambda group: (analysis.evidence.conditions.index(group.condition), order[group.arm]))
    rows = []
    for group in groups:
        key = f"main.{group_key(analysis, group)}"
        row = [group.arm, telling.condition(group.condition), mean_sd(telling, group)]
        rows.append([*row, token(f"{key}.zero_share"), token(f"{key}.cvar90"), token(f"{key}.maximum")])
    names = ("arm", "condition", "mean_sd", "zero_share", "cvar90", "worst_seed")
    return Table([words(f"table.{name}") for name in names], rows, left=(0, 1))


def verdict_table(telling: Telling) -> Table:
    """The declared comparisons: verdict, difference, tests, probability of improvement, effect."""
    analysis, words, token = telling.analysis, telling.words, telling.numbers.token
    rows = []
    for arm in analysis.treatments:
        key = f"versus.{group_key(analysis, analysis.primary(arm))}"
        rows.append(
            [
                arm,
                words(f"verdict.{analysis.verdicts[arm].kind}"),
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
    return Table([words(f"table.{name}") for name in names], rows, left=(0, 1))


def secondary_table(telling: Telling) -> Table | None:
    """The same comparisons under the other conditions, as exploration without a verdict."""
    analysis, words, token = telling.analysis, telling.words, telling.numbers.token
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
            row = [arm, telling.condition(condition), token(f"{key}.difference"), interval]
            rows.append(
                [*row, token(f"{key}.p"), token(f"{key}.holm_p"), token(f"{key}.welch_p"), token(f"{key}.improvement")]
            )
    names = ("arm", "condition", "difference", "interval", "p", "holm_p", "welch_p", "improvement")
    return Table([words(f"table.{name}") for name in names], rows, left=(0, 1)) if rows else None


def paired_table(telling: Telling) -> Table | None:
    """The paired view over shared seeds on shared layouts; None where no pair exists."""
    analysis, words, token = telling.analysis, telling.words, telling.numbers.token
    rows = []
    for arm in analysis.treatments:
        found = analysis.comparisons.get(analysis.primary(arm))
        if found is None or found.paired is None:
            continue
        key = f"versus.{group_key(analysis, analysis.primary(arm))}"
        interval = range_text(token(f"{key}.paired_low"), token(f"{key}.paired_high"))
        rows.append([arm, str(found.paired.pairs), token(f"{key}.paired"), interval, token(f"{key}.paired_p")])
    names = ("arm", "pairs", "difference", "interval", "sign_flip_p")
    return Table([words(f"table.{name}") for name in names], rows) if rows else None
