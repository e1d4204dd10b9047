"""What is done about a death: resume, halve, or stop the cell with a reason. Pure: returns events, touches nothing."""

from dreamproof.base.text import bytes_text
from dreamproof.settings.backend import memory_bytes
from dreamproof.settings.running import Retries
from dreamproof.settings.study import Study
from dreamproof.study.diagnosis.diagnose import NOT_FINITE_TEXT
from dreamproof.study.ledger.cells import AttemptState, CellState
from dreamproof.study.ledger.events import BreakerTripped, CellStopped, Event, Remedy
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.ledger.status import NOT_SAVED, NOT_SAVED_TEXT, PROOF_MISSING
from dreamproof.study.plan.commands import can_micro_batch

MAX_MICRO_BATCHES = 64
NO_DEATH = ("completed", "stopped_by_user")


def decide(state: StudyState, attempt: AttemptState) -> list[Event]:
    """What follows from an attempt that has just ended."""
    assert state.study is not None
    study = state.study
    open_cells = [cell for cell in map(state.known_cell, attempt.cells) if _unfinished(state, attempt, cell)]
    by_cause: dict[str, list[CellState]] = {}
    for cell in open_cells:
        by_cause.setdefault(attempt.cause_for(str(cell.cell)), []).append(cell)
    events: list[Event] = []
    for cause, cells in by_cause.items():
        if attempt.cancelled_outside and cause == "stopped_by_user":
            events += [_leave_cancelled(attempt, cell) for cell in cells]
        if cause in NO_DEATH:
            continue
        if cause == "host_oom" and (more := _more_memory(study, attempt, cells)) is not None:
            events.append(more)
            continue
        halved = _halve(state, study, attempt) if cause == "device_oom" and attempt.work == "train" else None
        events += [halved] if halved is not None else _resume_or_stop(study, attempt, cause, cells)
    return events + _breaker(state, study)


def _unfinished(state: StudyState, attempt: AttemptState, cell: CellState) -> bool:
    if attempt.work == "train":
        return not state.trained(cell) and cell.stopped is None
    evals = [state.known_eval(str(cell.cell), condition) for condition in attempt.conditions]
    return cell.eval_stopped is None and not all(map(state.evaluated, evals))


def wait_seconds(retries: Retries, fruitless: int) -> float:
    """Back-off: doubles with every death that brought nothing."""
    return min(retries.longest_wait_seconds, retries.first_wait_seconds * 2.0 ** max(0, fruitless - 1))


def _resume_or_stop(study: Study, attempt: AttemptState, cause: str, cells: list[CellState]) -> list[Event]:
    events: list[Event] = []
    resumed: list[CellState] = []
    for cell in cells:
        reason = stop_reason(study.retries, cell, cause, attempt)
        if reason is None:
            resumed.append(cell)
        else:
            events.append(CellStopped(str(cell.cell), reason, cause, attempt.work))
    if resumed:
        fruitless = max(_fruitless(cell, attempt) for cell in resumed)
        events.append(
            Remedy(
                [str(cell.cell) for cell in resumed],
                "resume_frozen" if cause == "nan" and attempt.work == "train" else "resume",
                f"{attempt.name} ended: {cause}",
                attempt.name,
                wait_seconds(study.retries, fruitless),
            )
        )
    return events


def _fruitless(cell: CellState, attempt: AttemptState) -> int:
    return cell.fruitless if attempt.work == "train" else cell.eval_fruitless


def stop_reason(retries: Retries, cell: CellState, cause: str, attempt: AttemptState) -> str | None:
    """Why the cell is not tried again, or None if it is."""
    if cause == NOT_SAVED:  # the same command would spend the same time for the same nothing
        return next((quote for quote in attempt.evidence if NOT_SAVED_TEXT in quote), NOT_SAVED_TEXT)
    wrong_end = next((quote for quote in attempt.evidence if quote.startswith(NOT_FINITE_TEXT)), None)
    if cause == "nan" and wrong_end is not None:  # its checkpoint holds the same values, so there is nothing to resume
        return wrong_end
    deaths = cell.deaths if attempt.work == "train" else cell.eval_deaths
    transient = attempt.transient and str(cell.cell) not in attempt.cell_causes
    if not transient and deaths.get(cause, 0) >= retries.same_deterministic_at_most:
        missing = next((quote for quote in attempt.evidence if quote.startswith(PROOF_MISSING)), None)
        why = f"; its proof is missing: {missing.removeprefix(PROOF_MISSING)}" if missing and cause == "unknown" else ""
        return f"failed {deaths[cause]} times with the same cause: {cause}{why}"
    fruitless = _fruitless(cell, attempt)
    if cause == "stalled" and deaths.get(cause, 0) >= retries.stalled_at_most and fruitless >= retries.stalled_at_most:
        return f"stalled {deaths[cause]} times without a newer checkpoint, each time with longer limits"
    if transient and fruitless > retries.transient_at_most:
        return f"{fruitless} failures in a row without a newer checkpoint, last cause: {cause}"
    return None


