"""Takes runs made outside a study into it: copies nothing, proves what can be proven, names the rest unproven."""

import csv
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import Unreadable, list_folder, read_file, real_path
from dreamproof.base.safe_text import printable
from dreamproof.base.text import duration_text, money_text, nearest_word
from dreamproof.runs.layout import SEED, Cell, RunFolder
from dreamproof.runs.reader import NotSaved, TrainProof
from dreamproof.settings.study import Study
from dreamproof.study.adapters import DEFAULT, find_adapter, guess_adapter, study_adapter, study_format
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.adapters.folders import file_times
from dreamproof.study.ledger.events import CellStopped, EvalProven, Event, Imported, TrainProven, Unproven
from dreamproof.study.ledger.status import NOT_SAVED, NOT_SAVED_TEXT, SAVE_REMEDY
from dreamproof.study.plan.open_study import OpenStudy

COLUMNS = {
    "arm": ("arm", "config", "cfg", "variant", "method", "experiment", "exp", "name"),
    "seed": ("seed",),
    "status": ("status", "state", "result"),
    "folder": ("run_folder", "run_dir", "rundir", "logdir", "log_dir", "folder", "dir", "path", "output_dir", "run"),
    "condition": ("condition", "mode", "eval", "eval_mode", "split", "setting"),
    "seconds": ("wall_seconds", "duration_sec", "duration_seconds", "duration_s", "elapsed_sec", "elapsed", "seconds"),
}
TABLE_BYTES = 64 << 20
SUCCESS_STATUSES = ("success", "succeeded", "done", "ok", "completed", "finished", "proven")


@dataclass(frozen=True)
class Found:
    """One run made outside the study: its folder, and what a table reports about it."""

    cell: Cell
    root: Path | None
    status: str = ""
    condition: str | None = None
    wall_seconds: float | None = None


@dataclass
class ImportResult:
    """Events for the ledger, and the same as text."""

    events: list[Event] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    unproven: dict[str, str] = field(default_factory=dict)
    not_saved: dict[str, float] = field(default_factory=dict)
    """Those of the unproven that were trained to their end and not saved: their seconds."""
    missing: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    """What was found and belongs to no declared cell."""
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ImportOptions:
    """How runs are recognised: by which folder names, and read by which adapter."""

    pattern: str | None = None
    adapter: str | None = None


def import_runs(opened: OpenStudy, source: Path, options: ImportOptions | None = None) -> ImportResult:
    """Looks at run folders below a folder, or at those that a status table names; returns what to record."""
    options = options or ImportOptions()
    if not os.path.lexists(source):
        raise BadInput(f"{source}: no such folder or table", f"ls {source.parent}")
    result = ImportResult()
    if os.path.isdir(source):
        found = list(_find_in_folder(opened.study, source, options.pattern, result))
    else:
        found = list(_find_in_table(opened.study, source, result))
    if not found:
        raise _nothing_found(opened, source, options, result)
    _import_training(opened, [one for one in found if one.condition is None], options, result)
    _import_evaluations(opened, [one for one in found if one.condition is not None], result)
    _add_summary(opened, result)
    return result


def _nothing_found(opened: OpenStudy, source: Path, options: ImportOptions, result: ImportResult) -> BadInput:
    seen = f"; it holds e.g. '{result.unmatched[0]}'" if result.unmatched else "; it is empty"
    arms = ", ".join(opened.study.arms)
    way = f"with the pattern '{options.pattern}'" if options.pattern else "by name"
    return BadInput(
        f"{source}: no run matches a declared cell {way} (arms {arms}){seen}",
        f"dreamproof import {opened.file} {source} --pattern '*_{{arm}}_*_{{seed}}'",
    )


def make_pattern(study: Study, pattern: str | None) -> re.Pattern[str]:
    """A regular expression over folder names; `{arm}` is a declared arm, `{seed}` a number, `*` anything."""
    arms = "|".join(re.escape(arm) for arm in sorted(study.arms, key=len, reverse=True))
    if pattern is None:
        return re.compile(
            rf"^(?:.*[^A-Za-z0-9])?(?P<arm>{arms})(?:[^A-Za-z0-9].*)?[-_.](?:seed[-_=]?)?(?P<seed>[0-9]{{1,18}})$"
        )
    missing = [name for name in ("{arm}", "{seed}") if pattern.count(name) != 1]
    if missing:
        raise BadInput(f"--pattern '{pattern}': {missing[0]} must occur exactly once", "--pattern '*_{arm}_*_{seed}'")
    parts = re.split(r"(\{arm\}|\{seed\}|\*)", pattern)
    groups = {"{arm}": rf"(?P<arm>{arms})", "{seed}": r"(?P<seed>[0-9]{1,18})", "*": ".*"}
    return re.compile("^" + "".join(groups.get(part, re.escape(part)) for part in parts) + "$")


