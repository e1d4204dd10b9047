"""What the pages show of a study, as JSON values. The values of `status`, `money` and `why` are those of the verbs."""

from typing import Any

from dreamproof.report.palette import COLOURS, DARK_COLOURS, cause_colour
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.cells import NO_END, AttemptState, SupervisorSpan
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.ledger.lease import living_holder
from dreamproof.study.ledger.status import STATUSES, as_seen, eval_status, train_status
from dreamproof.study.money.spending import open_seconds, spent_and_forecast
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.preflight.measured import read_measured
from dreamproof.study.views.overview import Overview, make_overview, seen_cells
from dreamproof.study.views.running import OVER
from dreamproof.study.views.values import Values
from dreamproof.web.followed import ALIVE, COPIED, GONE, FollowedStudy

MAX_ATTEMPTS = 2000
LINES: tuple[list[int], ...] = ([], [8, 4], [8, 3, 2, 3], [2, 3], [5, 2, 2, 2, 2, 2], [2, 2], [12, 4], [4, 2, 2, 2])
CODES = {status: "prodwtnsqu."[place] for place, status in enumerate(STATUSES)}
"""One letter for each status, so that ten thousand cells are ten thousand letters."""


def arm_looks(arms: list[str]) -> list[Values]:
    """Colour, marker and dashes of every arm, as in the figures of reports."""
    count = len(COLOURS)
    return [
        {
            "name": arm,
            "colour": COLOURS[place % count],
            "dark": DARK_COLOURS[place % count],
            "marker": place % count,
            "dash": LINES[(place + place // count) % count],
        }
        for place, arm in enumerate(arms)
    ]


def study_state(study: FollowedStudy, overview: Overview) -> str:
    """One name for how a study stands, for a list of many."""
    if overview.complete:
        return "complete"
    if study.presence == ALIVE:
        return "running"
    if study.presence == GONE:
        return "killed"
    if study.presence == COPIED:
        return "copied"
    if any(one.liveness not in OVER for one in overview.running):
        return "unsupervised"
    if overview.stopped or overview.quarantined:
        return "stopped"
    return "waiting" if overview.train["proven"] or study.opened.state.attempts else "not_started"


def summary(study: FollowedStudy, overview: Overview) -> Values:
    """One study in the list of all."""
    opened = study.opened
    rates = read_measured(opened.folder.preflight).rates
    spent, forecast = spent_and_forecast(opened.state, read_moment(), study.presence == ALIVE, rates)
    money = opened.study.money
    return {
        "study": study.name,
        "name": overview.name,
        "question": overview.question,
        "folder": overview.folder,
        "state": study_state(study, overview),
        "presence": study.presence,
        "supervisor": overview.supervisor,
        "train": overview.train,
        "evaluate": overview.evaluate,
        "running": len(overview.running),
        "complete": overview.complete,
        "seconds_left": overview.seconds_left,
        "without_evaluations": overview.without_evaluations,
        "money": {"spent": spent, "forecast": forecast.money, "budget": money.budget, "currency": money.currency},
        "notices": overview.notices,
        "last_event": opened.state.last_event,
        "last_supervisor_event": opened.state.supervisor.last_event if opened.state.supervisor else None,
        "error": None,
    }


def unreadable_summary(study: FollowedStudy) -> Values:
    """A study that cannot be read: why, and what to do."""
    assert study.fault is not None
    return {
        "study": study.name,
        "name": study.name,
        "state": "unreadable",
        "folder": str(study.place),
        "error": {"message": study.fault.seen, "hint": study.fault.hint},
    }


def overview_of(study: FollowedStudy) -> Overview:
    """The overview that `status` prints."""
    return make_overview(study.opened, read_moment())


def matrix(study: FollowedStudy, overview: Overview) -> Values:
    """Every cell as one letter, with causes of death and steps of running cells beside them."""
    opened = study.opened
    state, declared, seen = opened.state, opened.study, seen_cells(overview.running)

    def train_code(arm: str, seed: int) -> str:
        known = state.cells[Cell(arm, seed)]
        return CODES[as_seen(train_status(state, known), seen.get(("train", str(known.cell))))]

    def eval_code(arm: str, seed: int, condition: str) -> str:
        known = state.eval_cells[Cell(arm, seed), condition]
        return CODES[as_seen(eval_status(state, known), seen.get(("evaluate", str(known.cell))))]

    causes = {str(cell): known.last_cause or known.stopped_cause for cell, known in state.cells.items()}
    return {
        "codes": {code: status for status, code in CODES.items()},
        "arms": arm_looks(list(declared.arms)),
        "seeds": declared.seeds,
        "conditions": [{"name": one.name, "kind": one.kind} for one in declared.conditions],
        "train": ["".join(train_code(arm, seed) for seed in declared.seeds) for arm in declared.arms],
        "evaluate": {
            one.name: ["".join(eval_code(arm, seed, one.name) for seed in declared.seeds) for arm in declared.arms]
            for one in declared.conditions
        },
        "causes": {cell: cause for cell, cause in causes.items() if cause not in (None, "completed")},
        "cause_colours": {cause: cause_colour(cause) for cause in set(causes.values()) if cause},
        "running": {
            one.cell: {
                "agent_steps": one.agent_steps,
                "of": one.declared_agent_steps,
                "work": one.work,
                "liveness": one.liveness,
            }
            for one in overview.running
        },
        "agent_steps": declared.agent_steps,
        "metric": declared.metric.name,
    }


def timeline(opened: OpenStudy, arm: str | None = None) -> Values:
    """Attempts, the newest ones where there are many, and the supervisors behind them."""
    now = read_moment()
    wanted = [one for one in opened.state.attempts.values() if arm is None or _has_arm(one, arm)]
    shown = wanted[-MAX_ATTEMPTS:]
    spans = opened.state.supervisors
    held = living_holder(opened.folder.lease) is not None

    def alive(one: SupervisorSpan) -> bool:
        return held and one is spans[-1] and one.ended is None

    return {
        "now": now.unix_seconds,
        "attempts": [_bar(opened, one, now) for one in shown],
        "left_out": len(wanted) - len(shown),
        "arms": list(opened.study.arms),
        "supervisors": [
            {
                "started": one.started,
                "ended": one.ended,
                "last_event": one.last_event,
                "reason": one.reason,
                "alive": alive(one),
                "lost": one.reason == NO_END or (one.ended is None and not alive(one)),
            }
            for one in spans
        ],
    }


def _has_arm(attempt: AttemptState, arm: str) -> bool:
    return any(text.rpartition("/")[0] == arm for text in attempt.cells)


def _bar(opened: OpenStudy, attempt: AttemptState, now: Any) -> Values:
    wall = attempt.wall_seconds if not attempt.open else open_seconds(opened.state, attempt, now)
    return {
        "attempt": attempt.name,
        "work": attempt.work,
        "cells": attempt.cells,
        "conditions": attempt.conditions,
        "started": attempt.started,
        "wall_seconds": wall,
        "open": attempt.open,
        "cause": attempt.cause,
        "colour": cause_colour(attempt.cause) if attempt.cause else None,
        "evidence": attempt.evidence[:1],
        "liveness": attempt.liveness,
    }
