"""Tables for machines and papers: CSV, Markdown, LaTeX; every row names its cells."""

import csv
import io
import json
import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from dreamproof.base.files import write_text
from dreamproof.base.safe_text import spreadsheet_text
from dreamproof.report.analysis import Analysis
from dreamproof.report.context import ReportContext
from dreamproof.report.data import Group
from dreamproof.report.document import Table
from dreamproof.report.documents.summary import summary_table
from dreamproof.report.documents.tables import key_table, limit_of
from dreamproof.report.documents.tasks import over_tasks_table
from dreamproof.report.latex import latex
from dreamproof.report.limits import Constrained
from dreamproof.report.markdown import cells_text, escape
from dreamproof.report.numbers import Numbers, plain
from dreamproof.report.tasks import over_tasks, task_metrics, task_tables
from dreamproof.stats.describe import Interval
from dreamproof.stats.verdict import Kind

MAIN_COLUMNS = (
    *("arm", "condition", "kind", "metric", "checkpoint", "seeds", "mean", "sd", "iqm", "median", "minimum", "maximum"),
    *("t_low", "t_high", "bootstrap_low", "bootstrap_high", "zero_share", "cvar90", "two_groups"),
    *("limit", "limit_low", "limit_high", "limit_verdict", "cells"),
)
ABLATION_COLUMNS = (
    *("arm", "reference", "condition", "metric", "checkpoint", "difference", "low", "high", "permutation_p", "holm_p"),
    *("welch_p", "smallest_p", "improvement", "improvement_low", "improvement_high", "effect_size", "seeds"),
    *("reference_seeds", "verdict", "why", "settings"),
)
PROVENANCE_COLUMNS = (
    *("cell", "condition", "state", "run_folder", "checkpoint", "parameter_hash", "agent_steps", "gradient_steps"),
    *("episodes", "commit", "settings_hash", "ledger_lines"),
)
VALIDATION_COLUMNS = (
    *("cell", "state", "final_return", "final_agent_steps", "area_return", "peak_return_not_a_result"),
    *("peak_agent_steps", "validations", "collapses", "rollbacks", "falls", "parameter_hash", "source", "ledger_lines"),
)


OVER_TASKS_COLUMNS = (
    *("arm", "metric", "tasks", "left_out", "seeds", "mean", "seed_value", "seed_value_sd", "iqm", "iqm_low"),
    *("iqm_high", "cells"),
)


def write_tables(context: ReportContext, folder: Path) -> list[Path]:
    """Writes every table and returns the files; those with text have a folder per language, but for English."""
    analysis, numbers = context.analysis, context.numbers
    own = analysis.evidence.folder.tables_in(context.texts.language).relative_to(analysis.evidence.folder.tables)
    files = {
        "main_results.csv": _csv(MAIN_COLUMNS, _main_rows(context)),
        "ablation_results.csv": _csv(ABLATION_COLUMNS, _ablation_rows(analysis)),
        str(own / "main_results.md"): _markdown(key_table(context), numbers),
        str(own / "main_results.tex"): latex(summary_table(context), numbers.rounded),
        "scores.csv": _scores(analysis),
        "verdicts.json": json.dumps(verdict_records(analysis), indent=1, ensure_ascii=False) + "\n",
        "numbers.csv": _csv(["key", "value", "text", "cells"], _number_rows(numbers)),
        "validation.csv": _csv(VALIDATION_COLUMNS, _validation_rows(analysis)),
        "provenance.csv": _csv(PROVENANCE_COLUMNS, _provenance_rows(analysis)),
        "episodes.csv": _episodes(analysis),
    }
    if (over := over_tasks_table(context)) is not None:
        files["over_tasks.csv"] = _csv(OVER_TASKS_COLUMNS, _over_tasks_rows(analysis))
        files[str(own / "over_tasks.md")] = _markdown(over, numbers)
    written = []
    for name, text in files.items():
        write_text(folder / name, text, durable=False)
        written.append(folder / name)
    return written


def _csv(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_field(value) for value in row] for row in rows)
    return out.getvalue()


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    """A text as it stands between the commas of a row."""
    return _csv([_field(text)], []).rstrip("\n")


def _field(value: object) -> object:
    """Numbers with ten digits, an empty field for None."""
    if isinstance(value, str):
        return spreadsheet_text(value)
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else "nan"
    return "" if value is None else value