def _halve(state: StudyState, study: Study, attempt: AttemptState) -> Remedy | None:
    """Out of device memory: a smaller pack, or more micro-batches at the same effective batch."""
    arms = {state.known_cell(text).cell.arm for text in attempt.cells}
    cells = [str(cell.cell) for cell in state.cells.values() if cell.cell.arm in arms and not state.trained(cell)]
    size = len(attempt.cells)
    if size > 1:
        reason = f"{attempt.name} ran out of device memory with {size} cells in its pack"
        return Remedy(cells, "halve_pack", reason, attempt.name, 0.0, pack_cells=size // 2)
    count = attempt.micro_batches * 2
    if not can_micro_batch(study) or count > MAX_MICRO_BATCHES:
        return None
    reason = (
        f"{attempt.name} ran out of device memory; batches are split into {count} micro-batches, "
        "the effective batch size is unchanged"
    )
    return Remedy(cells, "halve_micro_batch", reason, attempt.name, 0.0, micro_batches=count)


def _leave_cancelled(attempt: AttemptState, cell: CellState) -> CellStopped:
    """A job that a user cancelled is not resubmitted automatically."""
    reason = f"job {attempt.job} was cancelled with scancel; resume it with run --retry-stopped"
    return CellStopped(str(cell.cell), reason, "stopped_by_user", attempt.work)


def _more_memory(study: Study, attempt: AttemptState, cells: list[CellState]) -> Remedy | None:
    """Out of host memory on a cluster: ask for more, within the declared cap; a leak is not cured by it."""
    slurm = study.backend.slurm
    if slurm is None or slurm.memory_cap is None or attempt.memory_trend == "grows":
        return None
    cap = memory_bytes(slurm.memory_cap)
    asked = max([memory_bytes(slurm.memory), *(cell.memory_bytes or 0 for cell in cells)])
    peak = int((attempt.exit or {}).get("peak_bytes") or 0)
    wanted = min(cap, max(asked * 3 // 2, peak * 13 // 10))
    if wanted <= asked:
        return None
    trend = "level" if attempt.memory_trend == "level" else "too short to show growth"
    reason = (
        f"{attempt.name} ran out of {bytes_text(asked)} of memory (trace {trend}); resubmitted with "
        f"{bytes_text(wanted)} (declared maximum {bytes_text(cap)})"
    )
    names = [str(cell.cell) for cell in cells]
    return Remedy(names, "more_memory", reason, attempt.name, 0.0, memory_bytes=wanted)


def _breaker(state: StudyState, study: Study) -> list[Event]:
    limit = study.retries.breaker_failures
    if state.breaker is not None or state.quick_failures < limit:
        return []
    quick = study.retries.breaker_quick_seconds
    return [BreakerTripped(f"{state.quick_failures} attempts in a row failed within {quick:g} s of their start")]


def overdue_stops(state: StudyState) -> list[Event]:
    """Stops that were due when an earlier supervisor died before it could write them."""
    assert state.study is not None
    events: list[Event] = []
    for cell in state.cells.values():
        settled = cell.stopped is not None or state.trained(cell) or state.quarantine(cell) is not None
        if not cell.attempts or cell.running is not None or settled:
            continue
        attempt = state.attempts[cell.attempts[-1]]
        cause = attempt.cause_for(str(cell.cell))
        if cause in NO_DEATH or attempt.open or cell.deaths.get(cause, 0) == 0:
            continue
        reason = stop_reason(state.study.retries, cell, cause, attempt)
        if reason is not None:
            events.append(CellStopped(str(cell.cell), reason, cause))
    return events
