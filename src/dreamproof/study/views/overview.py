"""The status of a study as data: counts, what runs and how fast, what is missing and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from dreamproof.base.text import bytes_text, count_text, money_text
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.chain import lost_end
from dreamproof.study.ledger.clock import Moment, jump_text
from dreamproof.study.ledger.lease import is_copy, living_holder
from dreamproof.study.ledger.status import NOT_SAVED, STATUSES, as_seen, eval_status, not_saved_cells, train_status
from dreamproof.study.money.budget import money_reserve
from dreamproof.study.money.spending import money_per_ms, without_evaluations
from dreamproof.study.plan.gap import find_gap
from dreamproof.study.plan.on_disk import cell_fault
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.preflight.measured import read_measured
from dreamproof.study.process.machine import MIN_FREE_BYTES, disk_free_bytes
from dreamproof.study.views.running import OVER, RunningCell, running_cells, study_seconds_left
from dreamproof.study.views.verify import identity_notes

ENDED_ALONE = "attempts ended without a supervisor; `run` takes in what they left"


@dataclass(frozen=True)
class Overview:
    """Everything that `status` shows."""

    name: str
    question: str
    folder: str
    supervisor: dict[str, Any] | None
    train: dict[str, int]
    evaluate: dict[str, int]
    running: list[RunningCell] = field(default_factory=list)
    missing_train: dict[str, list[int]] = field(default_factory=dict)
    missing_evaluate: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    unproven: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    """By cell: the file that cannot be read, and why."""
    not_saved: dict[str, str] = field(default_factory=dict)
    """By cell: why what it learned is on no disk."""
    not_saved_seconds: float = 0.0
    not_saved_money: float = 0.0
    currency: str | None = None
    notices: list[str] = field(default_factory=list)
    complete: bool = False
    seconds_left: float | None = None
    """Until the whole study is done; None if no speed is known."""
    without_evaluations: bool = False
    """No evaluation was measured yet: the time left is that of training alone."""

    def as_json(self) -> dict[str, Any]:
        """The overview as a JSON value."""
        return asdict(self)


def make_overview(opened: OpenStudy, now: Moment, is_released: bool = False) -> Overview:
    """The status of the study at this time.

    is_released: this process was the supervisor and is no more; while attempts run on, the lease still names it.
    """
    state, study = opened.state, opened.study
    holder = None if is_released else living_holder(opened.folder.lease)
    running = running_cells(opened, now, holder is not None)
    seen = seen_cells(running)
    train = Counter(
        as_seen(train_status(state, cell), seen.get(("train", str(cell.cell)))) for cell in state.cells.values()
    )
    evaluate = Counter(
        as_seen(eval_status(state, known), seen.get(("evaluate", str(known.cell))))
        for known in state.eval_cells.values()
    )
    missing = [cell.cell for cell in state.cells.values() if not state.trained(cell) and cell.foreign is None]
    not_saved = not_saved_cells(state)
    missing_evaluate: dict[str, dict[str, list[int]]] = {}
    for known in state.eval_cells.values():
        if not state.evaluated(known):
            seeds = missing_evaluate.setdefault(known.condition, {}).setdefault(known.cell.arm, [])
            seeds.append(known.cell.seed)
    return Overview(
        study.name,
        study.question,
        str(opened.folder.root),
        holder.as_json() if holder is not None else None,
        {"declared": len(state.cells), **{status: train[status] for status in STATUSES}},
        {"declared": len(state.eval_cells), **{status: evaluate[status] for status in STATUSES}},
        running,
        seeds_by_arm(cell for cell in missing if str(cell) not in not_saved.reasons),
        missing_evaluate,
        _stopped(opened),
        {text: why for text, why in _unproven(opened).items() if text not in not_saved.reasons},
        _quarantined(opened, running),
        not_saved.reasons,
        not_saved.wall_seconds,
        not_saved.wall_seconds * 1000 * money_per_ms(study.money),
        study.money.currency,
        notices=_notices(opened, running, holder is not None),
        complete=all(map(state.trained, state.cells.values())) and not missing_evaluate,
        seconds_left=study_seconds_left(opened, running, read_measured(opened.folder.preflight).rates),
        without_evaluations=without_evaluations(state, find_gap(state)),
    )


def seen_cells(running: Iterable[RunningCell]) -> dict[tuple[str, str], str]:
    """Liveness by (work, cell) of what the ledger has as running."""
    return {(cell.work, cell.cell): cell.liveness for cell in running}


def seeds_by_arm(cells: Iterable[Cell]) -> dict[str, list[int]]:
    """Cells as arm: seeds."""
    found: dict[str, list[int]] = {}
    for cell in cells:
        found.setdefault(cell.arm, []).append(cell.seed)
    return found


def seeds_text(seeds: list[int]) -> str:
    """[0, 1, 2, 5] as 0-2,5."""
    parts: list[str] = []
    ordered = sorted(seeds)
    start = 0
    for place in range(1, len(ordered) + 1):
        if place == len(ordered) or ordered[place] != ordered[place - 1] + 1:
            first, last = ordered[start], ordered[place - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = place
    return ",".join(parts)


def _unproven(opened: OpenStudy) -> dict[str, str]:
    return {str(cell.cell): cell.unproven for cell in opened.state.cells.values() if cell.unproven and not cell.proof}


def _stopped(opened: OpenStudy) -> dict[str, str]:
    found: dict[str, str] = {}
    for cell in opened.state.cells.values():
        if cell.stopped is not None and cell.stopped_cause != NOT_SAVED:
            found[str(cell.cell)] = cell.stopped
        elif cell.eval_stopped is not None:
            found[str(cell.cell)] = f"evaluation: {cell.eval_stopped}"
    return found


def _quarantined(opened: OpenStudy, running: list[RunningCell]) -> dict[str, str]:
    """Quarantined cells of the ledger, and what the disk shows now: of running cells and of all others."""
    found: dict[str, str] = dict(opened.state.unreadable)
    for cell in opened.state.cells.values():
        if cell.quarantined is not None:
            again = "" if cell_fault(opened, cell.cell) else " (readable again; the next run continues with it)"
            found[str(cell.cell)] = f"{cell.quarantined}{again}"
    return {one.cell: one.fault for one in running if one.fault} | found


def _notices(opened: OpenStudy, running: list[RunningCell], supervised: bool) -> list[str]:
    state = opened.state
    cut = lost_end(opened.folder.ledger, state.event_count)
    notices = [f"the ledger is not whole: {cut}; `run` takes in what the run folders prove"] if cut is not None else []
    if state.understood_hash is not None and state.understood_hash != opened.study.hash():
        notices.append(
            "the study file changed since the ledger was last written; "
            "`dreamproof plan` shows what the next run does with it"
        )
    if any(cell.proof and cell.source is None for cell in state.cells.values()) and not opened.folder.runs.is_dir():
        notices.append(
            "the folder runs is not here: logs and evaluations cannot be shown; put it back, or tar -xf runs.tar.xz"
        )
    if state.open_attempts and not supervised:
        copied = opened.folder.is_export or is_copy(opened.folder.lease)
        over = all(one.liveness in OVER for one in running if not one.is_foreign)
        here = ENDED_ALONE if over else "attempts run without a supervisor; `run` adopts them"
        notices.append("this is a copy: its open attempts belong to the original study" if copied else here)
    free_bytes = disk_free_bytes(opened.folder.root)
    if free_bytes is not None and free_bytes < MIN_FREE_BYTES:
        notices.append(f"the disk is full ({bytes_text(free_bytes)} free): attempts wait until there is room")
    if state.preflight_failure is not None:
        notices.append(f"preflight failed: {state.preflight_failure}")
    if state.breaker is not None:
        notices.append(f"breaker: {state.breaker}")
    if state.budget_reached is not None:
        amounts = (state.budget_reached, money_reserve(opened.study).money)
        spent, kept = (money_text(amount, opened.study.money.currency) for amount in amounts)
        notices.append(f"budget reached: {spent} spent, {kept} kept back for saving and reports")
    notices += [
        f"{count_text(n, 'value')} of {place}: reported, not proven" for place, n in state.imported_values.items()
    ]
    notices += identity_notes(state)
    notices += [f"not written: {failure}" for failure in state.report_failures]
    notices += [f"not notified by {failure}" for failure in state.notify_failures]
    if state.shutdown is not None:
        notices.append(f"shutdown {state.shutdown}")
    if state.clock_jumps:
        last = state.clock_jumps[-1]
        notices.append(f"{jump_text(last.kind, last.seconds)}; not billed")
    return notices
