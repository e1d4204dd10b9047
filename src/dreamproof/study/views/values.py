"""What `status`, `money` and `why` know, as JSON values: `--json` prints them and the dashboard serves them."""

from dataclasses import asdict
from typing import Any

from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.clock import Moment, read_moment
from dreamproof.study.ledger.lease import living_holder
from dreamproof.study.ledger.status import as_seen, eval_status, train_status
from dreamproof.study.money.spending import count_money, money_per_ms
from dreamproof.study.plan.on_disk import cell_fault
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.preflight.measured import read_measured
from dreamproof.study.views.manifests import eval_rows, train_rows
from dreamproof.study.views.overview import Overview
from dreamproof.study.views.running import RunningCell, running_cells
from dreamproof.study.views.slurm_jobs import live_evidence

Values = dict[str, Any]


def status_values(opened: OpenStudy, overview: Overview) -> Values:
    """What `status` prints: the overview, and every declared cell and eval cell."""
    cells = {"cells": train_rows(opened.state, opened.study), "eval_cells": eval_rows(opened.state)}
    return {**overview.as_json(), **cells}


def money_values(opened: OpenStudy, now: Moment) -> Values:
    """What `money` prints: useful, wasted and idle time by cell and cause, its price, and the forecast."""
    alive = living_holder(opened.folder.lease) is not None
    spending = count_money(opened.state, now, alive, read_measured(opened.folder.preflight).rates)
    values = asdict(spending)
    values.pop("study")
    values["imported_seconds"] = spending.imported_ms / 1000
    values |= {"total_ms": spending.total_ms, "total_money": spending.total_money}
    return values | {"currency": opened.study.money.currency, "budget": opened.study.money.budget}


def cell_values(opened: OpenStudy, cell: Cell) -> Values:
    """What `why` prints: everything the ledger knows of a cell, and how it runs now."""
    state = opened.state
    known, fault = state.cells[cell], cell_fault(opened, cell)
    running = _running(opened, cell)
    used_seconds = _used_seconds(opened, cell)
    evals = [one for (other, _), one in state.eval_cells.items() if other == cell]
    names = dict.fromkeys([*known.attempts, *(name for one in evals for name in one.attempts)])
    return {
        "cell": str(cell),
        "status": as_seen(train_status(state, known), running.liveness if running is not None else None),
        "metric": opened.study.metric.name,
        "run_folder": str(opened.folder.root / known.source if known.source else opened.run(cell).root),
        "agent_steps": known.kept_agent_steps,
        "declared_agent_steps": opened.study.agent_steps,
        "reached_agent_steps": known.reached_agent_steps,
        "wall_seconds": round(used_seconds, 3),
        "money": round(used_seconds * 1000 * money_per_ms(opened.study.money), 4),
        "currency": opened.study.money.currency,
        "running": asdict(running) if running is not None else None,
        "proof": asdict(known.proof) if known.proof is not None else None,
        "stopped": known.stopped or known.eval_stopped,
        "unproven": known.unproven,
        "not_ours": f"{known.foreign['evidence']}; {known.foreign['reason']}".rstrip("; ") if known.foreign else None,
        "quarantined": state.quarantine(known),
        "unreadable": f"{fault.path}: {fault.reason}" if fault is not None else None,
        "frozen": known.frozen,
        "evaluations": {one.condition: eval_status(state, one) for one in evals},
        "outside": known.outside,
        "attempts": [
            attempt_values(opened, name) | {"steps": steps}
            for name, steps in kept_steps([state.attempts[name] for name in sorted(names)], str(cell)).items()
        ],
        "remedies": [
            {key: row[key] for key in ("t", "action", "reason")} for row in state.remedies if str(cell) in row["cells"]
        ],
    }


def kept_steps(attempts: list[AttemptState], cell: str) -> dict[str, Values | None]:
    """By attempt: the agent steps that it trained of a cell, and how far the later ones continued from them.

    None for evaluations and for attempts that left no checkpoint.
    """
    first = {one.name: one.first_agent_steps(cell) for one in attempts}
    found: dict[str, Values | None] = {}
    for number, one in enumerate(attempts):
        last = one.kept_agent_steps.get(cell) if one.work == "train" else None
        if last is None:
            found[one.name] = None
            continue
        behind = [each for each in attempts[number + 1 :] if each.work == "train" and first[each.name] < last]
        lowest = min(behind, key=lambda each: first[each.name], default=None)
        found[one.name] = {
            "first": first[one.name],
            "last": last,
            "kept": last if lowest is None else first[lowest.name],
            "not_continued_by": None if lowest is None else lowest.name,
        }
    return found


def _used_seconds(opened: OpenStudy, cell: Cell) -> float:
    """The time of all attempts of a cell, training and evaluation, as `money` counts it."""
    alive = living_holder(opened.folder.lease) is not None
    found = count_money(opened.state, read_moment(), alive).cells.get(str(cell))
    return 0.0 if found is None else found.seconds


def _running(opened: OpenStudy, cell: Cell) -> RunningCell | None:
    """The cell as it runs now; None if nothing works on it."""
    supervised = living_holder(opened.folder.lease) is not None
    found = running_cells(opened, read_moment(), supervised)
    return next((one for one in found if one.cell == str(cell)), None)


def attempt_values(opened: OpenStudy, name: str) -> Values:
    """One attempt of a cell; what the scheduler reports of an open one stands for its evidence."""
    attempt = opened.state.attempts[name]
    return {
        "attempt": name,
        "work": attempt.work,
        "cells": attempt.cells,
        "started": attempt.started,
        "wall_seconds": attempt.wall_seconds,
        "cause": attempt.cause,
        "cell_causes": attempt.cell_causes,
        "evidence": live_evidence(opened, name) if attempt.open else attempt.evidence,
        "from_agent_steps": attempt.from_agent_steps,
        "restarted_at": attempt.restarted,
        "reached_agent_steps": attempt.reached_agent_steps,
        "kept_agent_steps": attempt.kept_agent_steps,
        "liveness": attempt.liveness,
        "liveness_reason": attempt.liveness_reason,
        "stacks": attempt.stacks,
        "job": attempt.job,
        "placement": attempt.placement,
        "queue_seconds": attempt.queue_seconds,
        "memory_trend": attempt.memory_trend,
        "output": str(opened.folder.attempt(name).output),
    }