def _find_in_folder(study: Study, source: Path, pattern: str | None, result: ImportResult) -> Iterator[Found]:
    expression = make_pattern(study, pattern)
    folders = [Path(entry.path) for entry in _listed(source) if os.path.isdir(entry.path)]
    if not any(expression.match(path.name) for path in folders) and expression.match(source.name):
        folders = [source]
    for path in folders:
        match = expression.match(path.name)
        cell = Cell(match["arm"], int(match["seed"])) if match else None
        if cell is None or cell.seed not in study.seeds:
            result.unmatched.append(printable(path.name))
        else:
            yield Found(cell, path, wall_seconds=_folder_seconds(path))


def _listed(source: Path) -> list[os.DirEntry[str]]:
    found = list_folder(source)
    if isinstance(found, Unreadable):
        raise BadInput(f"{source}: {found.reason}", f"ls -ld {source}")
    return found


def _folder_seconds(root: Path) -> float | None:
    """Time between the oldest and the newest file of a run folder; None if copying left no time between them."""
    times = file_times(root)
    seconds = max(times) - min(times) if times else 0.0
    return round(seconds, 3) if seconds >= 1.0 else None


def _find_in_table(study: Study, source: Path, result: ImportResult) -> Iterator[Found]:
    rows = _read_table(source)
    for line, row in enumerate(rows, start=2):
        arm = _declared(row["arm"], study.arms)
        seed = row["seed"].strip()
        if arm is None or not SEED.fullmatch(seed) or int(seed) not in study.seeds:
            result.unmatched.append(f"line {line}: {row['arm'][:80]} seed {seed[:80]}")
            continue
        condition = _declared(row["condition"], [one.name for one in study.conditions]) if "condition" in row else None
        if "condition" in row and condition is None:
            result.unmatched.append(f"line {line}: condition {row['condition'][:80]}")
            continue
        root = _table_folder(source, row.get("folder", ""))
        yield Found(Cell(arm, int(seed)), root, row.get("status", ""), condition, _number(row.get("seconds")))


def _read_table(source: Path) -> list[dict[str, str]]:
    """Rows under our own column names; tabs or commas separate."""
    content = read_file(source, TABLE_BYTES)
    if isinstance(content, Unreadable):
        raise BadInput(f"{source}: {content.reason}", f"ls -ld {source}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{source}: is not UTF-8 text ({error.reason} at byte {error.start})", f"file {source}"
        ) from None
    first = text.split("\n", 1)[0]
    delimiter = "\t" if "\t" in first else ","
    try:
        rows = list(csv.DictReader(text.splitlines(), delimiter=delimiter))
    except csv.Error as error:
        raise BadInput(f"{source}: is not a table: {error}", f"head {source}") from None
    header = [name.strip() for name in first.split(delimiter)]
    names = _column_names(header)
    for needed in ("arm", "seed"):
        if needed not in names:
            raise BadInput(
                f"{source}:1: no column for the {needed} (columns: {', '.join(header)[:200]})",
                f"name one of its columns {' or '.join(COLUMNS[needed][:2])}",
            )
    return [{ours: (row.get(theirs) or "") for ours, theirs in names.items()} for row in rows]


def _column_names(header: list[str]) -> dict[str, str]:
    """Our name of a column: theirs."""
    lower = {name.lower(): name for name in header}
    return {
        ours: lower[known]
        for ours, options in COLUMNS.items()
        for known in (next((option for option in options if option in lower), ""),)
        if known
    }


def _declared(word: str, names: Iterable[str]) -> str | None:
    """The declared name in a table's field, with or without a prefix such as `v2_`."""
    options = list(names)
    if word.strip() in options:
        return word.strip()
    ends = [name for name in options if word.strip().endswith((f"_{name}", f"-{name}"))]
    return max(ends, key=len, default=None)