def _main_rows(context: ReportContext) -> Iterable[list[object]]:
    analysis, evidence = context.analysis, context.analysis.evidence
    order = {arm: place for place, arm in enumerate(evidence.arms)}
    groups = {*analysis.summaries, *evidence.means}
    for group in sorted(groups, key=lambda g: (g.metric, g.condition, g.checkpoint, order.get(g.arm, 0), g.arm)):
        start: list[object] = [
            group.arm,
            group.condition,
            evidence.kind(group.condition),
            group.metric,
            group.checkpoint,
        ]
        cells = cells_text(analysis.cells_of(group), limit=10_000)
        summary = analysis.summaries.get(group)
        if summary is None:
            known = evidence.means[group]
            yield [*start, len(known.seeds), known.mean, known.sd, *[None] * 11, *_limit_fields(context, group), cells]
            continue
        t, boot, tail = summary.t_interval, summary.bootstrap_interval, analysis.tails.get(group)
        yield [
            *start,
            summary.seeds,
            summary.mean,
            summary.sd,
            summary.iqm,
            summary.median,
            summary.minimum,
            summary.maximum,
            t.low if t else None,
            t.high if t else None,
            boot.low if boot else None,
            boot.high if boot else None,
            tail.zero_share if tail else None,
            tail.cvar90 if tail else None,
            summary.two_groups,
            *_limit_fields(context, group),
            cells,
        ]


def _limit_fields(context: ReportContext, group: Group) -> list[object]:
    """Limit, bounds and verdict of a group of the limited metric; empty fields for any other."""
    found = limit_of(context, group)
    if found is None:
        return [None] * 4
    bounds = found.verdict.bounds
    ends = [None, None] if bounds is None else [bounds.low, bounds.high]
    return [found.limit, *ends, found.verdict.kind.value]


def _ablation_rows(analysis: Analysis) -> Iterable[list[object]]:
    study = analysis.evidence.study
    for group, found in analysis.comparisons.items():
        interval, improvement = found.interval, found.improvement_interval
        deciding = group == analysis.primary(group.arm)
        verdict = analysis.verdicts[group.arm] if deciding else None
        yield [
            group.arm,
            study.reference,
            group.condition,
            group.metric,
            group.checkpoint,
            found.difference,
            interval.low if interval else None,
            interval.high if interval else None,
            found.permutation_p,
            analysis.adjusted.get(group),
            found.welch_p,
            found.smallest_p,
            found.improvement,
            improvement.low if improvement else None,
            improvement.high if improvement else None,
            found.effect_size,
            found.treatment_seeds,
            found.reference_seeds,
            verdict.kind if verdict else "",
            verdict.why if verdict else "",
            json.dumps(study.arms[group.arm], ensure_ascii=False, sort_keys=True),
        ]


def _scores(analysis: Analysis) -> str:
    """One row per arm, seed, condition and checkpoint; one column per metric, the mean over episodes."""
    evidence = analysis.evidence
    metrics = sorted({group.metric for group in evidence.values})
    rows: dict[tuple[str, int, str, str], dict[str, float]] = {}
    for group, values in evidence.values.items():
        for seed, value in ({} if evidence.is_joined(group) else values).items():
            rows.setdefault((group.arm, seed, group.condition, group.checkpoint), {})[group.metric] = value
    header = ["arm", "seed", "condition", "kind", "checkpoint", *map(_field, metrics)]
    return _csv(
        header,
        (
            [arm, seed, condition, evidence.kind(condition), checkpoint, *(found.get(name) for name in metrics)]
            for (arm, seed, condition, checkpoint), found in sorted(rows.items())
        ),
    )


def verdict_records(analysis: Analysis) -> dict[str, object]:
    """The declared comparisons for other programs: verdict, difference, interval, both p values, and the limit."""
    study = analysis.evidence.study
    return {
        "study": study.name,
        "declaration": study.hash(),
        "reference": study.reference,
        "metric": study.metric.name,
        "direction": study.metric.direction,
        "conditions": analysis.evidence.deciding_conditions,
        "smallest_difference": study.metric.smallest_difference,
        "verdicts": [_verdict_record(analysis, arm) for arm in analysis.treatments],
        "not_compared": analysis.arms_on_other_tasks,
        "limits": [_limit_record(arm, found) for arm in analysis.evidence.arms for found in _limits(analysis, arm)],
    }


def _verdict_record(analysis: Analysis, arm: str) -> dict[str, object]:
    group, verdict = analysis.primary(arm), analysis.verdicts[arm]
    found, compared = analysis.difference(arm), analysis.comparisons.get(group)
    return {
        "arm": arm,
        "verdict": verdict.kind.value,
        "why": verdict.why.value,
        "blocked_by": list(verdict.blocked_by),
        "seeds": verdict.seeds,
        "level": _finite(verdict.level),
        "difference": None if found is None else _finite(found.mean),
        "interval": _ends(None if found is None else found.interval),
        "p": None if found is None else _finite(found.p),
        "p_holm": _finite(analysis.adjusted.get(group)),
        "p_equivalent": _finite(verdict.p) if verdict.kind is Kind.EQUIVALENT else None,
        "level_interval": _ends(verdict.interval),
        "difference_after_stopping": _finite(verdict.adjusted_difference),
        "p_improvement": None if compared is None else _finite(compared.improvement),
    }


def _limits(analysis: Analysis, arm: str) -> list[Constrained]:
    """An arm against the limits where they decide, then under every other condition."""
    return [*analysis.limits.get(arm, []), *analysis.elsewhere.get(arm, {}).values()]


