"""`dreamproof why`: what happened to one cell, with evidence."""

from typing import TYPE_CHECKING, Any

from dreamproof.base.text import quoted
from dreamproof.cli.printing import CellArgument, JsonOption, StudyArgument, print_json, print_text

if TYPE_CHECKING:
    from dreamproof.study.plan.open_study import OpenStudy
    from dreamproof.study.views.running import RunningCell


def why(
    study: StudyArgument,
    cell: CellArgument,
    json: JsonOption = False,
) -> None:
    """Show what happened to a cell: every attempt, why it ended, and the evidence."""
    from dreamproof.study.plan.open_study import declared_cell, open_study

    opened = open_study(study)
    facts = cell_facts(opened, declared_cell(opened, cell))
    if json:
        print_json(facts)
    else:
        print_text(cell_text(facts, str(study)))


def cell_facts(opened: "OpenStudy", cell: Any) -> dict[str, Any]:
    """Everything the ledger knows of a cell, as data."""
    from dataclasses import asdict

    from dreamproof.study.attempts.quarantine import cell_fault
    from dreamproof.study.ledger.status import eval_status, train_status
    from dreamproof.study.money.spending import money_per_ms

    state = opened.state
    known, fault = state.cells[cell], cell_fault(opened, cell)
    running = _running(opened, cell)
    evals = [one for (other, _), one in state.eval_cells.items() if other == cell]
    names = dict.fromkeys([*known.attempts, *(name for one in evals for name in one.attempts)])
    return {
        "cell": str(cell),
        "status": train_status(state, known),
        "metric": opened.study.metric.name,
        "run_folder": str(opened.folder.root / known.source if known.source else opened.run(cell).root),
        "agent_steps": known.kept_agent_steps,
        "declared_agent_steps": opened.study.agent_steps,
        "reached_agent_steps": known.reached_agent_steps,
        "wall_seconds": round(known.wall_seconds, 3),
        "money": round(known.wall_seconds * 1000 * money_per_ms(opened.study.money), 4),
        "running": asdict(running) if running is not None else None,
        "proof": asdict(known.proof) if known.proof is not None else None,
        "stopped": known.stopped or known.eval_stopped,
        "unproven": known.unproven,
        "not_ours": f"{known.foreign['evidence']}; {known.foreign['reason']}".rstrip("; ") if known.foreign else None,
        "quarantined": known.quarantined,
        "unreadable": f"{fault.path}: {fault.reason}" if fault is not None else None,
        "frozen": known.frozen,
        "evaluations": {one.condition: eval_status(state, one) for one in evals},
        "outside": known.outside,
        "attempts": [_attempt_facts(opened, name) for name in sorted(names)],
        "remedies": [
            {key: row[key] for key in ("t", "action", "reason")} for row in state.remedies if str(cell) in row["cells"]
        ],
    }


def _running(opened: "OpenStudy", cell: Any) -> "RunningCell | None":
    """The cell as it runs now; None if nothing works on it."""
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.ledger.lease import living_holder
    from dreamproof.study.views.running import running_cells

    supervised = living_holder(opened.folder.lease) is not None
    found = running_cells(opened, read_moment(), supervised)
    return next((one for one in found if one.cell == str(cell)), None)


def _attempt_facts(opened: "OpenStudy", name: str) -> dict[str, Any]:
    from dreamproof.study.views.slurm_jobs import live_evidence

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


def _job_text(attempt: dict[str, Any]) -> str:
    """The scheduler's report of an attempt's job, in one line."""
    from dreamproof.base.text import duration_text

    place = attempt["placement"]
    parts = [f"Slurm job {attempt['job']}"]
    parts += [f"on {place['nodes']}"] if place.get("nodes") else []
    parts += [f"{place.get('state', '')} {place.get('reason', '')}".strip()] if place.get("state") else []
    parts.append(f"queued {duration_text(attempt['queue_seconds'])}")
    if place.get("allocated_seconds"):
        parts.append(f"allocated {duration_text(place['allocated_seconds'])}")
    parts += [f"restarts {place['restarts']}"] if place.get("restarts") else []
    return ", ".join(parts)


