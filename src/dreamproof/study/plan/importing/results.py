"""Results that people keep in tables or evaluation folders of their own: reported values, which prove nothing."""

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import Unreadable, read_file, write_text
from dreamproof.base.safe_text import printable
from dreamproof.base.text import quoted
from dreamproof.runs.imported import VALUE_COLUMNS, ImportedValue
from dreamproof.runs.layout import SEED, RunFolder, StudyFolder
from dreamproof.settings.study import Study
from dreamproof.study.adapters import guess_adapter, study_format
from dreamproof.study.ledger.outside_events import ValuesImported
from dreamproof.study.plan.importing.eval_logs import read_eval_log
from dreamproof.study.plan.importing.found import Found, ImportOptions, ImportResult
from dreamproof.study.plan.importing.slurm_logs import how_it_ended
from dreamproof.study.plan.importing.tables import TABLE_BYTES, column_names, declared_name, read_rows
from dreamproof.study.plan.open_study import OpenStudy

STATISTICS = ("mean", "avg", "average", "std", "sd")
CHECKPOINTS = ("best", "peak", "final", "last")
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
WITH_SPREAD = re.compile(rf"^\s*({NUMBER})\s*(?:(?:±|\+/-|\+-)\s*({NUMBER})|\(\s*({NUMBER})\s*\))?\s*%?\s*$")
FORM = "columns config and e.g. id_score_mean, with a seed column or --seeds 0-4"


@dataclass(frozen=True)
class ResultColumn:
    """What a column of a table of results holds."""

    name: str
    condition: str
    metric: str
    checkpoint: str = ""
    is_spread: bool = False


def read_column(name: str, study: Study) -> ResultColumn | None:
    """Condition, metric and checkpoint in a header such as `id_score_mean` or `OOD cost@best(mean)`."""
    parts = _parts(name)
    for condition in sorted(study.conditions, key=lambda one: -len(one.name)):
        named = _parts(condition.name)
        if parts[: len(named)] == named:
            rest = parts[len(named) :]
            words = "_".join(part for part in rest if part not in (*STATISTICS, *CHECKPOINTS, "at"))
            metric = next((one for one in _metrics(study) if "_".join(_parts(one)) == words), words)
            checkpoint = next((part for part in rest if part in CHECKPOINTS), "")
            is_spread = "std" in rest[-1:] and "mean" not in rest
            return ResultColumn(name, condition.name, metric, checkpoint, is_spread) if metric else None
    return None


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[^0-9a-z]+", name.lower()) if part]


def _metrics(study: Study) -> list[str]:
    """Declared names, which a table may write in another case."""
    return [study.metric.name, *(limit.name for limit in study.limits)]


def is_result_table(study: Study, source: Path) -> bool:
    """Whether a table holds results by arm, and neither run folders nor statuses."""
    header, _ = read_rows(source)
    names = column_names(header)
    is_status = names.keys() & {"folder", "status"}
    return "arm" in names and not is_status and any(read_column(name, study) for name in header)


def record_results(opened: OpenStudy, source: Path, options: ImportOptions, result: ImportResult) -> None:
    """The values of a table of results; which column is not understood is named."""
    study = opened.study
    header, rows = read_rows(source)
    names = column_names(header)
    columns = [column for name in header if (column := read_column(name, study)) is not None]
    others = [name for name in header if name not in names.values() and read_column(name, study) is None]
    result.unmatched += [f"column {printable(name)[:80]}: names no declared condition and metric" for name in others]
    found: list[ImportedValue] = []
    for line, row in enumerate(rows, start=2):
        arm = declared_name(row.get(names["arm"], ""), study.arms)
        if arm is None:
            result.unmatched.append(f"line {line}: {printable(row.get(names['arm'], ''))[:80]}")
            continue
        seeds = _seeds(opened, source, row.get(names["seed"]) if "seed" in names else None, options)
        found += _row_values(arm, seeds, columns, row)
    _add(opened, str(source), found, result)


def _seeds(opened: OpenStudy, source: Path, text: str | None, options: ImportOptions) -> tuple[int, ...]:
    if text is not None and SEED.fullmatch(text.strip()):
        return (int(text),)
    if not options.seeds:
        declared = f"{opened.study.seeds[0]}-{opened.study.seeds[-1]}"
        raise BadInput(
            f"{source}: has no column for the seed, so its values are means over seeds that it does not name "
            f"(accepted: {FORM})",
            f"dreamproof import {quoted(opened.named)} {quoted(source)} --seeds {declared}",
        )
    return options.seeds


