"""What the pages show of one cell and of the ledger, as JSON values. An address never becomes a path."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_tail, real_path
from dreamproof.base.lines import read_rows
from dreamproof.base.safe_text import printable
from dreamproof.base.text import quoted
from dreamproof.runs.layout import Cell
from dreamproof.runs.reader import read_evaluation
from dreamproof.study.adapters.folders import size_of
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.status import eval_status
from dreamproof.study.plan.open_study import OpenStudy, declared_cell
from dreamproof.study.views.values import Values
from dreamproof.web.followed import FollowedStudy

LOG_BYTES = 65536
TRACE_POINTS = 2000
MAX_EVENTS = 500


def find_cell(opened: OpenStudy, arm: str, seed: str) -> Cell:
    """The declared cell that an address names."""
    return declared_cell(opened, f"{arm}/{seed}")


def cell_attempts(opened: OpenStudy, cell: Cell) -> list[str]:
    """Attempts that trained or evaluated a cell, oldest first."""
    state = opened.state
    evals = [known for (other, _), known in state.eval_cells.items() if other == cell]
    names = dict.fromkeys([*state.cells[cell].attempts, *(name for one in evals for name in one.attempts)])
    return sorted(names)


def _newest(opened: OpenStudy, names: list[str], kind: str) -> str | None:
    """The newest attempt that runs or left a file of this kind; the newest of all if none did."""
    for name in reversed(names):
        if opened.state.attempts[name].open or size_of(getattr(opened.folder.attempt(name), kind)):
            return name
    return names[-1] if names else None


def _chosen_attempt(opened: OpenStudy, cell: Cell, name: str | None, kind: str) -> str | None:
    known = cell_attempts(opened, cell)
    if name is None:
        return _newest(opened, known, kind)
    if name not in known:
        raise BadInput(f"{cell} has no attempt {name[:40]!r}", f"dreamproof why {quoted(opened.named)} {cell}")
    return name


def log_tail(opened: OpenStudy, cell: Cell, attempt: str | None) -> Values:
    """The end of what an attempt printed; never of a file outside the study folder."""
    name = _chosen_attempt(opened, cell, attempt, "output")
    if name is None:
        return {"attempt": None, "text": "", "bytes": 0, "fault": None}
    path = opened.folder.attempt(name).output
    if not _is_inside(opened, path):
        fault = f"{path.name}: is a link out of the study folder and is not followed"
        return {"attempt": name, "text": "", "bytes": 0, "fault": fault}
    return {"attempt": name, "text": printable(read_tail(path, LOG_BYTES)), "bytes": size_of(path), "fault": None}


def _is_inside(opened: OpenStudy, path: Path) -> bool:
    """Whether a file lies in the study folder, links followed: what was received may hold links to elsewhere."""
    return real_path(path).is_relative_to(real_path(opened.folder.root))


def memory_trace(opened: OpenStudy, cell: Cell, attempt: str | None) -> Values:
    """Resident memory of an attempt's processes over its seconds, thinned to what a chart can show."""
    name = _chosen_attempt(opened, cell, attempt, "memory")
    path = opened.folder.attempt(name).memory if name is not None else None
    rows = read_rows(path) if path is not None and _is_inside(opened, path) else []
    points = [(row.get("seconds"), row.get("bytes")) for row in rows]
    known = [(s, b) for s, b in points if isinstance(s, int | float) and isinstance(b, int | float)]
    step = max(1, -(-len(known) // TRACE_POINTS))
    thin = known[::step]
    return {"attempt": name, "seconds": [s for s, _ in thin], "bytes": [b for _, b in thin]}


def evaluations(opened: OpenStudy, cell: Cell) -> list[Values]:
    """Every condition of a cell: its status, and mean, sd and number of episodes by checkpoint and metric."""
    found = []
    for condition in opened.study.conditions:
        known = opened.state.eval_cells[cell, condition.name]
        record = read_evaluation(opened.run(cell), condition.name)
        found.append(
            {
                "condition": condition.name,
                "kind": record.kind if record is not None else condition.kind,
                "status": eval_status(opened.state, known),
                "checkpoints": {
                    name: {metric: _episodes(values) for metric, values in made.episodes.items()}
                    for name, made in (record.checkpoints if record is not None else {}).items()
                },
            }
        )
    return found


def _episodes(values: list[float]) -> Values:
    finite = np.array([value for value in values if value is not None and np.isfinite(value)])
    return {
        "episodes": len(values),
        "mean": float(finite.mean()) if len(finite) else None,
        "sd": float(finite.std(ddof=1)) if len(finite) > 1 else None,
    }


Filters = Mapping[str, str]


def ledger(study: FollowedStudy, filters: Filters, before: int | None, limit: int) -> Values:
    """Events, newest first, with every given text in the given field; events of an attempt are its cells' too."""
    limit = max(1, min(limit, MAX_EVENTS))
    rows = (row for row in study.newest_events() if before is None or row["n"] < before)
    attempts = study.opened.state.attempts
    matching = (row for row in rows if _matches(row, filters, attempts))
    found = list(itertools.islice(matching, limit))
    total = study.opened.state.event_count
    return {"events": [_shown(row) for row in found], "total": total, "more": len(found) == limit and limit > 0}


def _matches(row: Values, filters: Filters, attempts: Mapping[str, AttemptState]) -> bool:
    attempt = attempts.get(row.get("attempt") or "")
    cells = [row.get("cell"), *(row.get("cells") or []), *(attempt.cells if attempt is not None else [])]
    tests: dict[str, Callable[[str], bool]] = {
        "event": lambda text: text.lower() in row["event"],
        "cell": lambda text: any(cell and (cell == text or text in cell.split("/")[0]) for cell in cells),
        "attempt": lambda text: row.get("attempt") == text,
        "text": lambda text: text.lower() in str(row).lower(),
    }
    return all(tests[name](text) for name, text in filters.items() if text)


def _shown(row: Values) -> Values:
    return {key: value for key, value in row.items() if key != "declaration"}