def _table_folder(source: Path, text: str) -> Path | None:
    if not text.strip():
        return None
    in_folder = source.parent / text.strip()
    # Tables of a study lie in its manifests/ and name folders as the study folder sees them.
    above = source.parent.parent / text.strip()
    return above if os.path.isdir(above) and not os.path.isdir(in_folder) else in_folder


def _number(text: str | None) -> float | None:
    try:
        seconds = float(text) if text else math.nan
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < math.inf else None


def _choose_adapter(opened: OpenStudy, root: Path, name: str | None) -> Adapter:
    if name is not None:
        return find_adapter(name, study_format(opened.study))
    declared = study_adapter(opened.study)
    if declared.name in (DEFAULT, AutoAdapter.name):
        return guess_adapter(RunFolder(root), study_format(opened.study))
    return declared


@dataclass(frozen=True)
class _Candidate:
    found: Found
    adapter: str
    agent_steps: int
    proof: TrainProof | str


def _assess(opened: OpenStudy, found: Found, options: ImportOptions) -> _Candidate:
    if found.root is None:
        return _Candidate(found, "", 0, f"a table reports '{found.status[:80]}' and names no run folder")
    if not os.path.isdir(found.root):
        return _Candidate(
            found, "", 0, f"its run folder {printable(str(found.root))[:300]} does not exist" + _status_text(found)
        )
    if str(found.root) != printable(str(found.root)):
        return _Candidate(found, "", 0, f"the name of its run folder is not UTF-8: {printable(str(found.root))}")
    adapter = _choose_adapter(opened, found.root, options.adapter)
    run = RunFolder(found.root)
    if found.status and found.status.strip().lower() not in SUCCESS_STATUSES:
        return _Candidate(
            found, adapter.name, adapter.read(run).agent_steps, f"its table reports '{found.status[:80]}'"
        )
    proof = adapter.prove_training(run, opened.study.needed_agent_steps, None, opened.study.task)
    reached = proof.agent_steps if isinstance(proof, TrainProof) else adapter.read(run).agent_steps
    return _Candidate(found, adapter.name, reached, proof)


def _status_text(found: Found) -> str:
    return f"; its table reports '{found.status[:80]}'" if found.status else ""


def _import_training(opened: OpenStudy, found: list[Found], options: ImportOptions, result: ImportResult) -> None:
    by_cell: dict[Cell, list[Found]] = {}
    for one in found:
        by_cell.setdefault(one.cell, []).append(one)
    for cell, candidates in sorted(by_cell.items()):
        if opened.state.trained(opened.state.known_cell(str(cell))):
            result.lines.append(f"{cell}: already proven, unchanged")
            continue
        best = max((_assess(opened, one, options) for one in candidates), key=_rank)
        _record_training(opened, cell, best, result)
        if len(candidates) > 1:
            result.lines.append(f"  best of {len(candidates)} runs of {cell}")


def _rank(candidate: _Candidate) -> tuple[bool, int, str]:
    """Proven before unproven, then the most steps, then the latest by name."""
    name = candidate.found.root.name if candidate.found.root is not None else ""
    return isinstance(candidate.proof, TrainProof), candidate.agent_steps, name


def _record_training(opened: OpenStudy, cell: Cell, candidate: _Candidate, result: ImportResult) -> None:
    text, found, proof = str(cell), candidate.found, candidate.proof
    source = _source(opened, found.root)
    known = opened.state.known_cell(text)
    if found.root is not None and os.path.isdir(found.root) and known.source != source:
        steps = candidate.agent_steps
        result.events.append(Imported(text, source, candidate.adapter or None, steps, found.wall_seconds))
    if isinstance(proof, str):
        _record_unproven(opened, cell, candidate, proof, result)
        return
    result.proven.append(text)
    result.lines.append(f"{cell}: proven, {proof.agent_steps:,} agent steps, {proof.checkpoint} in {source}")
    result.events.append(
        TrainProven(text, proof.agent_steps, proof.gradient_steps, proof.parameter_hash, proof.checkpoint)
    )
    result.events += _evaluations_in_run(opened, text, candidate, proof)