def _row_values(
    arm: str, seeds: tuple[int, ...], columns: list[ResultColumn], row: dict[str, str]
) -> list[ImportedValue]:
    """The numbers of a row. A spread belongs to its mean over several seeds; of one seed it is a metric of its own."""
    means: dict[tuple[str, str, str], float] = {}
    spreads: dict[tuple[str, str, str], float] = {}
    for column in columns:
        match = WITH_SPREAD.match(row.get(column.name) or "")
        if match is None:
            continue
        place, spread = (column.condition, column.checkpoint, column.metric), match[2] or match[3]
        (spreads if column.is_spread else means)[place] = float(match[1])
        if spread is not None:
            spreads[place] = float(spread)
    shared = spreads if len(seeds) > 1 else {}
    values = [ImportedValue(arm, seeds, *place, mean, shared.get(place)) for place, mean in means.items()]
    alone = {place: spread for place, spread in spreads.items() if place not in shared or place not in means}
    return values + [ImportedValue(arm, seeds, *place[:2], f"{place[2]}_std", one) for place, one in alone.items()]


def record_evaluation_folder(opened: OpenStudy, found: Found, result: ImportResult) -> str:
    """Means of an evaluation's folder or log, which names no checkpoint; what was found, to be added to the reason."""
    study = opened.study
    if found.root is None or not found.root.is_dir():
        return _record_evaluation_log(opened, found, result) if found.output is not None else ""
    run = RunFolder(found.root)
    series = guess_adapter(run, study_format(study)).results(run)
    wanted = [study.metric.name, *(limit.name for limit in study.limits)]
    means: list[ImportedValue] = []
    for name, points in series.items():
        metric, numbers = name.split("/")[-1], [value for _, value in points if math.isfinite(value)]
        if metric in wanted and numbers:
            mean = sum(numbers) / len(numbers)
            means.append(ImportedValue(found.cell.arm, (found.cell.seed,), found.condition or "", "", metric, mean))
    if means:
        _add(opened, str(found.root), means, result)
    values = ", ".join(f"{one.metric} {one.value:,.3f}" for one in means)
    return f"; it reports {values}, and names no checkpoint" if values else ""


def _record_evaluation_log(opened: OpenStudy, found: Found, result: ImportResult) -> str:
    """The same of a text log; how the evaluation ended if the log shows no value."""
    assert found.output is not None
    logged = read_eval_log(opened.study, found.output)
    if not logged:
        cause, evidence = how_it_ended(found, whole=False)
        return f"; its log shows no {opened.study.metric.name}; {cause}: {evidence[0]}"
    place = (found.cell.arm, (found.cell.seed,), found.condition or "", "")
    _add(opened, str(found.output), [ImportedValue(*place, one.metric, one.value) for one in logged], result)
    return f"; its log reports {', '.join(one.text for one in logged)}, and names no checkpoint"


def _add(opened: OpenStudy, source: str, values: list[ImportedValue], result: ImportResult) -> None:
    evals = sorted({f"{one.arm}/{seed} {one.condition}" for one in values for seed in one.seeds})
    place = printable(opened.folder.relative(Path(source)))[:300]
    result.reported += values
    known = set(_lines(opened.folder))
    if place in opened.state.imported_values and all(_csv_line(value.row()) in known for value in values):
        return
    file = opened.folder.relative(opened.folder.imported_results)
    result.events.append(ValuesImported(place, file, len(values), evals))


def write_results(folder: StudyFolder, values: list[ImportedValue]) -> None:
    """Adds values to `imported/results.csv`; a line that is there already is not repeated."""
    lines = dict.fromkeys([*(_lines(folder) or [",".join(VALUE_COLUMNS)]), *(_csv_line(one.row()) for one in values)])
    write_text(folder.imported_results, "\n".join(lines) + "\n")


def _lines(folder: StudyFolder) -> list[str]:
    """The lines that `imported/results.csv` holds."""
    content = read_file(folder.imported_results, TABLE_BYTES)
    return [] if isinstance(content, Unreadable) else content.decode("utf-8-sig").splitlines()


def _csv_line(fields: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
