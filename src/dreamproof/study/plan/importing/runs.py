"""Takes runs made outside a study into it: copies nothing, proves what can be proven, names the rest unproven."""

import os
from collections import Counter
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.text import count_text, duration_text, money_text, nearest_word, quoted
from dreamproof.study.ledger.status import NOT_OURS, SAVE_REMEDY, status_text
from dreamproof.study.plan.importing.folders import find_in_folder
from dreamproof.study.plan.importing.found import Found, ImportOptions, ImportResult
from dreamproof.study.plan.importing.record import record_evaluations, record_training
from dreamproof.study.plan.importing.results import is_result_table, record_results
from dreamproof.study.plan.importing.slurm_logs import find_in_logs, is_log
from dreamproof.study.plan.importing.tables import find_in_table
from dreamproof.study.plan.on_disk import proof_gone
from dreamproof.study.plan.open_study import OpenStudy


def import_runs(opened: OpenStudy, source: Path, options: ImportOptions | None = None) -> ImportResult:
    """Looks at run folders, logs or tables of runs that were made outside a study; returns what to record."""
    options = options or ImportOptions()
    if not os.path.lexists(source):
        raise BadInput(f"{source}: no such folder or table", f"ls {quoted(source.parent)}")
    result = ImportResult()
    if not os.path.isdir(source) and not is_log(source) and is_result_table(opened.study, source):
        record_results(opened, source, options, result)
        _add_value_lines(source, result)
        return result
    found = _find(opened, source, options, result)
    if not found:
        raise _nothing_found(opened, source, options, result)
    record_training(opened, [one for one in found if one.condition is None], options, result)
    record_evaluations(opened, [one for one in found if one.condition is not None], result)
    _add_summary(opened, result)
    return result


def _find(opened: OpenStudy, source: Path, options: ImportOptions, result: ImportResult) -> list[Found]:
    """What a folder of run folders, a folder of logs, one log or a table of statuses names."""
    if os.path.isdir(source):
        folders = list(find_in_folder(opened.study, source, options.pattern, result))
        return folders or list(find_in_logs(opened.study, source, options, result))
    if is_log(source):
        return list(find_in_logs(opened.study, source, options, result))
    return list(find_in_table(opened.study, source, result))


def _add_value_lines(source: Path, result: ImportResult) -> None:
    result.lines += [f"reported: {', '.join(value.row())}" for value in result.reported[:20]]
    result.lines += [f"unmatched, ignored: {name}" for name in result.unmatched[:20]]
    count = count_text(len(result.reported), "value")
    result.lines.append(f"{count} of {source} in imported/results.csv: reported, not proven; the report marks them so")


def _nothing_found(opened: OpenStudy, source: Path, options: ImportOptions, result: ImportResult) -> BadInput:
    seen = f"; it holds e.g. '{result.unmatched[0]}'" if result.unmatched else "; it holds no folder of runs and no log"
    arms = ", ".join(opened.study.arms)
    way = f"with the pattern '{options.pattern}'" if options.pattern else "by name"
    return BadInput(
        f"{source}: no run matches a declared cell {way} (arms {arms}){seen}",
        f"dreamproof import {quoted(opened.named)} {quoted(source)} --pattern '*_{{arm}}_*_{{seed}}'",
    )


def _add_summary(opened: OpenStudy, result: ImportResult) -> None:
    """Names what is declared and was not found, which is what a list of finished runs never shows."""
    taken = {*result.proven, *result.unproven, *result.living}
    result.missing = [
        text
        for cell, known in opened.state.cells.items()
        if (text := str(cell)) not in taken and not opened.state.trained(known)
    ]
    declared = len(opened.state.cells)
    known_cells = opened.state.cells.items()
    before = sum(opened.state.trained(known) and proof_gone(opened, cell) is None for cell, known in known_cells)
    trained = before + sum(text in {str(cell) for cell in opened.state.cells} for text in result.proven)
    result.lines += [f"{text}: missing" for text in result.missing]
    result.lines += [f"unmatched, ignored: {name}{_hint(opened, name)}" for name in result.unmatched[:20]]
    unproven = sum(" " not in text for text in result.unproven) - len(result.not_saved)
    lost = [f"{len(result.not_saved)} trained and not saved"] if result.not_saved else []
    living = [f"{len(result.living)} {status_text(NOT_OURS)}"] if result.living else []
    rest = [f"{unproven} unproven", f"{len(result.missing)} missing"]
    parts = [f"{trained} of {declared} cells proven", *living, *lost, *rest]
    result.lines.append(", ".join(parts))
    result.lines += _causes_lines(result)
    result.lines += _not_saved_lines(opened, result)


def _causes_lines(result: ImportResult) -> list[str]:
    """How many runs ended how, and how many are not used."""
    ordered = sorted(Counter(result.causes).items(), key=lambda pair: (-pair[1], pair[0]))
    counts = ", ".join(f"{cause} {count}" for cause, count in ordered)
    aborted = sum(map(len, result.aborted.values()))
    lines = [f"ended early: {counts}"] if counts else []
    return lines + ([f"aborted duplicates, counted as waste: {aborted}"] if aborted else [])


def _not_saved_lines(opened: OpenStudy, result: ImportResult) -> list[str]:
    """Hours and money of what was trained and not saved, and the remedy."""
    if not result.not_saved:
        return []
    seconds, money = sum(result.not_saved.values()), opened.study.money
    price = money_text(seconds / 3600 * money.gpus_per_attempt * money.price_per_gpu_hour, money.currency)
    return [f"trained and not saved: {duration_text(seconds)}, {price}; {SAVE_REMEDY}"]


def _hint(opened: OpenStudy, name: str) -> str:
    near = nearest_word(name, opened.study.arms)
    return f" (did you mean arm '{near}'?)" if near else ""