def _record_unproven(opened: OpenStudy, cell: Cell, candidate: _Candidate, reason: str, result: ImportResult) -> None:
    """What is not proven, and why; a run that was trained and not saved is stopped: it is not trained again unasked."""
    text, source, known = str(cell), _source(opened, candidate.found.root), opened.state.known_cell(str(cell))
    not_saved = isinstance(reason, NotSaved)
    result.unproven[text] = str(reason)
    result.lines.append(f"{cell}: {NOT_SAVED_TEXT if not_saved else 'unproven'}: {reason}")
    if known.unproven != reason or known.source != source:
        result.events.append(Unproven(text, source, str(reason)))
    if not_saved:
        result.not_saved[text] = candidate.found.wall_seconds or 0.0
    if not_saved and known.stopped_cause != NOT_SAVED:
        result.events.append(CellStopped(text, f"{NOT_SAVED_TEXT}: {reason}", NOT_SAVED))


def _evaluations_in_run(opened: OpenStudy, text: str, candidate: _Candidate, proof: TrainProof) -> list[Event]:
    """Evaluations that lie in a proven run folder and were made from its final checkpoint."""
    assert candidate.found.root is not None
    adapter, run = find_adapter(candidate.adapter, study_format(opened.study)), RunFolder(candidate.found.root)
    episodes = opened.study.evaluation_episodes
    found = {
        one.name: adapter.prove_evaluation(run, one.name, episodes, proof.parameter_hash)
        for one in opened.study.conditions
    }
    return [
        EvalProven(text, name, made.episodes, made.parameter_hash)
        for name, made in found.items()
        if not isinstance(made, str)
    ]


def _source(opened: OpenStudy, root: Path | None) -> str:
    if root is None:
        return "a table"
    # A folder that is not there has nothing to resolve, and its name may be anything.
    return printable(opened.folder.relative(real_path(root) if os.path.isdir(root) else root))[:300]


def _import_evaluations(opened: OpenStudy, found: list[Found], result: ImportResult) -> None:
    """Evaluations that name the checkpoint they were made from are proven; others are only reported."""
    for one in found:
        condition = one.condition or ""
        known = opened.state.known_eval(str(one.cell), condition)
        if opened.state.evaluated(known):
            continue
        event = _evaluation_event(opened, one, condition)
        if isinstance(event, EvalProven):
            result.proven.append(f"{one.cell} {condition}")
        else:
            result.unproven[f"{one.cell} {condition}"] = event.reason
            result.lines.append(f"{one.cell} {condition}: unproven: {event.reason}")
            if known.unproven == event.reason:
                continue
        result.events.append(event)


def _evaluation_event(opened: OpenStudy, found: Found, condition: str) -> EvalProven | Unproven:
    text = str(found.cell)
    known = opened.state.known_cell(text)
    source = _source(opened, found.root)
    if known.proof is None:
        return Unproven(text, source, "its training is not proven" + _status_text(found), condition)
    run = RunFolder(found.root) if found.root is not None and os.path.isdir(found.root) else opened.run(found.cell)
    proof = opened.adapter(found.cell).prove_evaluation(
        run, condition, opened.study.evaluation_episodes, known.proof.parameter_hash
    )
    if isinstance(proof, str):
        return Unproven(text, source, proof + _status_text(found), condition)
    return EvalProven(text, condition, proof.episodes, proof.parameter_hash)


def _add_summary(opened: OpenStudy, result: ImportResult) -> None:
    """Names what is declared and was not found, which is what a list of finished runs never shows."""
    taken = {*result.proven, *result.unproven}
    result.missing = [
        text
        for cell, known in opened.state.cells.items()
        if (text := str(cell)) not in taken and not opened.state.trained(known)
    ]
    declared = len(opened.state.cells)
    before = sum(opened.state.trained(known) for known in opened.state.cells.values())
    trained = before + sum(text in {str(cell) for cell in opened.state.cells} for text in result.proven)
    result.lines += [f"{text}: missing" for text in result.missing]
    result.lines += [f"unmatched, ignored: {name}{_hint(opened, name)}" for name in result.unmatched[:20]]
    unproven = sum(" " not in text for text in result.unproven) - len(result.not_saved)
    lost = [f"{len(result.not_saved)} trained and not saved"] if result.not_saved else []
    parts = [f"{trained} of {declared} cells proven", *lost, f"{unproven} unproven", f"{len(result.missing)} missing"]
    result.lines.append(", ".join(parts))
    result.lines += _not_saved_lines(opened, result)


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