def cell_text(facts: dict[str, Any], study: str) -> str:
    """The story of a cell as a person reads it."""
    import time

    from dreamproof.base.text import duration_text
    from dreamproof.cli.running import running_text
    from dreamproof.study.ledger.status import NOT_OURS, NOT_SAVED, SAVE_REMEDY, outside_text, status_text
    from dreamproof.study.views.running import RunningCell

    cell = facts["cell"]
    status = status_text(facts["status"])
    lines = [f"{cell}: {status}, {facts['agent_steps']:,} of {facts['declared_agent_steps']:,} agent steps"]
    lines.append(f"run folder  {facts['run_folder']}")
    if facts["proof"]:
        proof = facts["proof"]
        bound = "at least " if proof["gradient_steps_at_least"] else ""
        lines.append(
            f"proof       {proof['checkpoint']}: {proof['agent_steps']:,} agent steps, "
            f"{bound}{proof['gradient_steps']:,} updates, parameters {proof['parameter_hash'][:12]}"
        )
    for key in ("not_ours", "quarantined", "unreadable", "stopped", "unproven", "frozen"):
        if facts[key] and (key, facts["status"]) != ("unproven", NOT_SAVED):
            lines.append(f"{key.replace('_', ' '):<12}{facts[key]}")
    if facts["running"] is not None:
        lines.append(f"now         {running_text(RunningCell(**facts['running']), facts['metric'])}")
    for condition, status in facts["evaluations"].items():
        lines.append(f"evaluation  {condition}: {status}")
    for run in facts["outside"]:
        lines += [f"outside     {run['source']}", f"    {outside_text(run)}"]
        lines += [f"    | {quote}" for quote in run["evidence"] or []]
    for attempt in facts["attempts"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt["started"]))
        planned = attempt["from_agent_steps"].get(cell, 0)
        first = attempt["restarted_at"].get(cell, planned)
        kept = attempt["kept_agent_steps"].get(cell)
        cause = attempt["cell_causes"].get(cell, attempt["cause"]) or f"open ({attempt['liveness'] or 'running'})"
        steps = f", {first:,} → {kept:,} agent steps kept" if kept is not None and attempt["work"] == "train" else ""
        lines.append(f"\n{attempt['attempt']}  {when}  {attempt['work']}: {cause}")
        lines.append(f"    {duration_text(attempt['wall_seconds'])}{steps}")
        if cell in attempt["restarted_at"]:
            lines.append(f"    restarted at {first:,}: the trainer did not continue from its checkpoint of {planned:,}")
        if attempt["liveness_reason"]:
            lines.append(f"    {attempt['liveness']}: {attempt['liveness_reason']}")
        if attempt["stacks"]:
            lines.append(f"    stacks: {attempt['stacks']}")
        if attempt["job"]:
            lines.append(f"    {_job_text(attempt)}")
        lines += [f"    | {quote}" for quote in attempt["evidence"]]
        lines.append(f"    output: {attempt['output']}")
    if not facts["attempts"]:
        lines.append("no attempts of this study yet")
    lines += [f"remedy      {row['action']}: {row['reason']}" for row in facts["remedies"]]
    if facts["status"] == NOT_SAVED:
        spent = f"{duration_text(facts['wall_seconds'])}, money {facts['money']:.2f}"
        lines.append(f"not saved   {facts['reached_agent_steps']:,} agent steps were trained: {spent}")
        lines.append(f"remedy      {SAVE_REMEDY}")
    again = " --retry-stopped" if facts["stopped"] else ""
    if facts["unreadable"]:
        lines.append(f"next        repair the file, then dreamproof run {quoted(study)}{again}")
        return "\n".join(lines)
    verbs = {"proven": "status", "running": "watch", NOT_OURS: "run"}
    lines.append(f"next        dreamproof {verbs.get(facts['status'], 'run')} {study}{again}")
    return "\n".join(lines)