def _limit_record(arm: str, found: Constrained) -> dict[str, object]:
    return {
        "arm": arm,
        "metric": found.metric,
        "condition": found.condition,
        "checkpoint": found.checkpoint,
        "limit": found.limit,
        "mean": _finite(found.mean),
        "bounds": _ends(found.verdict.bounds),
        "seeds": found.verdict.seeds,
        "level": _finite(found.verdict.level),
        "verdict": found.verdict.kind.value,
        "why": found.verdict.why.value,
    }


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [_finite(interval.low), _finite(interval.high)]


def _finite(value: float | None) -> float | None:
    """A number that JSON can hold, or None."""
    return value if value is not None and math.isfinite(value) else None


def _over_tasks_rows(analysis: Analysis) -> Iterable[list[object]]:
    """One row per arm and normalisation: mean over tasks, joined value of a seed, IQM over seeds and tasks."""
    evidence = analysis.evidence
    for metric, tasks in task_metrics(evidence).items():
        left_out = " ".join(task for task in evidence.study.tasks or [] if task not in tasks)
        for arm, table in task_tables(analysis, metric).items():
            found, group = over_tasks(table), Group(arm, evidence.primary_condition, metric)
            seeds, ends = analysis.summaries[group], _ends(found.interval) or [None, None]
            cells = cells_text(analysis.cells_of(group), limit=10_000)
            start: list[object] = [arm, metric, len(tasks), left_out, len(table), found.mean]
            yield [*start, seeds.mean, seeds.sd, found.iqm, *ends, cells]


def _number_rows(numbers: Numbers) -> Iterable[list[object]]:
    for number in numbers.order:
        yield [number.key, number.value, number.text, cells_text(number.cells, limit=10_000)]


def _validation_rows(analysis: Analysis) -> Iterable[list[object]]:
    """Every cell with a validation summary or a collapse, finished or not."""
    folder = analysis.evidence.folder
    for cell, facts in analysis.evidence.cells.items():
        one, run = facts.summary, analysis.evidence.kept_run(cell)
        if one is None and not facts.collapses:
            continue
        curve: list[object] = [None] * 6
        if one is not None:
            curve = [one.final_return, one.final_agent_steps, one.area_return]
            curve += [one.peak_return, one.peak_agent_steps, one.validations]
        falls = "; ".join(
            f"{fall.agent_steps}: {fall.best_return:.10g} → {fall.validation_return:.10g}, {fall.reason}"
            for fall in facts.collapses
        )
        yield [
            *[str(cell), facts.state, *curve, facts.collapse_count, facts.rollback_count, falls],
            *[facts.parameter_hash, folder.relative(run.summary), " ".join(map(str, facts.ledger_lines))],
        ]


def _provenance_rows(analysis: Analysis) -> Iterable[list[object]]:
    evidence = analysis.evidence
    conditions = [condition.name for condition in evidence.study.conditions]
    for cell, facts in evidence.cells.items():
        lines = " ".join(map(str, facts.ledger_lines))
        made: list[object] = [facts.agent_steps, facts.gradient_steps, None, facts.commit, facts.settings_hash]
        start: list[object] = [str(cell), "", facts.state, facts.run_folder, facts.checkpoint, facts.parameter_hash]
        yield [*start, *made, lines]
        for name in conditions:
            one = evidence.evals[cell, name]
            state = "evaluated" if one.evaluated else "missing"
            sources = [f"imported/results.csv:{line}" for line in evidence.sources.get((cell, name), [])]
            where = " ".join([*map(str, one.ledger_lines), *sources])
            yield [
                *[str(cell), name, state, facts.run_folder, "", one.parameter_hash],
                *[None, one.gradient_steps, one.episodes or None, "", "", where],
            ]


def _episodes(analysis: Analysis) -> str:
    """One row per episode, one column per metric; joined by hand because a large study has millions of values."""
    evidence = analysis.evidence
    metrics = sorted({group.metric for group in evidence.episodes})
    tables: dict[tuple[str, str, str, int], dict[str, list[float]]] = {}
    for group, seeds in evidence.episodes.items():
        for seed, values in seeds.items():
            tables.setdefault((group.arm, group.condition, group.checkpoint, seed), {})[group.metric] = values.tolist()
    parts = [_csv(["arm", "seed", "condition", "checkpoint", "episode", *map(_field, metrics)], [])]
    for (arm, condition, checkpoint, seed), table in sorted(tables.items()):
        start = f"{_quoted(arm)},{seed},{_quoted(condition)},{_quoted(checkpoint)},"
        count = max(map(len, table.values()))
        empty: list[object] = [""] * count
        columns = [table.get(metric, empty) for metric in metrics]
        padded = [[*column, *empty[len(column) :]] for column in columns]
        rows = zip(*padded, strict=True)
        parts.append("".join(f"{start}{n}," + ",".join(map(str, row)) + "\n" for n, row in enumerate(rows)))
    return "".join(parts)


def _markdown(table: Table, numbers: Numbers) -> str:
    rule = ["---" if place in table.left else "---:" for place in range(len(table.header))]
    header = [escape(name) for name in table.header]
    lines = [header, rule, *([escape(plain(cell, numbers)) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
