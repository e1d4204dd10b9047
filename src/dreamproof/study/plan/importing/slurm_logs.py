"""Finds runs in a flat folder of logs, `NAME_JOB.out` and `NAME_JOB.err` as Slurm writes them, and reads them."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_tail
from dreamproof.base.safe_text import printable
from dreamproof.base.text import count_text, quoted
from dreamproof.runs.layout import SEED, Cell
from dreamproof.settings.study import Study
from dreamproof.study.adapters import study_adapter, study_format
from dreamproof.study.adapters.folders import entries
from dreamproof.study.adapters.printed import BracketLinesAdapter, Line, LinePatternAdapter, PrintedAdapter
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, Cause, diagnose
from dreamproof.study.plan.importing.found import Found, ImportOptions, ImportResult
from dreamproof.study.plan.importing.names import NAMED_SEED, arm_expression, condition_expression, make_pattern
from dreamproof.study.plan.importing.tables import declared_name, read_table
from dreamproof.study.plan.open_study import OpenStudy

OUTPUT, ERRORS = (".out", ".log"), ".err"
STAMP = re.compile(r"[-_. ]?[0-9]{8}[-_T][0-9]{6}$")
JOB = re.compile(r"(?:^|[-_. ])(?P<job>[0-9]{4,12}(?:_[0-9]{1,6})?)$")
EVALUATION = re.compile(r"(?:^|[^a-z])(?:eval(?:uation)?|test)(?=[^a-z]|$)", re.IGNORECASE)
NO_CONDITION = "the log of an evaluation that names no declared condition: use --pattern with {condition}"
SILENT = (Cause.VANISHED.value, Cause.UNKNOWN.value, Cause.COMPLETED.value)
DECLARE = "declare 'line_pattern' under trainer (docs/contract.md)"
MIN_PROGRESS_LINES = 3
DIAGNOSED_BYTES = 1 << 16
WHOLE_BYTES = 64 << 20


def find_in_logs(study: Study, source: Path, options: ImportOptions, result: ImportResult) -> Iterator[Found]:
    """Logs of a folder whose names name a declared cell; a table may give the cells of jobs."""
    jobs = _read_jobs(study, options.jobs)
    for stem, files in sorted(_logs(source).items()):
        job, cell, condition = _identify(study, stem, options.pattern, jobs)
        if cell is None or condition == "":
            reason = _why_unmatched(study, stem) if cell is None else NO_CONDITION
            result.unmatched.append(printable(f"{stem}: {reason}"))
            continue
        output = next((files[ending] for ending in OUTPUT if ending in files), files.get(ERRORS))
        yield Found(cell, None, condition=condition, output=output, errors=files.get(ERRORS), job=job)


def _logs(source: Path) -> dict[str, dict[str, Path]]:
    """By name without its ending: the files of one run; of all in a folder, or of the one that a log belongs to."""
    found: dict[str, dict[str, Path]] = {}
    is_folder = os.path.isdir(source)
    for entry in entries(source if is_folder else source.parent):
        path = Path(entry.path)
        if is_log(path):
            stem, kind = _stem_and_kind(path)
            found.setdefault(stem, {})[kind] = path
    return found if is_folder else {stem: files for stem, files in found.items() if source in files.values()}


def is_log(path: Path) -> bool:
    """Whether a file has the ending of a log."""
    return path.suffix in (*OUTPUT, ERRORS) and os.path.isfile(path)


def _stem_and_kind(path: Path) -> tuple[str, str]:
    """`name.err` and `name.err.log` hold what a run printed as errors."""
    if path.suffix in OUTPUT and path.stem.endswith(ERRORS):
        return path.stem.removesuffix(ERRORS), ERRORS
    return path.stem, path.suffix


def _read_jobs(study: Study, table: Path | None) -> dict[str, dict[str, str]]:
    """By job: what a table says of it."""
    rows = read_table(table, ("job",)) if table is not None else []
    for row in rows:
        if row.get("arm") and declared_name(row["arm"], study.arms) is None:
            raise BadInput(
                f"{table}: job {row['job'][:40]}: '{row['arm'][:80]}' is not one of the arms {', '.join(study.arms)}",
                f"head {quoted(table)}",
            )
    return {row["job"].strip(): row for row in rows}


def _identify(
    study: Study, stem: str, pattern: str | None, jobs: dict[str, dict[str, str]]
) -> tuple[str | None, Cell | None, str | None]:
    """Job, cell and condition of a log, from its name and the table of jobs; no job stands for a seed."""
    if pattern is not None:
        match = make_pattern(study, pattern).match(stem)
        named = match.groupdict() if match is not None else {}
        job = named.get("job")
    else:
        stamped = STAMP.sub("", stem)
        found = JOB.search(stamped) if stamped == stem else None
        job = found["job"] if found is not None else None
        named = _named(study, stamped[: found.start()] if found is not None else stamped)
    given = jobs.get(job or "", {})
    arm = declared_name(given["arm"], study.arms) if given.get("arm") else named.get("arm")
    seed = given.get("seed") or named.get("seed") or (str(study.seeds[0]) if len(study.seeds) == 1 else "")
    if arm is None or not SEED.fullmatch(seed) or int(seed) not in study.seeds:
        return job, None, None
    return job, Cell(arm, int(seed)), named.get("condition")


def _named(study: Study, text: str) -> dict[str, str | None]:
    """Arm and seed in a name, and the condition if it is that of an evaluation; both are looked for outside the arm."""
    arm = re.search(rf"(?:^|[^A-Za-z0-9]){arm_expression(study)}(?=[^A-Za-z0-9]|$)", text)
    if arm is None:
        return {}
    rest = f"{text[: arm.start('arm')]}-{text[arm.end('arm') :]}"
    seed = NAMED_SEED.search(rest)
    return {"arm": arm["arm"], "seed": seed["seed"] if seed is not None else None, "condition": _condition(study, rest)}


def _condition(study: Study, text: str) -> str | None:
    """The declared condition of an evaluation's log, "" if its name names none; None if it is no evaluation's."""
    if not EVALUATION.search(text):
        return None
    if len(study.conditions) == 1:
        return study.conditions[0].name
    found = re.search(rf"(?:^|[^A-Za-z0-9]){condition_expression(study)}(?=[^A-Za-z0-9]|$)", text, re.IGNORECASE)
    names = {one.name.lower(): one.name for one in study.conditions}
    return names[found["condition"].lower()] if found is not None and names else ""


def _why_unmatched(study: Study, stem: str) -> str:
    if "arm" not in _named(study, stem):
        return "names no declared arm"
    return "names no declared seed: use --pattern with {seed}, or --jobs TABLE with the columns job and seed"


@dataclass(frozen=True)
class LogReading:
    """What the log of a run shows: how far it came, of how much, its values, and how it ended."""

    agent_steps: int = 0
    of_agent_steps: int | None = None
    final: dict[str, float] | None = None
    peak: dict[str, float] | None = None
    cause: str | None = None
    evidence: tuple[str, ...] = ()
    unread_lines: int = 0
    """Lines with numbers, where none could be read as progress."""

    @property
    def key_evidence(self) -> str:
        """The line that shows the cause best."""
        return self.evidence[0] if self.evidence else ""

    @property
    def text(self) -> str:
        """Steps and values for people."""
        if self.unread_lines:
            return f"no progress could be read in {count_text(self.unread_lines, 'line')} with numbers; {DECLARE}"
        of_all = f" of {self.of_agent_steps:,}" if self.of_agent_steps is not None else ""
        values = [
            f"{name} final {value:,.2f}, peak {(self.peak or {}).get(name, value):,.2f}"
            for name, value in (self.final or {}).items()
        ]
        return "; ".join([f"{self.agent_steps:,}{of_all} agent steps", *values])


def read_log_files(opened: OpenStudy, found: Found) -> LogReading:
    """Reads the output of a run, and its error output for how it ended."""
    adapter = _printed_adapter(opened.study)
    lines = adapter.lines(read_tail(found.output, WHOLE_BYTES)) if found.output is not None else []
    counts = adapter.format.agent_steps
    total = lines[-1].total if lines else None
    whole = bool(lines) and total is not None and lines[-1].done >= total
    cause, evidence = how_it_ended(found, whole)
    final, peak = _values(opened.study, lines)
    unread = _unread_lines(found) if not lines and cause in SILENT else 0
    return LogReading(
        counts(max((line.done for line in lines), default=0)),
        counts(total) if total is not None else None,
        final,
        peak,
        cause if not unread else None,
        evidence if not unread else (),
        unread,
    )


def _unread_lines(found: Found) -> int:
    """Lines with a number in a log of which none could be read as progress; 0 if there are too few to be progress."""
    text = read_tail(found.output, DIAGNOSED_BYTES) if found.output is not None else ""
    count = sum(bool(re.search("[0-9]", line)) for line in re.split(r"[\n\r]+", text))
    return count if count >= MIN_PROGRESS_LINES else 0


def _printed_adapter(study: Study) -> PrintedAdapter:
    declared = study_adapter(study)
    if isinstance(declared, PrintedAdapter):
        return declared
    trainer_format = study_format(study)
    has_pattern = trainer_format is not None and trainer_format.line_pattern is not None
    return (LinePatternAdapter if has_pattern else BracketLinesAdapter)(trainer_format)


def _values(study: Study, lines: list[Line]) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """Last and best value of the metric; of the first value that the lines name if they do not name the metric."""
    names = dict.fromkeys(name for line in lines for name in line.values)
    name = study.metric.name if study.metric.name in names else next(iter(names), None)
    if name is None:
        return None, None
    series = [line.values[name] for line in lines if name in line.values]
    best = max if study.metric.direction == "higher" else min
    return {name: series[-1]}, {name: best([value for value in series if math.isfinite(value)] or series)}


def how_it_ended(found: Found, whole: bool) -> tuple[str | None, tuple[str, ...]]:
    """Cause and evidence; none for a run that reached its own end without a fatal line."""
    files = dict.fromkeys(path for path in (found.output, found.errors) if path is not None)
    tail = "\n".join(read_tail(path, DIAGNOSED_BYTES).rstrip() for path in files)
    diagnosis = diagnose(AttemptEvidence(output_tail=tail, proven=whole and found.errors is None))
    silent = diagnosis.cause.value in SILENT
    if whole and silent:
        return None, ()
    if silent:
        return diagnosis.cause.value, ("its log ends there without a reason", *diagnosis.quotes[1:])
    return diagnosis.cause.value, tuple(dict.fromkeys([diagnosis.key_quote, *diagnosis.quotes[1:]]))
