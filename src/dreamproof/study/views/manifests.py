"""The whole declared matrix as two tables a person can read, rewritten from the state."""

import time
from typing import Any

from dreamproof.base.files import unless_full, write_text
from dreamproof.base.safe_text import one_line, spreadsheet_text
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.settings.study import Study
from dreamproof.study.ledger.cells import CellState, EvalState
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.ledger.status import eval_status, train_status
from dreamproof.study.plan.open_study import OpenStudy

MIN_GAP_SECONDS = 2.0
TIME_SHARE = 0.02

TRAIN_COLUMNS = (
    "arm",
    "seed",
    "status",
    "agent_steps",
    "gradient_steps",
    "attempts",
    "last_cause",
    "run_folder",
    "checkpoint_hash",
    "wall_seconds",
    "gpu_hours",
    "money",
    "reached_agent_steps",
    "aborted_runs",
    "aborted_seconds",
    "quarantine",
)
EVAL_COLUMNS = ("arm", "seed", "condition", "status", "episodes", "attempts", "checkpoint_hash", "file")

Fields = dict[str, Any]


def train_rows(state: StudyState, study: Study) -> list[Fields]:
    """One row per declared cell, missing ones included."""
    return [_train_row(state, study, cell) for cell in state.cells.values()]


def _train_row(state: StudyState, study: Study, cell: CellState) -> Fields:
    gpu_hours = cell.wall_seconds * study.money.gpus_per_attempt / 3600.0
    proof = cell.proof
    return {
        "arm": cell.cell.arm,
        "seed": cell.cell.seed,
        "status": train_status(state, cell),
        "agent_steps": proof.agent_steps if proof is not None else cell.kept_agent_steps,
        "gradient_steps": proof.counted_gradient_steps if proof is not None else None,
        "attempts": len(cell.attempts),
        "last_cause": cell.last_cause or cell.stopped_cause,
        "run_folder": cell.source or StudyFolder.run_name(cell.cell),
        "checkpoint_hash": proof.parameter_hash if proof is not None else None,
        "wall_seconds": round(cell.wall_seconds, 1),
        "gpu_hours": round(gpu_hours, 4),
        "money": round(gpu_hours * study.money.price_per_gpu_hour, 4),
        "quarantine": state.quarantine(cell),
        "reached_agent_steps": cell.reached_agent_steps,
        "aborted_runs": sum(bool(one.get("aborted")) for one in cell.outside),
        "aborted_seconds": round(cell.aborted_seconds, 1),
    }


def eval_rows(state: StudyState) -> list[Fields]:
    """One row per declared eval cell, missing ones included."""
    return [_eval_row(state, eval_cell) for eval_cell in state.eval_cells.values()]


def _eval_row(state: StudyState, eval_cell: EvalState) -> Fields:
    proof = eval_cell.proof
    cell = eval_cell.cell
    return {
        "arm": cell.arm,
        "seed": cell.seed,
        "condition": eval_cell.condition,
        "status": eval_status(state, eval_cell),
        "episodes": proof.episodes if proof is not None else 0,
        "attempts": len(eval_cell.attempts),
        "checkpoint_hash": proof.parameter_hash if proof is not None else None,
        "file": f"{_place(state, cell)}/evaluations/{eval_cell.condition}.json" if proof is not None else None,
    }


def _place(state: StudyState, cell: Cell) -> str:
    """The run folder of a proven cell, as the study folder sees it."""
    return state.known_cell(str(cell)).source or StudyFolder.run_name(cell)


def table_text(columns: tuple[str, ...], rows: list[Fields]) -> str:
    """Rows as tab-separated text; what is not known is a dash."""
    lines = ["\t".join(columns)]
    lines += ["\t".join("-" if row[name] is None else _field(row[name]) for name in columns) for row in rows]
    return "\n".join(lines) + "\n"


def _field(value: Any) -> str:
    """One field of a row: no tab, no line break, no formula."""
    return spreadsheet_text(one_line(value)) if isinstance(value, str) else str(value)


class ManifestWriter:
    """Rewrites the tables when something changed, but never spends more than a small share of the time on it."""

    def __init__(self, opened: OpenStudy) -> None:
        self._opened = opened
        self._next = 0.0
        self.dirty = True

    def write(self, state: StudyState, force: bool = False) -> None:
        """Writes both tables where it is due."""
        started = time.monotonic()
        if not force and (not self.dirty or started < self._next):
            return
        folder, study = self._opened.folder, self._opened.study
        with unless_full():
            write_text(folder.train_status, table_text(TRAIN_COLUMNS, train_rows(state, study)), durable=False)
            write_text(folder.eval_status, table_text(EVAL_COLUMNS, eval_rows(state)), durable=False)
            self.dirty = False
        spent = time.monotonic() - started
        self._next = started + max(MIN_GAP_SECONDS, spent / TIME_SHARE)
